//! Children, and the standard input and outputs.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/io.rs"]
mod io_common;

mod children;
mod stdio;
