//! Readers and writers that need no socket.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/io.rs"]
mod io_common;

mod copy;
mod duplex;
mod lines;
mod read_write;
mod room;
