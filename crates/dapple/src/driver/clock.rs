//! Time in ticks, as the timers of a driver count it.
//!
//! A tick is 131 microseconds: fine enough for a sleep of a millisecond, coarse enough that timers
//! that are due at about the same time fire together.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A number of ticks since a moment before the first one was counted.
pub(crate) type Tick = u64;

/// A tick has two to the power of this nanoseconds.
const SHIFT: u32 = 17;
/// The last tick. What is further away than can be told (584 years) is before it all the same.
pub(crate) const LAST: Tick = (1 << 48) - 1;

fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    *EPOCH.get_or_init(Instant::now)
}

/// A moment. What the runtime itself knows of time it knows from here.
#[derive(Clone, Copy)]
pub(crate) struct Time(u64);

impl Time {
    #[inline]
    pub(crate) fn now() -> Time {
        Time(to_nanos(Instant::now()))
    }

    /// The last tick that is over.
    #[inline]
    pub(crate) fn tick(self) -> Tick {
        self.0 >> SHIFT
    }

    #[inline]
    pub(crate) fn nanos_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// The first tick that is not before `instant`: what fires then is never early.
#[inline]
pub(crate) fn not_before(instant: Instant) -> Tick {
    let nanos = to_nanos(instant);
    (nanos >> SHIFT).saturating_add(u64::from(nanos & ((1 << SHIFT) - 1) != 0)).min(LAST)
}

/// How long it is from one tick to another; nothing if that has passed.
pub(crate) fn between(from: Tick, to: Tick) -> Duration {
    Duration::from_nanos(to.saturating_sub(from).saturating_mul(1 << SHIFT))
}

#[inline]
fn to_nanos(instant: Instant) -> u64 {
    let since = instant.saturating_duration_since(epoch());
    since.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(since.subsec_nanos()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_early() {
        let start = Instant::now();
        for nanos in [0, 1, 130_000, 131_072, 131_073, 1_000_000, u64::MAX] {
            let instant = start + Duration::from_nanos(nanos);
            assert!(between(0, not_before(instant)) >= instant.saturating_duration_since(epoch()).min(between(0, LAST)));
            assert!(to_nanos(instant) >> SHIFT <= not_before(instant) || not_before(instant) == LAST);
        }
    }

    #[test]
    fn beyond_all_bounds() {
        let years = |years: u64| Duration::from_secs(years * 365 * 24 * 3600);
        let tick = not_before(Instant::now() + years(2000));
        assert!(tick <= LAST && between(0, tick) > years(500));
    }
}
