//! An HTTP server for the Dapple runtime. It serves any tower or hyper service, including axum applications.
//!
//! ```no_run
//! use axum::{Router, routing::get};
//! use dapple::net::TcpListener;
//!
//! #[dapple::main]
//! async fn main() -> std::io::Result<()> {
//!     let router = Router::new().route("/", get(|| async { "hello" }));
//!     let listener = TcpListener::bind("127.0.0.1:3000").await?;
//!     dapple_http::serve(listener, router).shutdown_on(dapple::signal::shutdown()).await?;
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
//! * **Overload is refused**: above a [limit](Serve::limit) the server answers 503 before the service sees the request.
//! * **Slow clients hold nothing but their connection**, and not for long: the methods of [`Serve`] that end in
//!   `_timeout`, each with a default.
//! * **Ambiguous requests are refused**: both a length and chunks, two lengths, two hosts or none, lines
//!   that end with LF alone, transfer codings other than `chunked`. Every head is checked, also those of pipelined
//!   requests.
//! * **Graceful shutdown**: [`Serve::shutdown_on`].
//! * **State without locks**: handlers whose argument types name the state that they read or write, in [`state`].
//!
//! A connection can change to [another protocol](upgrade()), such as [WebSockets](ws) (feature `ws`). The timeouts end
//! there.
//!
//! # Client disconnects
//!
//! hyper drops the future of a request when its client disconnects, so with other servers a handler stops at
//! whichever `await` it had reached. Here the handler is cancelled instead, as a scope is
//! ([`dapple::finish`](fn@dapple::finish)): each of its waits, now and later, returns `Cancelled` unless its event has
//! happened, and the handler runs to its end. Its response is dropped. A handler that has not ended after
//! [`cancel_grace`](Serve::cancel_grace), because it waits for a future that ignores cancellation, is dropped
//! then.
//!
//! ```text
//!  the client    request ──────────────────┐ goes away
//!                                          │
//!  the handler   ├── reads ── writes ── waits │ Cancelled ── undoes, says goodbye ──┤ its response is dropped
//!                └── in the connection's or ───┘└── in a task of its own, in the same color ──┘
//!                    the stream's task
//! ```
//!
//! The events on the wire that cancel a request:
//!
//! | | HTTP/1 | HTTP/2 |
//! |---|---|---|
//! | the client resets the connection | its request is cancelled, the connection is closed | all requests of the connection are cancelled, at once |
//! | the client closes the connection, or only its sending side (`shutdown(SHUT_WR)`, as `nc -N` does): the two look the same | before the response has begun: the handler has [`half_close_grace`](Serve::half_close_grace) to answer, then it is cancelled. Afterwards: the response is sent until its end, or until a write fails | all requests of the connection are cancelled, at once |
//! | the client gives up one request | cannot: it has to close the connection | it sends `RST_STREAM`, that request is cancelled, the others go on |
//! | the client vanishes without closing the connection | noticed when a write fails, or by the connection's timeouts | the same |
//! | the request takes longer than [`request_timeout`](Serve::request_timeout) | the server answers 503 and keeps the connection | the same |
//! | the server shuts down, and the [deadline](Serve::shutdown_deadline) passes | the connection is closed without an answer | the same |
//! | the client disconnects while the response is being sent | the body is dropped: its handler has already ended | the same |
//!
//! If a client has already sent its next request (pipelining) and then closes its connection, the server notices that only
//! when it reads the next request. It notices a reset at once.
//!
//! If a handler panics, the server answers 500 and keeps the connection. A service that returns an error ends its
//! connection (HTTP/1) or its stream (HTTP/2) without an answer, as with hyper. If the body was too large, too late
//! or malformed, the server answers 413, 408 or 400, whatever the service did with the error of the body.
//!
//! # Defaults
//!
//! | setting | default |
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
//! | [`limit`](Serve::limit) | requests are refused once all of them have waited more than 50 ms, for 500 ms |
//! | [`shutdown_deadline`](Serve::shutdown_deadline) | 30 s |
//! | [`cancel_grace`](Serve::cancel_grace) | 1 s |
//!
//! # Features
//!
//! | feature | default | adds |
//! |---|---|---|
//! | `http2` | yes | HTTP/2; without it, a client that begins with the preface of HTTP/2 gets 400 |
//! | `tls` | yes | [`Tls`], by rustls and aws-lc-rs |
//! | `files` | yes | a folder as a service: `files` |
//! | `axum` | yes | [`state`]: handlers with state arguments for axum's routers |
//! | `sim` | yes | servers in virtual time: [`serve`] takes listeners of `dapple::sim` |
//! | `ws` | | WebSockets for axum's routers: `ws` |
//!
//! The design is described in `docs/design/http.md`.

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
pub use registry::stats::{ServerStats, StatsReader};
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
