//! A cheap clock: precise to some milliseconds, without a system call.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The monotonic time, from an arbitrary start.
pub(super) fn now() -> Duration {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
