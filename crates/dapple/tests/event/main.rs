//! Callbacks.

#[path = "../common/mod.rs"]
mod common;

mod files;
mod main_color;
mod or_else;
mod order;
mod registration;
mod stress;
mod tasks;
