//! The program `dapple`, run as users run it.

#[path = "../../../dapple/tests/common/not_run.rs"]
mod not_run;
mod program;

mod errors;
mod memory;
mod reload;
mod serving;
mod unreadable;
