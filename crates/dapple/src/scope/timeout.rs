//! Timeout: a limit on the time that a future may take.

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::region::{Region, RegionVerdict};
use crate::cancel::frame::{Deadline, claim_outermost};
use crate::context::{ThreadContext, with_context};
use crate::time::{Instant, Sleep, sleep};

/// Runs a future for at most `duration`. Then the future is cancelled and waited for, or dropped if it cannot
/// see the cancel.
///
/// The time counts from this call, not from the first poll.
///
/// ```text
/// timeout(d, future)  -- polls --- time is up: cancels --- future ends --> Err(Elapsed), with its output
/// ```
///
/// Nothing is lost: the error holds the future's output after the cancel. That can be a message that arrived
/// in the same moment, so a loop around `timeout(d, receiver.recv())` must look at [`Elapsed::into_inner`]. A
/// loop around a [`race`](crate::race) of `recv` and a [`sleep`](crate::time::sleep()) need not: there the
/// message stays in the channel.
///
/// When the time is up,
///
/// * waits of this crate return `Cancelled`, or their result if it is ready, and the future goes on from
///   there;
/// * operations that must be completed are waited for: a [`shield`](crate::shield), a file operation that has
///   begun (it owns the buffer), also in the thread pool, and a scope with [spawned](crate::Scope::spawn)
///   tasks. So a `timeout` around those can take longer;
/// * a call of [`blocking`](crate::blocking()) that has begun is not waited for: only the wait for it ends,
///   and the call goes on;
/// * a future that waits in no future of this crate (a channel of another crate, [`std::future::pending`]),
///   or waits for a child [started](crate::scope::Started) outside, is **dropped**, and [`Elapsed::into_inner`]
///   returns `None`. The same holds for the code that it runs after `Cancelled`: put clean-up code that
///   awaits foreign futures, or only calls [`yield_now`](crate::task::yield_now) again and again, into a
///   [`shield`](crate::shield). Code that only yields is dropped after 128 polls.
///
/// Waits of this crate in a collection that is not polled any more (a `FuturesUnordered` beside a foreign
/// future that is awaited) are dropped with it after a second.
///
/// If nested timeouts expire at the same time, the outermost wins: the others return as if their time were
/// not up.
///
/// # Errors
///
/// If the time was up before the future ended.
///
/// # Panics
///
/// Outside of a runtime. If the future panics.
///
/// # Cancellation
///
/// *Dropped early*: as the future.
/// *Scope cancelled*: the future is cancelled, and its output is returned.
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
///     let received = late.unwrap_err().into_inner(); // the result of the cancelled `recv`
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

/// Future of [`timeout`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Timeout<F> {
    /// None once it was dropped.
    future: Option<F>,
    sleep: Sleep,
    deadline: Deadline,
    is_up: bool,
    region: Region,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed<F::Output>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the future is not moved, and is dropped in place; the other fields need not be pinned.
        let Timeout { future, sleep, deadline, is_up, region } = unsafe { self.get_unchecked_mut() };
        // SAFETY: structurally pinned.
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

/// Whether the time is up, and no enclosing timeout has expired as well.
#[inline]
fn is_time_up(sleep: &mut Sleep, cx: &mut Context<'_>) -> bool {
    // If the sleep is cancelled, so is the future: its output counts, not the time.
    Pin::new(sleep).poll(cx) == Poll::Ready(Ok(())) && !with_context(is_any_up_around)
}

#[cold]
fn is_any_up_around(context: &ThreadContext) -> bool {
    claim_outermost(context, Instant::now().nanos())
}

impl<F> fmt::Debug for Timeout<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeout").field("is_up", &self.is_up).finish_non_exhaustive()
    }
}

/// Error of [`timeout`]: the time was up. Holds the future's output after the cancel.
///
/// Look at the output with [`into_inner`](Self::into_inner) if it can be worth something: a message that came as the time
/// was up is in it. Where it is not, `?` converts the error into an [`io::Error`] of the kind
/// [`TimedOut`](io::ErrorKind::TimedOut), which keeps the `Elapsed` inside. Outputs that borrow, or that are not `Send` and
/// `Sync`, do not convert: use `map_err`.
///
/// # Examples
///
/// ```
/// use dapple::time::{Duration, Elapsed, sleep, timeout};
/// use std::io;
///
/// async fn ask() -> io::Result<u32> {
///     sleep(Duration::from_secs(3600)).await?;
///     Ok(1)
/// }
///
/// async fn ask_in_time() -> io::Result<u32> {
///     timeout(Duration::from_millis(1), ask()).await? // the first error is that of the time, the second that of `ask`
/// }
///
/// dapple::run(async {
///     let error = ask_in_time().await.unwrap_err();
///     assert_eq!(error.kind(), io::ErrorKind::TimedOut);
///     let elapsed: Elapsed<io::Result<u32>> = error.downcast().unwrap();
///     assert!(dapple::is_cancelled(&elapsed.into_inner().unwrap().unwrap_err()));
/// });
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Elapsed<T> {
    /// None if the future was dropped.
    value: Option<T>,
}

impl<T> Elapsed<T> {
    /// Returns the future's output: its result, if it was ready in spite of the cancel, or its own report of
    /// the cancel. `None` if the future was dropped because it could not see the cancel: see [`timeout`].
    pub fn into_inner(self) -> Option<T> {
        self.value
    }

    /// As [`into_inner`](Self::into_inner), by reference.
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

/// An error of the kind `TimedOut`, with the `Elapsed` and so the future's output inside.
impl<T: Send + Sync + 'static> From<Elapsed<T>> for io::Error {
    fn from(elapsed: Elapsed<T>) -> io::Error {
        io::Error::new(io::ErrorKind::TimedOut, elapsed)
    }
}
