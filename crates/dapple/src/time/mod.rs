//! Waiting for a time: [`sleep`], [`sleep_until`], [`interval`].
//!
//! Nothing fires early. How late it is depends on the tick of the timers, an eighth of a millisecond,
//! and on how busy the workers are. A timer costs some tens of nanoseconds to set and to take back,
//! however many there are.
//!
//! Timers lie in the wheel of the worker that first polled them (`driver/`).

mod instant;
mod interval;
mod sleep;

pub use std::time::Duration;

pub use instant::Instant;
pub use interval::{Interval, MissedTicks, Tick, interval, interval_at};
pub use sleep::{Sleep, sleep, sleep_until};

// Facade: limits of time, for users of the crate.
pub use crate::scope::{Elapsed, Timeout, timeout};
