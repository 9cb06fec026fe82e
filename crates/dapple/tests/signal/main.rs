//! Signals, for tasks and for callbacks. They reach the whole process, so this binary has no other tests, and its tests
//! take turns.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/io.rs"]
mod io_common;

mod callbacks;
mod listeners;

use std::sync::{Mutex, MutexGuard};

static TURNS: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURNS.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
