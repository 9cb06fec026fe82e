//! Facts that hold at compile time: `Send` and `Sync` of each type, and programs that must compile.

#[path = "../common/mod.rs"]
mod common;
#[macro_use]
#[path = "../common/pin.rs"]
mod pin;

mod event_send;
mod scope_compile;
mod send_sync;
mod shared_send;
mod stm_send;
