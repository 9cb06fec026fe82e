//! Point in time of the runtime's clock.

use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::sync::OnceLock;
use std::time::Duration;

use crate::driver::clock::Time;

/// A point in time of the runtime's clock, which never goes back.
///
/// It works like [`std::time::Instant`], and can be converted from and to it. The difference is the clock:
/// that of the runtime, which may be virtual in a test.
///
/// # Examples
///
/// ```
/// use dapple::time::{Duration, Instant, sleep};
///
/// dapple::run(async {
///     let start = Instant::now();
///     sleep(Duration::from_millis(2)).await.unwrap();
///     assert!(start.elapsed() >= Duration::from_millis(2));
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Time);

impl Instant {
    /// Returns the current time.
    #[must_use]
    #[inline]
    pub fn now() -> Instant {
        Instant(Time::now())
    }

    /// Time since `earlier`; zero if `earlier` is later.
    #[must_use]
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.nanos_since(earlier.0))
    }

    /// Time since `earlier`, or `None` if `earlier` is later.
    #[must_use]
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        (*self >= earlier).then(|| self.duration_since(earlier))
    }

    /// Time since this instant; zero if it is in the future.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Instant::now().duration_since(*self)
    }

    /// This instant plus `duration`, or `None` if it is out of range, which is some centuries.
    #[must_use]
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(duration).map(Instant)
    }

    /// This instant minus `duration`, or `None` if it is before the start of the machine.
    #[must_use]
    pub fn checked_sub(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_sub(duration).map(Instant)
    }

    /// Converts to the standard library's type.
    #[must_use]
    pub fn into_std(self) -> std::time::Instant {
        let anchor = Anchor::get();
        match self.checked_duration_since(anchor.here) {
            Some(later) => anchor.std + later,
            None => anchor.std.checked_sub(anchor.here - self).unwrap_or(anchor.std),
        }
    }

    /// This instant plus `duration`, or one in the far future if it is out of range.
    #[inline]
    pub(crate) fn later(self, duration: Duration) -> Instant {
        Instant(self.0.later(duration))
    }

    /// Nanoseconds of the runtime's clock.
    #[inline]
    pub(crate) fn nanos(self) -> u64 {
        self.0.nanos()
    }

    #[inline]
    pub(super) fn time(self) -> Time {
        self.0
    }
}

/// The same moment on both clocks. The standard library's clock is read first, so a converted instant is at
/// most too late, and a wait for it is not too short.
struct Anchor {
    std: std::time::Instant,
    here: Instant,
}

impl Anchor {
    fn get() -> &'static Anchor {
        static ANCHOR: OnceLock<Anchor> = OnceLock::new();
        ANCHOR.get_or_init(|| {
            let std = std::time::Instant::now();
            Anchor { std, here: Instant(Time::real()) }
        })
    }
}

impl From<std::time::Instant> for Instant {
    /// An instant out of range becomes the last, or the first, that can be represented.
    fn from(instant: std::time::Instant) -> Instant {
        let anchor = Anchor::get();
        match instant.checked_duration_since(anchor.std) {
            Some(later) => anchor.here.later(later),
            None => {
                let earlier = anchor.std.duration_since(instant);
                anchor.here.checked_sub(earlier).unwrap_or(Instant(Time::FIRST))
            }
        }
    }
}

impl From<Instant> for std::time::Instant {
    fn from(instant: Instant) -> std::time::Instant {
        instant.into_std()
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// # Panics
    ///
    /// If the result is out of range; see [`checked_add`](Instant::checked_add).
    fn add(self, duration: Duration) -> Instant {
        self.checked_add(duration).expect("Instant out of range: use Instant::checked_add")
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        *self = *self + duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;

    /// # Panics
    ///
    /// If the result is out of range; see [`checked_sub`](Instant::checked_sub).
    fn sub(self, duration: Duration) -> Instant {
        self.checked_sub(duration).expect("Instant before the start of the machine: use Instant::checked_sub")
    }
}

impl SubAssign<Duration> for Instant {
    fn sub_assign(&mut self, duration: Duration) {
        *self = *self - duration;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    /// Zero if `earlier` is later.
    fn sub(self, earlier: Instant) -> Duration {
        self.duration_since(earlier)
    }
}
