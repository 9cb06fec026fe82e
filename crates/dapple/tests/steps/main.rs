//! Protocols in simulations where any thread may come between two steps of an atomic or a lock: `ci/steps` runs this
//! binary with `--cfg dapple_steps`.

#[path = "../common/mod.rs"]
mod common;

mod close_race;
mod limit_close;
mod model;
