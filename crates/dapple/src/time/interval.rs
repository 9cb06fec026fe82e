//! Interval: ticks at regular times.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;

use super::{Instant, Sleep, sleep_until};
use crate::Cancelled;
use crate::cancel::wait::Wait;

/// Creates an [`Interval`] that ticks every `period`, for the first time at once.
///
/// Ticks that were missed because the program was busy are made up for; see [`MissedTicks`].
///
/// # Panics
///
/// If the period is zero.
///
/// # Examples
///
/// ```
/// use dapple::time::{Duration, interval};
///
/// dapple::run(async {
///     let mut ticks = interval(Duration::from_millis(2));
///     let first = ticks.tick().await.unwrap();
///     let second = ticks.tick().await.unwrap();
///     assert_eq!(second - first, Duration::from_millis(2));
/// });
/// ```
#[track_caller]
pub fn interval(period: Duration) -> Interval {
    interval_at(Instant::now(), period)
}

/// Creates an [`Interval`] that ticks every `period`, for the first time at `start`. As [`interval`]
/// otherwise.
///
/// # Panics
///
/// If the period is zero.
///
/// # Examples
///
/// ```
/// use dapple::time::{Duration, Instant, interval_at};
///
/// # dapple::sim::Sim::new(1).run(async {
/// let start = Instant::now() + Duration::from_secs(10);
/// let mut ticks = interval_at(start, Duration::from_secs(1));
/// assert_eq!(ticks.tick().await.unwrap(), start); // not at once
/// # });
/// ```
#[track_caller]
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "the period of an interval must not be zero");
    Interval { sleep: sleep_until(start), period, missed: MissedTicks::default() }
}

/// Policy of an [`Interval`] for ticks that were not taken in time.
///
/// With a period of 10, and a delay of 25 after the first tick at 0:
///
/// | | ticks at |
/// |---|---|
/// | `Burst` | 0, 25 (for 10), 25 (for 20), 30, 40 |
/// | `Delay` | 0, 25, 35, 45 |
/// | `Skip` | 0, 25, 30, 40 |
///
/// # Examples
///
/// ```
/// use dapple::time::{Duration, MissedTicks, interval, sleep};
///
/// # dapple::sim::Sim::new(1).run(async {
/// let second = Duration::from_secs(1);
/// let mut ticks = interval(second).missed_ticks(MissedTicks::Skip);
/// let first = ticks.tick().await.unwrap();
/// sleep(second * 7 / 2).await.unwrap(); // three ticks are missed
/// let _late = ticks.tick().await.unwrap(); // one comes at once, for all of them
/// let next = ticks.tick().await.unwrap();
/// assert_eq!(next - first, second * 4); // in step again
/// # });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissedTicks {
    /// Delivers all missed ticks, without a pause. The default.
    #[default]
    Burst,
    /// Goes on a period after the tick that was taken late.
    Delay,
    /// Drops missed ticks, and goes on with the next that is due.
    Skip,
}

/// Ticks at regular times. Also a [`Stream`], which never ends. Created by [`interval`].
///
/// # Examples
///
/// ```
/// use dapple::time::{Duration, MissedTicks, interval};
///
/// dapple::run(async {
///     let mut interval = interval(Duration::from_millis(1)).missed_ticks(MissedTicks::Skip);
///     for _ in 0..3 {
///         interval.tick().await.unwrap(); // do something every millisecond
///     }
/// });
/// ```
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
    missed: MissedTicks,
}

impl Interval {
    /// Sets the policy for missed ticks.
    #[must_use]
    pub fn missed_ticks(mut self, missed: MissedTicks) -> Interval {
        self.missed = missed;
        self
    }

    /// Time between two ticks.
    #[must_use]
    pub fn period(&self) -> Duration {
        self.period
    }

    /// Restarts the interval: the next tick comes a period from now.
    pub fn reset(&mut self) {
        self.sleep.reset(Instant::now().later(self.period));
    }

    /// Waits for the next tick, and returns the time at which it was due.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no tick is lost.
    /// *Scope cancelled*: returns [`Cancelled`], and the tick is not taken.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::time::{Duration, interval};
    ///
    /// # dapple::sim::Sim::new(1).run(async {
    /// let mut ticks = interval(Duration::from_secs(1));
    /// let first = ticks.tick().await.unwrap(); // at once
    /// let second = ticks.tick().await.unwrap();
    /// assert_eq!(second - first, Duration::from_secs(1));
    /// # });
    /// ```
    pub fn tick(&mut self) -> Tick<'_> {
        Tick { interval: self, wait: Wait::default() }
    }

    /// As [`tick`](Self::tick), for hand-written futures. It cannot tell a new wait from one that was
    /// dropped: in a cancelled task it may still return a tick that has become due since.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    pub fn poll_tick(&mut self, cx: &mut Context<'_>) -> Poll<Result<Instant, Cancelled>> {
        if let Err(cancelled) = ready!(Pin::new(&mut self.sleep).poll(cx)) {
            return Poll::Ready(Err(cancelled));
        }
        let (tick, now) = (self.sleep.deadline(), Instant::now());
        let next = tick.later(self.period);
        self.sleep.reset(match self.missed {
            MissedTicks::Delay if next <= now => now.later(self.period),
            MissedTicks::Skip if next <= now => {
                let late = now.duration_since(tick).as_nanos() % self.period.as_nanos();
                let left = self.period.as_nanos() - late;
                now.later(Duration::from_nanos_u128(left))
            }
            _ => next,
        });
        Poll::Ready(Ok(tick))
    }
}

impl Stream for Interval {
    type Item = Result<Instant, Cancelled>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_tick(cx).map(Some)
    }
}

/// Future of [`Interval::tick`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Tick<'a> {
    interval: &'a mut Interval,
    wait: Wait,
}

impl Future for Tick<'_> {
    type Output = Result<Instant, Cancelled>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Err(cancelled) = ready!(this.wait.begin(cx)) {
            return Poll::Ready(Err(cancelled));
        }
        let polled = this.interval.poll_tick(cx);
        match polled {
            Poll::Ready(_) => this.wait.end_around(),
            Poll::Pending => this.wait.rest_around(cx),
        }
        polled
    }
}
