//! Callbacks at a time: once, or repeatedly.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::callback_tasks::Occasion;
use super::{Often, Once, Registration, submit::CallSite};
use crate::time::{Instant, Interval, MissedTicks, Sleep, interval_at, sleep_until};

impl Occasion for Sleep {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        Pin::new(self).poll(cx).map(|elapsed| elapsed.is_ok())
    }
}

impl Occasion for Interval {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.poll_tick(cx).map(|tick| tick.is_ok())
    }
}

/// Calls a callback once, after `duration`: libasync's `timecb`.
///
/// Never earlier; later if its color is busy then.
///
/// # Panics
///
/// If the callback has no color, and there is [no main color](super#colors) for it.
///
/// # Examples
///
/// ```
/// use dapple::event::{self, Callback};
/// use dapple::time::{Duration, Instant};
///
/// dapple::run(async {
///     let begun = Instant::now();
///     let waited = dapple::suspend(|resume| {
///         let resume = Callback::new(move || drop(resume.resume(begun.elapsed())));
///         let registration = event::after(Duration::from_millis(2), resume);
///         || drop(registration) // if the wait is cancelled
///     });
///     assert!(waited.await.unwrap() >= Duration::from_millis(2));
/// });
/// ```
#[track_caller]
pub fn after<C: Once<Output = ()>>(duration: Duration, callback: C) -> Registration {
    let deadline = Instant::now().later(duration);
    callback.once(sleep_until(deadline), CallSite::of_caller("event::after"))
}

/// Calls a callback once, at `moment`; at once if that has passed. Otherwise as [`after`].
///
/// # Panics
///
/// As for [`after`].
///
/// # Examples
///
/// ```
/// use dapple::event::{self, Callback};
/// use dapple::time::{Duration, Instant};
///
/// dapple::run(async {
///     let (tell, told) = dapple::channel::oneshot::channel();
///     let moment = Instant::now() + Duration::from_millis(1);
///     event::at(moment, Callback::new(move || drop(tell.send(Instant::now())))).detach();
///     assert!(told.await.unwrap() >= moment);
/// });
/// ```
#[track_caller]
pub fn at<C: Once<Output = ()>>(moment: Instant, callback: C) -> Registration {
    callback.once(sleep_until(moment), CallSite::of_caller("event::at"))
}

/// Calls a callback every `period`, for the first time a period from now.
///
/// If a call is late because its color or the machine was busy, the calls missed meanwhile are skipped, and
/// the next one is at its regular time ([`MissedTicks::Skip`]).
///
/// # Panics
///
/// If the period is zero. As for [`after`].
///
/// # Examples
///
/// ```
/// use std::ops::ControlFlow;
/// use dapple::event::{self, Callback};
/// use dapple::sim::Sim;
/// use dapple::time::{Duration, Instant};
///
/// Sim::new(1).run(async {
///     let begun = Instant::now();
///     let third = dapple::suspend(|resume| {
///         let (mut calls, mut resume) = (0, Some(resume));
///         let count = Callback::new(move || {
///             calls += 1;
///             if calls < 3 {
///                 return ControlFlow::Continue(());
///             }
///             let _ = resume.take().map(|resume| resume.resume(begun.elapsed()));
///             ControlFlow::Break(()) // do not call again
///         });
///         let counting = event::every(Duration::from_secs(60), count);
///         || drop(counting)
///     });
///     assert_eq!(third.await.unwrap().as_secs(), 180);
/// });
/// ```
#[track_caller]
pub fn every<C: Often>(period: Duration, callback: C) -> Registration {
    let ticks = interval_at(Instant::now().later(period), period).missed_ticks(MissedTicks::Skip);
    callback.often(ticks, CallSite::of_caller("event::every"))
}
