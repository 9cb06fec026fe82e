//! Sleep: a wait for a point in time.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use super::Instant;
use crate::Cancelled;
use crate::cancel::wait::Wait;
use crate::context::no_runtime;
use crate::driver::timers::{Fired, Key, TimerInsert, Timers};
use crate::sched::Sched;
use crate::task::guarded::GuardedWaker;

/// Waits for `duration`, counted from this call, not from the first poll.
///
/// A zero duration is over at the first poll. A thousand years are for ever.
///
/// # Errors
///
/// If the wait was cancelled, or the runtime has ended.
///
/// # Panics
///
/// If it is awaited outside of a runtime.
///
/// # Cancellation
///
/// *Dropped early*: **clean**.
/// *Scope cancelled*: returns [`Cancelled`]; or `Ok`, if the time was up when the wait was polled again.
///
/// # Examples
///
/// ```
/// use dapple::time::{Duration, sleep};
///
/// dapple::run(async {
///     sleep(Duration::from_millis(1)).await.unwrap();
///     let endless = dapple::spawn(sleep(Duration::MAX));
///     endless.cancel();
///     assert_eq!(endless.await.unwrap(), Err(dapple::Cancelled));
/// });
/// ```
pub fn sleep(duration: Duration) -> Sleep {
    let now = Instant::now();
    Sleep::at(now.later(duration), now)
}

/// Waits until `deadline`. If that has passed, the wait is over at the first poll. As [`sleep`] otherwise.
///
/// # Errors
///
/// If the wait was cancelled, or the runtime has ended.
///
/// # Panics
///
/// If it is awaited outside of a runtime.
///
/// # Cancellation
///
/// *Dropped early*: **clean**.
/// *Scope cancelled*: returns [`Cancelled`]; or `Ok`, if the deadline had passed when the wait was polled
/// again.
///
/// # Examples
///
/// ```
/// use dapple::time::{Duration, Instant, sleep_until};
///
/// # dapple::sim::Sim::new(1).run(async {
/// let deadline = Instant::now() + Duration::from_secs(3600);
/// sleep_until(deadline).await.unwrap();
/// assert!(Instant::now() >= deadline);
/// # });
/// ```
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep::at(deadline, Instant::now())
}

/// Future of [`sleep`] and [`sleep_until`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Sleep {
    deadline: Instant,
    /// The deadline has passed, now or when the wait was created.
    is_over: bool,
    timer: Option<(&'static Timers, Key)>,
    wait: Wait,
}

impl Sleep {
    #[inline]
    fn at(deadline: Instant, now: Instant) -> Sleep {
        Sleep { deadline, is_over: deadline <= now, timer: None, wait: Wait::default() }
    }

    /// Time that it waits for.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Waits for another deadline instead, whether or not the old one has passed.
    pub fn reset(&mut self, deadline: Instant) {
        self.withdraw();
        *self = Sleep::at(deadline, Instant::now());
    }

    fn withdraw(&mut self) {
        if let Some((timers, key)) = self.timer.take() {
            timers.remove(key);
        }
    }

    /// Whether the deadline has passed. An error if the runtime has ended, so that it never will.
    #[inline]
    fn has_elapsed(&mut self, cx: &mut Context<'_>) -> Result<bool, Cancelled> {
        if let Some((timers, key)) = self.timer {
            match timers.has_fired(key, cx.waker()) {
                Fired::Yes => return Ok(true),
                Fired::NotYet => return Ok(false),
                Fired::Gone => {
                    self.timer = None; // continue with another runtime, if there is one
                    self.is_over = self.deadline <= Instant::now();
                }
            }
        }
        if self.is_over {
            return Ok(true);
        }
        let entered = Sched::current(|sched| {
            let driver = sched.driver_here();
            match driver.timers.insert(self.deadline.time().not_before(), GuardedWaker::of(cx.waker())) {
                TimerInsert::Due => return Ok(true),
                TimerInsert::At { key, is_first } => {
                    self.timer = Some((driver.timers, key));
                    if is_first && !Sched::owns_slot_here() {
                        driver.wake();
                    }
                }
                TimerInsert::Gone => return Err(Cancelled),
            }
            Ok(false)
        });
        entered.unwrap_or_else(|| panic!("{}", no_runtime("sleep in")))
    }
}

impl Future for Sleep {
    type Output = Result<(), Cancelled>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Err(cancelled) = ready!(this.wait.begin(cx)) {
            this.withdraw();
            return Poll::Ready(Err(cancelled));
        }
        let elapsed = this.has_elapsed(cx);
        if elapsed == Ok(true) {
            this.timer = None;
            this.is_over = true;
            this.wait.end();
            return Poll::Ready(Ok(()));
        }
        if elapsed.is_err() || this.wait.is_cancelled() {
            this.withdraw();
            this.wait.end();
            return Poll::Ready(Err(Cancelled));
        }
        this.wait.rest(cx, &"a time");
        Poll::Pending
    }
}

impl Drop for Sleep {
    #[inline]
    fn drop(&mut self) {
        self.withdraw();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}
