//! State that all connections of a server share: its settings, its limit, its counts, and the list of open connections.

mod server;
pub(crate) mod settings;
pub(crate) mod stats;

pub(crate) use server::*;
