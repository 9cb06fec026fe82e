//! A moment, as the runtime's clock tells it.

use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::time::Duration;

/// A moment of the runtime's clock, which never goes back.
///
/// The same as [`std::time::Instant`], and converted from and to it, but for where it comes from: the
/// clock of the runtime, which in a test may be a virtual one.
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
pub struct Instant(std::time::Instant);

/// What stands for a moment too far away to be told.
const FAR: Duration = Duration::from_secs(500 * 365 * 24 * 3600);

impl Instant {
    /// This moment.
    #[must_use]
    #[inline]
    pub fn now() -> Instant {
        Instant(std::time::Instant::now())
    }

    /// How much time has passed since `earlier`; zero if that is later.
    #[must_use]
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_duration_since(earlier.0)
    }

    /// How much time has passed since `earlier`, or `None` if that is later.
    #[must_use]
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        self.0.checked_duration_since(earlier.0)
    }

    /// How much time has passed since; zero if it is still to come.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Instant::now().duration_since(*self)
    }

    /// The moment so much later, if it can be told.
    #[must_use]
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(duration).map(Instant)
    }

    /// The moment so much earlier, if it can be told.
    #[must_use]
    pub fn checked_sub(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_sub(duration).map(Instant)
    }

    /// As the standard library has it.
    #[must_use]
    pub fn into_std(self) -> std::time::Instant {
        self.0
    }

    /// The moment so much later, or one in the far future if it cannot be told.
    pub(super) fn later(self, duration: Duration) -> Instant {
        self.checked_add(duration).unwrap_or_else(|| self + FAR)
    }
}

impl From<std::time::Instant> for Instant {
    fn from(instant: std::time::Instant) -> Instant {
        Instant(instant)
    }
}

impl From<Instant> for std::time::Instant {
    fn from(instant: Instant) -> std::time::Instant {
        instant.0
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// # Panics
    ///
    /// If the moment cannot be told; see [`checked_add`](Instant::checked_add).
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0 + duration)
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
    /// If the moment cannot be told; see [`checked_sub`](Instant::checked_sub).
    fn sub(self, duration: Duration) -> Instant {
        Instant(self.0 - duration)
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
