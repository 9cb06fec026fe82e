//! One connection: the task that drives it, its stream, its timer, and the state machine that all of them share.

pub(crate) mod client_stream;
#[expect(clippy::module_inception, reason = "the file is about the task of a connection")]
mod connection;
pub(crate) mod encrypted;
pub(crate) mod io;
mod phase;
pub(crate) mod shared;
mod timer;
pub(crate) mod tls;

pub(crate) use connection::*;
pub(crate) use phase::LINGER;
