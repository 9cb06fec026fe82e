//! The clock, and time in ticks, the unit of a driver's timers.
//!
//! A tick is 131 microseconds: fine enough for a sleep of a millisecond, coarse enough that timers
//! that are due at about the same time fire together.

use std::time::Duration;

/// A number of ticks since the clock began.
pub(crate) type TickCount = u64;

/// A tick is 2^SHIFT nanoseconds.
const SHIFT: u32 = 17;
/// The last tick; later than any moment that a [`Time`] can express.
pub(crate) const LAST: TickCount = (1 << 48) - 1;

/// A moment, in nanoseconds of the kernel's monotonic clock, or of a simulation's. This is the runtime's only source
/// of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Time(u64);

impl Time {
    #[inline]
    pub(crate) fn now() -> Time {
        crate::world::clock().map_or_else(Time::real, Time)
    }

    /// This moment by the kernel's clock, in a simulation, too.
    #[inline]
    pub(crate) fn real() -> Time {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Time(now.tv_sec.cast_unsigned() * 1_000_000_000 + now.tv_nsec.cast_unsigned())
    }

    /// Nanoseconds since the clock began.
    #[inline]
    pub(crate) fn nanos(self) -> u64 {
        self.0
    }

    /// The last tick that has begun.
    #[inline]
    pub(crate) fn tick(self) -> TickCount {
        self.0 >> SHIFT
    }

    /// The first tick that is not before this moment. A timer that fires at that tick is never early.
    #[inline]
    pub(crate) fn not_before(self) -> TickCount {
        (self.0 >> SHIFT) + u64::from(self.0 & ((1 << SHIFT) - 1) != 0)
    }

    #[inline]
    pub(crate) fn nanos_since(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The moment `duration` later, or `None` beyond the end of the clock, which is after 584 years.
    #[inline]
    pub(crate) fn checked_add(self, duration: Duration) -> Option<Time> {
        let nanos = duration.as_secs().checked_mul(1_000_000_000)?;
        self.0.checked_add(nanos.checked_add(u64::from(duration.subsec_nanos()))?).map(Time)
    }

    /// The moment `duration` later, or [`FAR`](Self::FAR) beyond the end of the clock.
    #[inline]
    pub(crate) fn later(self, duration: Duration) -> Time {
        self.checked_add(duration).unwrap_or(Time::FAR)
    }

    #[inline]
    pub(crate) fn checked_sub(self, duration: Duration) -> Option<Time> {
        self.0.checked_sub(u64::try_from(duration.as_nanos()).ok()?).map(Time)
    }

    /// The first moment of the clock: the start of the machine.
    pub(crate) const FIRST: Time = Time(0);
    /// The last moment of the clock.
    pub(crate) const FAR: Time = Time(u64::MAX);
}

/// The time from one tick to another; zero if `to` is before `from`.
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
