//! The server: its settings, the task that accepts, and the list of open connections.

mod accept;
mod connection_task;
pub(crate) mod limit;
pub(crate) mod listen;
pub(crate) mod serve;
#[expect(clippy::module_inception, reason = "the file is about the type `Server`")]
mod server;
pub(crate) mod settings;
pub(crate) mod stats;

pub(crate) use server::*;
