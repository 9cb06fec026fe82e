//! The clock, and time in ticks, as the timers of a driver count it.
//!
//! A tick is 131 microseconds: fine enough for a sleep of a millisecond, coarse enough that timers
//! that are due at about the same time fire together.

use std::time::Duration;

/// A number of ticks since the clock began.
pub(crate) type TickCount = u64;

/// A tick has two to the power of this nanoseconds.
const SHIFT: u32 = 17;
/// The last tick; later than any moment that can be told.
pub(crate) const LAST: TickCount = (1 << 48) - 1;

/// A moment, in nanoseconds of the kernel's monotonic clock, or of a simulation's. All that the runtime
/// knows of time it knows from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Time(u64);

impl Time {
    #[inline]
    pub(crate) fn now() -> Time {
        crate::world::clock().map_or_else(Time::real, Time)
    }

    /// This moment by the kernel's clock, in whatever world.
    #[inline]
    pub(crate) fn real() -> Time {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Time(now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned())
    }

    /// Since the clock began.
    #[inline]
    pub(crate) fn nanos(self) -> u64 {
        self.0
    }

    /// The last tick that is over.
    #[inline]
    pub(crate) fn tick(self) -> TickCount {
        self.0 >> SHIFT
    }

    /// The first tick that is not before: what fires then is never early.
    #[inline]
    pub(crate) fn not_before(self) -> TickCount {
        (self.0 >> SHIFT) + u64::from(self.0 & ((1 << SHIFT) - 1) != 0)
    }

    #[inline]
    pub(crate) fn nanos_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment so much later, if it can be told: that is for 584 years.
    #[inline]
    pub(crate) fn checked_add(self, duration: Duration) -> Option<Time> {
        let nanos = duration.as_secs().checked_mul(1_000_000_000)?;
        self.0.checked_add(nanos.checked_add(u64::from(duration.subsec_nanos()))?).map(Time)
    }

    /// The moment so much later, or one in the far future if it cannot be told.
    #[inline]
    pub(crate) fn later(self, duration: Duration) -> Time {
        self.checked_add(duration).unwrap_or(Time::FAR)
    }

    #[inline]
    pub(crate) fn checked_sub(self, duration: Duration) -> Option<Time> {
        self.0.checked_sub(u64::try_from(duration.as_nanos()).ok()?).map(Time)
    }

    /// The first moment that can be told: the start of the machine.
    pub(crate) const FIRST: Time = Time(0);
    /// The last moment that can be told.
    pub(crate) const FAR: Time = Time(u64::MAX);
}

/// How long it is from one tick to another; nothing if that has passed.
pub(crate) fn between(from: TickCount, to: TickCount) -> Duration {
    Duration::from_nanos(to.saturating_sub(from).saturating_mul(1 << SHIFT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_early() {
        for nanos in [0, 1, 130_000, 131_071, 131_072, 131_073, 1_000_000, u64::MAX - 1, u64::MAX] {
            let tick = Time(nanos).not_before();
            assert!(u128::from(tick) << SHIFT >= u128::from(nanos) && tick <= LAST);
            assert!(Time(nanos).tick() <= tick);
        }
    }

    #[test]
    fn beyond_all_bounds() {
        let years = |years: u64| Duration::from_secs(years * 365 * 24 * 3600);
        assert!(Time::now().checked_add(years(500)).is_some());
        assert!(Time::now().checked_add(years(1000)).is_none());
        assert!(Time::now().checked_add(Duration::MAX).is_none());
        assert_eq!(Time::now().checked_sub(Duration::MAX), None);
    }
}
