//! HTTP/2.

#[path = "../common/mod.rs"]
mod common;

mod early_answer;
mod raw;
mod requests;
mod streams;
mod unread;
