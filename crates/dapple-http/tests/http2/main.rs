//! HTTP/2.

#[path = "../common/mod.rs"]
mod common;

mod raw;
mod requests;
mod streams;
