//! A moment, as the runtime's clock tells it.

use std::ops::{Add, AddAssign, Sub, SubAssign};
use std::sync::OnceLock;
use std::time::Duration;

use crate::driver::clock::Time;

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
pub struct Instant(Time);

impl Instant {
    /// This moment.
    #[must_use]
    #[inline]
    pub fn now() -> Instant {
        Instant(Time::now())
    }

    /// How much time has passed since `earlier`; zero if that is later.
    #[must_use]
    pub fn duration_since(&self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.nanos_since(earlier.0))
    }

    /// How much time has passed since `earlier`, or `None` if that is later.
    #[must_use]
    pub fn checked_duration_since(&self, earlier: Instant) -> Option<Duration> {
        (*self >= earlier).then(|| self.duration_since(earlier))
    }

    /// How much time has passed since; zero if it is still to come.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Instant::now().duration_since(*self)
    }

    /// The moment so much later, if it can be told: that is for some centuries.
    #[must_use]
    pub fn checked_add(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_add(duration).map(Instant)
    }

    /// The moment so much earlier, if it can be told: that is back to the start of the machine.
    #[must_use]
    pub fn checked_sub(&self, duration: Duration) -> Option<Instant> {
        self.0.checked_sub(duration).map(Instant)
    }

    /// As the standard library has it.
    #[must_use]
    pub fn into_std(self) -> std::time::Instant {
        let anchor = Anchor::get();
        match self.checked_duration_since(anchor.here) {
            Some(later) => anchor.std + later,
            None => anchor.std.checked_sub(anchor.here - self).unwrap_or(anchor.std),
        }
    }

    /// The moment so much later, or one in the far future if it cannot be told.
    #[inline]
    pub(crate) fn later(self, duration: Duration) -> Instant {
        Instant(self.0.later(duration))
    }

    /// In nanoseconds of the runtime's clock.
    #[inline]
    pub(crate) fn nanos(self) -> u64 {
        self.0.nanos()
    }

    #[inline]
    pub(super) fn time(self) -> Time {
        self.0
    }
}

/// The same moment on both clocks. The standard library's was read first: so what is converted from it
/// comes out later, if anything, and what waits for it is not early.
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
    /// A moment too far away to be told becomes the last, or the first, that can be.
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
    /// If the moment cannot be told; see [`checked_add`](Instant::checked_add).
    fn add(self, duration: Duration) -> Instant {
        self.checked_add(duration).expect("a moment too far away to be told: see Instant::checked_add")
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
        self.checked_sub(duration)
            .expect("a moment before the start of the machine: see Instant::checked_sub")
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
