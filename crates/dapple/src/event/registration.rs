//! Handle of a registered callback.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::callback_tasks::Withdrawn;
use crate::cancel::{JoinError, JoinHandle};

/// Handle of a registered callback. Dropping it withdraws the callback.
///
/// The following holds for [`withdraw`](Registration::withdraw) as well as for dropping.
///
/// * Dropped **in the callback's color**, or in the callback itself: the callback is not called again. A
///   current call, which is then the one that drops the handle, runs to its end.
/// * Dropped **elsewhere**: a call that is running, or begins at that moment, runs to its end; no other
///   follows. Await [`withdraw`](Registration::withdraw) to know that it has ended.
/// * The closure is dropped in its color, at its next turn there.
///
/// A callback that [panics](super#panics), or returns [`ControlFlow::Break`](std::ops::ControlFlow::Break),
/// withdraws itself; so does a one-shot callback that has run.
///
/// A registration is not part of the scope that it is made in: cancelling the scope does not withdraw it. All
/// callbacks are withdrawn when their runtime ends.
///
/// # Examples
///
/// ```
/// use dapple::event::{self, Callback};
/// use dapple::time::Duration;
///
/// dapple::run(async {
///     let never = Callback::new(|| unreachable!("withdrawn before"));
///     let registration = event::after(Duration::from_secs(3600), never);
///     assert!(!registration.is_over());
///     drop(registration); // withdraws the callback
/// });
/// ```
#[must_use = "dropping a registration withdraws the callback; call `.detach()` to keep it"]
pub struct Registration {
    task: Option<JoinHandle<()>>,
    /// Flag to set when the program withdraws the callback, if it has a drop closure.
    withdrawn: Option<Withdrawn>,
}

impl Registration {
    pub(super) fn new(task: JoinHandle<()>, withdrawn: Option<Withdrawn>) -> Registration {
        Registration { task: Some(task), withdrawn }
    }

    /// Withdraws the callback, at once. Await the returned future to wait until the callback is not running
    /// any more.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    /// use dapple::Color;
    /// use dapple::event::{self, Callback};
    /// use dapple::time::{Duration, sleep};
    /// static CALLS: AtomicU32 = AtomicU32::new(0);
    ///
    /// dapple::run(async {
    ///     let count = || {
    ///         CALLS.fetch_add(1, Relaxed);
    ///     };
    ///     let count = Callback::new(count).color(&Color::new());
    ///     let counting = event::every(Duration::from_millis(1), count);
    ///     sleep(Duration::from_millis(10)).await.unwrap();
    ///     counting.withdraw().await.unwrap();
    ///     let calls = CALLS.load(Relaxed); // it does not change any more
    ///     sleep(Duration::from_millis(3)).await.unwrap();
    ///     assert_eq!(CALLS.load(Relaxed), calls);
    /// });
    /// ```
    pub fn withdraw(mut self) -> Withdraw {
        Withdraw { task: self.end() }
    }

    /// Leaves the callback registered until the runtime ends, or the callback withdraws itself.
    pub fn detach(mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }

    /// Whether the callback will not be called again: it is a one-shot callback that has run, it returned
    /// `Break`, it panicked, or the runtime has ended.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.task.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn end(&mut self) -> Option<JoinHandle<()>> {
        let task = self.task.take()?;
        if let Some(withdrawn) = &self.withdrawn {
            withdrawn.set();
        }
        task.abort();
        Some(task)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        drop(self.end());
    }
}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}

/// Future of [`Registration::withdraw`]: waits until the callback is not running any more.
///
/// # Errors
///
/// If the callback panicked, now or before ([`is_panic`](JoinError::is_panic)). If this wait was cancelled
/// ([`is_cancelled`](JoinError::is_cancelled)): the callback is withdrawn nevertheless, and `&mut` this can
/// be awaited again.
///
/// # Cancellation
///
/// *Dropped early*: **clean**; the callback is withdrawn nevertheless.
/// *Scope cancelled*: returns an error with [`is_cancelled`](JoinError::is_cancelled), and the callback may
/// still be running.
#[must_use = "the callback is withdrawn, but may be running just now: await this to know that it is not"]
pub struct Withdraw {
    task: Option<JoinHandle<()>>,
}

impl Future for Withdraw {
    type Output = Result<(), JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), JoinError>> {
        let Some(task) = &mut self.task else { return Poll::Ready(Ok(())) };
        match Pin::new(task).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(error)) if error.is_cancelled() => Poll::Ready(Err(error)),
            Poll::Ready(ended) => {
                self.task = None;
                match ended {
                    Err(error) if error.is_panic() => Poll::Ready(Err(error)),
                    _ => Poll::Ready(Ok(())),
                }
            }
        }
    }
}

impl fmt::Debug for Withdraw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Withdraw").finish_non_exhaustive()
    }
}
