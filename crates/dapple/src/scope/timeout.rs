//! A limit on how long something may take.

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::region::{Region, RegionVerdict};
use crate::cancel::frame::{Deadline, claim_outermost};
use crate::context::{ThreadContext, with_context};
use crate::time::{Instant, Sleep, sleep};

/// Runs a future for no longer than that: then it is cancelled, exactly, and waited for; or dropped, if it does not know
/// of cancelling.
///
/// Nothing is lost: what the future returns after it was cancelled is in the error. It can be a message that arrived in
/// the same moment, so a loop around `timeout(d, receiver.recv())` has to look at [`Elapsed::into_inner`]. A loop around
/// [`race`](crate::race) of `recv` and a [`sleep`](crate::time::sleep()) need not: there the message stays in the channel.
///
/// The time counts from this call on, not from the first poll.
///
/// When the time is up,
///
/// * waits of this crate return `Cancelled`, or their result if it can be had, and the future goes on from there;
/// * what must be done to its end is waited for: a [`shield`](crate::shield), a file operation that has begun (it owns the
///   buffer), also in the pool of threads, a scope with [spawned](crate::Scope::spawn) tasks. So a `timeout` around those
///   can take longer;
/// * a call of [`blocking`](crate::blocking()) that has begun is not waited for: the wait for it is over, and it goes on;
/// * a future that waits in nothing of this crate (a channel of another, [`std::future::pending`]), or for something
///   that was [started](crate::scope::Started) outside, is **dropped**, and [`Elapsed::into_inner`] returns `None`. The same
///   goes for what it does after `Cancelled`: clean-up that awaits foreign futures belongs in a
///   [`shield`](crate::shield). So does clean-up that only gives way ([`yield_now`](crate::task::yield_now)), again and
///   again: it is dropped after 128 times.
///
/// Waits of this crate that lie in a collection which is not polled any more (a `FuturesUnordered` beside a foreign
/// future that is awaited) are dropped with it after a second.
///
/// Of limits inside of each other that are up at the same time, the outermost wins: the others return as if their time
/// had not been up.
///
/// # Errors
///
/// If the time was up before the future was done.
///
/// # Panics
///
/// Outside of a runtime; if the future does.
///
/// # Cancellation
///
/// *Dropped early*: as the future. *Scope cancelled*: so is the future; what it returns then is returned.
///
/// # Examples
///
/// ```
/// use dapple::channel::mpsc;
/// use dapple::time::{Duration, timeout};
///
/// dapple::run(async {
///     let (_sender, mut receiver) = mpsc::bounded::<u8>(1);
///     let late = timeout(Duration::from_millis(1), receiver.recv()).await;
///     let received = late.unwrap_err().into_inner(); // what `recv` returned when it was cancelled
///     assert!(received.unwrap().is_err());
///
///     // In a loop: a message that came as the time was up is in the error.
///     let message = match timeout(Duration::from_millis(1), receiver.recv()).await {
///         Ok(received) => received.ok(),
///         Err(elapsed) => elapsed.into_inner().and_then(Result::ok),
///     };
///     assert_eq!(message, None);
///
///     let foreign = std::future::pending::<()>();
///     let late = timeout(Duration::from_millis(1), foreign).await;
///     assert_eq!(late.unwrap_err().into_inner(), None); // it was dropped
/// });
/// ```
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    let sleep = sleep(duration);
    let deadline = Deadline { at: sleep.deadline().nanos(), is_claimed: Cell::new(false) };
    Timeout { future: Some(future), sleep, deadline, is_up: false, region: Region::new() }
}

/// The future of [`timeout`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Timeout<F> {
    /// `None`: it was dropped.
    future: Option<F>,
    sleep: Sleep,
    deadline: Deadline,
    is_up: bool,
    region: Region,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed<F::Output>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the future is not moved, and dropped in its place; the rest need not be pinned.
        let Timeout { future, sleep, deadline, is_up, region } = unsafe { self.get_unchecked_mut() };
        // SAFETY: it is pinned as what it lies in is.
        let mut future = unsafe { Pin::new_unchecked(future) };
        loop {
            let polled = future.as_mut().as_pin_mut().expect("a timeout is polled until it is over");
            region.begin_pass();
            match region.poll(cx, Some(deadline), |cx| polled.poll(cx)) {
                Ok(Poll::Ready(value)) => {
                    region.end();
                    return Poll::Ready(if *is_up { Err(Elapsed { value: Some(value) }) } else { Ok(value) });
                }
                Ok(Poll::Pending) => {}
                Err(payload) => {
                    region.end();
                    resume_unwind(payload);
                }
            }
            if *is_up {
                match region.verdict(cx) {
                    RegionVerdict::Waits => {}
                    RegionVerdict::Again => continue,
                    RegionVerdict::Drop => {
                        let dropped = catch_unwind(AssertUnwindSafe(|| future.set(None)));
                        region.end();
                        dropped.unwrap_or_else(|payload| resume_unwind(payload));
                        return Poll::Ready(Err(Elapsed { value: None }));
                    }
                }
            } else if deadline.is_claimed.get() || is_time_up(sleep, cx) {
                *is_up = true;
                region.cancel();
                continue;
            }
            region.rest(cx);
            return Poll::Pending;
        }
    }
}

/// Whether the time is up, and no limit around this one is, too.
#[inline]
fn is_time_up(sleep: &mut Sleep, cx: &mut Context<'_>) -> bool {
    // If it is cancelled itself, so is the future: what that returns counts, not the time.
    Pin::new(sleep).poll(cx) == Poll::Ready(Ok(())) && !with_context(is_any_up_around)
}

#[cold]
fn is_any_up_around(here: &ThreadContext) -> bool {
    claim_outermost(here, Instant::now().nanos())
}

impl<F> fmt::Debug for Timeout<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeout").field("is_up", &self.is_up).finish_non_exhaustive()
    }
}

/// The time was up; with what the work returned after it was cancelled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Elapsed<T> {
    /// `None`: it was dropped.
    value: Option<T>,
}

impl<T> Elapsed<T> {
    /// What the work returned: its result, if it was done in spite of the cancel, or what it says of that. `None` if the
    /// work was dropped, since it waited in nothing that could be cancelled: see [`timeout`].
    pub fn into_inner(self) -> Option<T> {
        self.value
    }

    /// See [`into_inner`](Self::into_inner).
    pub fn get(&self) -> Option<&T> {
        self.value.as_ref()
    }
}

impl<T> fmt::Debug for Elapsed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Elapsed").finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Elapsed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was up")
    }
}

impl<T> Error for Elapsed<T> {}
