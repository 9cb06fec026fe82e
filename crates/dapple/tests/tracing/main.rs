//! Events for `tracing`, and subscribers that panic.
#![cfg(feature = "tracing")]

#[path = "../common/mod.rs"]
mod common;

mod files;
mod panics;
mod scope;
mod stalls;
