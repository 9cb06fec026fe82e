//! A limit on how long something may take.

use std::error::Error;
use std::fmt;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use super::region::Region;
use crate::time::{Sleep, sleep};

/// Runs a future for no longer than that: then it is cancelled, exactly, and waited for.
///
/// Nothing is lost: what the future returns after it was cancelled is in the error. A future that does
/// not know of cancelling goes on; wrap it in [`or_cancelled`](crate::or_cancelled).
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
///     assert!(late.unwrap_err().into_inner().is_err()); // what `recv` returned when it was cancelled
/// });
/// ```
pub fn timeout<F: Future>(duration: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(duration), is_up: false, region: Region::new() }
}

/// The future of [`timeout`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Timeout<F> {
    future: F,
    sleep: Sleep,
    is_up: bool,
    region: Region,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed<F::Output>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the future is not moved; the rest need not be pinned.
        let Timeout { future, sleep, is_up, region } = unsafe { self.get_unchecked_mut() };
        loop {
            // SAFETY: it is pinned as what it lies in is.
            let future = unsafe { Pin::new_unchecked(&mut *future) };
            match region.poll(cx, |cx| future.poll(cx)) {
                Ok(Poll::Ready(value)) => {
                    region.end();
                    return Poll::Ready(if *is_up { Err(Elapsed { value }) } else { Ok(value) });
                }
                Ok(Poll::Pending) => {}
                Err(payload) => {
                    region.end();
                    resume_unwind(payload);
                }
            }
            // If it is cancelled itself, so is the future: what that returns counts, not the time.
            if !*is_up && Pin::new(&mut *sleep).poll(cx) == Poll::Ready(Ok(())) {
                *is_up = true;
                region.cancel();
                continue;
            }
            region.rest(cx);
            return Poll::Pending;
        }
    }
}

impl<F> fmt::Debug for Timeout<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeout").field("is_up", &self.is_up).finish_non_exhaustive()
    }
}

/// The time was up; with what the work returned after it was cancelled.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Elapsed<T> {
    value: T,
}

impl<T> Elapsed<T> {
    /// What the work returned: its result, if it was done in spite of the cancel, or what it says of that.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// See [`into_inner`](Self::into_inner).
    pub fn get(&self) -> &T {
        &self.value
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
