//! HTTP on Dapple: any service of tower or hyper, and so any axum application, served.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use dapple::net::TcpListener;
//!
//! #[dapple::main]
//! async fn main() -> std::io::Result<()> {
//!     let router = Router::new().route("/", get(|| async { "hello" }));
//!     let listener = TcpListener::bind("127.0.0.1:3000").await?;
//!     dapple_http::serve(listener, router).shutdown_on(dapple::signal::ctrl_c()).await?;
//!     Ok(())
//! }
//! ```
//!
//! HTTP/1.1 and HTTP/2 are hyper's, TLS is rustls'. Around them:
//!
//! * **A color per connection (HTTP/1) or per stream (HTTP/2).** The requests of an HTTP/1 connection are handled one
//!   after the other, those of an HTTP/2 connection in parallel. A handler that blocks or computes holds up its own
//!   connection or stream alone.
//! * **Requests are cancelled, not dropped**, if their client goes away: see below.
//! * **Overload is refused**: over a [limit](Serve::limit) 503 is answered before the service has seen the request.
//! * **Slow clients hold nothing but their connection**, and not for long: the methods of [`Serve`] that end in
//!   `_timeout`, each with a default.
//! * **What could be read in two ways is refused**: both a length and chunks, two lengths, two hosts or none, lines
//!   that end with LF alone, transfer codings other than `chunked`. That holds for every head, wherever it lay in what
//!   was sent.
//! * **It ends gracefully**: [`Serve::shutdown_on`].
//! * **State without locks**: handlers whose arguments say what they touch, in [`state`].
//!
//! Connections can become [something else](upgrade()), such as [WebSockets](ws) (feature `ws`).
//!
//! # What happens when a client goes away
//!
//! hyper drops what handles a request when it learns that nobody waits for it any more. Then a handler of other
//! servers ends in the middle of whatever it was at. Here it is cancelled, as a scope is
//! ([`dapple::finish`](fn@dapple::finish)): all its waits, now and later, return `Cancelled` if what they wait for has
//! not happened, and it runs to its end. What it returns is dropped. If it has not ended after
//! [`cancel_grace`](Serve::cancel_grace), since it waits for something that does not know of cancelling, it is dropped
//! after all.
//!
//! ```text
//!  the client    request ──────────────────┐ goes away
//!                                          │
//!  the handler   ├── reads ── writes ── waits │ Cancelled ── undoes, says goodbye ──┤ its response is dropped
//!                └── in the connection's or ───┘└── in a task of its own, in the same color ──┘
//!                    the stream's task
//! ```
//!
//! When that is, on the wire:
//!
//! | | HTTP/1 | HTTP/2 |
//! |---|---|---|
//! | the client resets the connection | its request is cancelled, the connection is closed | all requests of the connection are cancelled, at once |
//! | the client closes the connection, or only its side (`shutdown(SHUT_WR)`, as `nc -N` does): these look the same | before the response has begun: the handler has [`half_close_grace`](Serve::half_close_grace) to answer, then it is cancelled. After that: the response is sent whole, or until a write fails | all requests of the connection are cancelled, at once |
//! | the client gives up one request | cannot: it has to close the connection | it sends `RST_STREAM`, that request is cancelled, the others go on |
//! | the client vanishes without a word | noticed when something is written, or by the connection's time limits | the same |
//! | the request takes longer than [`request_timeout`](Serve::request_timeout) | 503 is answered, the connection goes on | the same |
//! | the server ends, and the [deadline](Serve::shutdown_deadline) comes | the connection is closed without an answer | the same |
//! | the response is being sent when the client goes | its body is dropped: that is no handler's any more | the same |
//!
//! A client that has sent its next request already (pipelining) and then closes is noticed to be gone only when that was
//! read; one that resets its connection, at once.
//!
//! A handler that panics is answered for with 500, and its connection goes on. A service that returns an error ends its
//! connection (HTTP/1) or its stream (HTTP/2) without an answer, as with hyper; but if the body was too large, too late
//! or malformed, 413, 408 or 400 is answered, whatever the service makes of the error that it got.
//!
//! # Defaults
//!
//! | | unless it is set |
//! |---|---|
//! | [`header_timeout`](Serve::header_timeout) | 30 s |
//! | [`body_timeout`](Serve::body_timeout) | 30 s for each 8 KiB |
//! | [`write_timeout`](Serve::write_timeout) | 30 s for each 8 KiB |
//! | [`idle_timeout`](Serve::idle_timeout) | 75 s |
//! | [`request_timeout`](Serve::request_timeout) | none |
//! | [`half_close_grace`](Serve::half_close_grace) | 2 s |
//! | [`max_header_size`](Serve::max_header_size) | 32 KiB |
//! | [`max_body_size`](Serve::max_body_size) | 16 MiB |
//! | [`max_connections`](Serve::max_connections) | three quarters of the file descriptors, 65,536 at most |
//! | [`max_connections_per_address`](Serve::max_connections_per_address) | none |
//! | [`max_streams`](Serve::max_streams) | 100 |
//! | [`max_parallel_streams`](Serve::max_parallel_streams) | 16 |
//! | [`limit`](Serve::limit) | all requests waited for more than 50 ms, for 500 ms |
//! | [`shutdown_deadline`](Serve::shutdown_deadline) | 30 s |
//! | [`cancel_grace`](Serve::cancel_grace) | 1 s |
//!
//! How it works is in `docs/design/http.md`.

#![forbid(unsafe_code)]

mod connection;
mod error;
#[cfg(feature = "files")]
pub mod files;
mod observer;
mod peer;
mod registry;
mod reply;
mod request;
mod server;
#[cfg(feature = "axum")]
pub mod state;
mod strict;
mod waker;

#[doc(hidden)]
pub use connection::client_stream::ClientStream;
#[cfg(feature = "tls")]
pub use connection::tls::Tls;
pub use error::{BoxError, Error};
#[cfg(feature = "files")]
pub use files::files;
pub use observer::OwnAnswer;
pub use peer::Peer;
pub use registry::stats::{Counts, Stats};
pub use request::body::Body;
#[doc(hidden)]
pub use request::service::ByTower;
#[doc(hidden)]
pub use request::service::Within;
pub use request::service::{Handler, IntoHandler};
pub use request::upgrade::{Upgraded, upgrade};
#[cfg(feature = "ws")]
pub use request::ws;
pub use server::listen::Listener;
pub use server::serve::{Serve, Served, serve};
#[cfg(feature = "axum")]
pub use state::stateful;
