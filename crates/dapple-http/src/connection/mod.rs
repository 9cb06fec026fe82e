//! One connection: its stream, and the state machine that its parts share.

pub(crate) mod client_stream;
pub(crate) mod encrypted;
pub(crate) mod io;
pub(crate) mod phase;
mod rest;
pub(crate) mod shared;
pub(crate) mod tls;
