//! Tasks, colors and runtimes: how they begin, run, panic and end; blocking calls and timers.

#[path = "../common/mod.rs"]
mod common;

mod blocking;
mod blocking_cancel;
mod color_cell;
mod color_main_over;
mod ends_inside;
mod faults;
mod join_cancel;
mod lifecycle;
mod misuse;
mod observe;
mod panics;
mod runtime;
mod shutdown;
mod task_local;
mod tasks;
mod time;
