//! The server: the task that accepts, the tasks of connections, and how users start it.

mod accept;
mod connection_task;
mod handshake;
pub(crate) mod listen;
pub(crate) mod serve;
