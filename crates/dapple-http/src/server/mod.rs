//! The server: the task that accepts, the tasks of connections, and how users start it.

#[cfg(feature = "tls")]
mod handshake;
#[cfg(not(feature = "tls"))]
#[path = "no_handshake.rs"]
mod handshake;
#[cfg(feature = "http2")]
mod http2;
#[cfg(not(feature = "http2"))]
#[path = "no_http2.rs"]
mod http2;
pub(crate) mod listen;
pub(crate) mod serve;
mod tasks;
