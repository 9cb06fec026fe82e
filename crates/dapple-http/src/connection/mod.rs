//! One connection: its stream, and the state machine that its parts share.

pub(crate) mod client_stream;
#[cfg(feature = "tls")]
pub(crate) mod encrypted;
pub(crate) mod io;
pub(crate) mod phase;
mod rest;
pub(crate) mod send_queue;
pub(crate) mod shared;
#[cfg(feature = "tls")]
pub(crate) mod tls;
#[cfg(not(feature = "tls"))]
pub(crate) mod tls {
    //! Without the feature `tls` there is no certificate.
    pub(crate) use std::convert::Infallible as Tls;
}
