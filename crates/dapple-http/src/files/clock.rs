//! A clock that is cheap to ask: right to some milliseconds, without a system call.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The time since some moment in the past.
pub(super) fn now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
