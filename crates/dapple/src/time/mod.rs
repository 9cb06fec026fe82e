//! Time: [`sleep`], [`sleep_until`], [`interval`], [`timeout`].
//!
//! No timer fires early. It may fire late by the timer resolution, an eighth of a millisecond, and by the
//! time that the workers are busy. Setting or removing a timer takes some tens of nanoseconds, however many
//! timers there are.
//!
//! # Inside
//!
//! A timer is in the timer wheel of the worker that first polled it (`driver/`).

mod instant;
mod interval;
mod sleep;

pub use std::time::Duration;

pub use instant::Instant;
pub use interval::{Interval, MissedTicks, Tick, interval, interval_at};
pub use sleep::{Sleep, sleep, sleep_until};

// Facade: the timeout, for users of the crate.
pub use crate::scope::{Elapsed, Timeout, timeout};
