//! Shields a future from cancels, and makes a foreign future end on a cancel.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::Cancelled;
use crate::cancel::check::is_cancelled_in;
use crate::cancel::frame::CancelFrame;
use crate::cancel::item::{Item, Then};
use crate::cancel::wait::Wait;
use crate::context::with_context;

/// Runs a future that is not cancelled from outside. Use it for work that must be completed, such as undoing
/// half of a change, or closing a connection properly.
///
/// It is also not dropped where [`timeout`](crate::time::timeout()), [`race`](crate::race) or
/// [`JoinHandle::cancel`](crate::JoinHandle::cancel) drop futures that cannot see a cancel: so put clean-up
/// code that awaits such a future into a shield. Scopes inside of it can be cancelled as usual.
///
/// Scopes, timeouts, races and joiners wait for the shield, and so does a shutdown, until its time is up. A
/// server that drops a handler after a grace period (`cancel_grace` of dapple-http) drops the shield with it.
/// A wait for a peer in a shield needs a bound of its own: `shield(timeout(limit, write.write_all(goodbye)))`.
///
/// # Cancellation
///
/// *Dropped early*: as the future.
/// *Scope cancelled*: goes on.
///
/// # Examples
///
/// ```
/// use dapple::time::{Duration, sleep};
///
/// dapple::run(async {
///     let task = dapple::spawn(async {
///         assert!(sleep(Duration::MAX).await.is_err()); // cancelled
///         dapple::shield(sleep(Duration::from_millis(1))).await
///     });
///     dapple::task::yield_now().await;
///     task.cancel();
///     assert_eq!(task.await.unwrap(), Ok(()));
/// });
/// ```
pub fn shield<F: Future>(future: F) -> Shield<F> {
    Shield { future, outer: Item::default() }
}

/// Future of [`shield`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Shield<F> {
    future: F,
    /// Link by which a cancel from outside arrives, which the shield survives. LEFT-ALONE in `cancel::grace`
    outer: Item,
}

impl<F: Future> Future for Shield<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is not moved; the other field need not be pinned.
        let Shield { future, outer } = unsafe { self.get_unchecked_mut() };
        // SAFETY: structurally pinned.
        let future = unsafe { Pin::new_unchecked(future) };
        with_context(|context| {
            let polled = CancelFrame::shield().around(context, || future.poll(cx));
            match polled {
                Poll::Pending => {
                    outer.register_in(context, cx.waker(), Then::Stays);
                    if is_cancelled_in(context) {
                        context.note_stays();
                    }
                }
                Poll::Ready(_) => outer.unregister(),
            }
            polled
        })
    }
}

impl<F> fmt::Debug for Shield<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shield").finish_non_exhaustive()
    }
}

/// Runs a future that cannot see cancels, until it is cancelled: then drops it.
///
/// Waits of this crate do not need it. Use it for foreign futures that can be dropped without harm, in the
/// body or in a [started](crate::Scope::start) child of a scope cancelled by
/// [`Scope::cancel`](crate::Scope::cancel). [`timeout`](crate::time::timeout()), [`race`](crate::race) and
/// the cancel of a task ([`JoinHandle::cancel`](crate::JoinHandle::cancel), or of the scope in which it was
/// [spawned](crate::Scope::spawn)) drop such futures without it.
///
/// # Errors
///
/// If it was cancelled; the future has been dropped.
///
/// # Cancellation
///
/// *Dropped early*: as the future.
/// *Scope cancelled*: the future is dropped, and this returns [`Cancelled`]; or the future's output, if it is
/// ready.
///
/// # Examples
///
/// ```
/// dapple::run(async {
///     let for_ever = dapple::or_cancelled(std::future::pending::<()>());
///     let task = dapple::spawn(for_ever);
///     task.cancel();
///     assert_eq!(task.await.unwrap(), Err(dapple::Cancelled));
/// });
/// ```
pub fn or_cancelled<F: Future>(future: F) -> OrCancelled<F> {
    OrCancelled { future: Some(future), wait: Wait::default() }
}

/// Future of [`or_cancelled`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct OrCancelled<F> {
    future: Option<F>,
    wait: Wait,
}

impl<F: Future> Future for OrCancelled<F> {
    type Output = Result<F::Output, Cancelled>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: the future is not moved, and is dropped in place.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: structurally pinned.
        let mut future = unsafe { Pin::new_unchecked(&mut this.future) };
        if let Err(cancelled) = ready!(this.wait.begin(cx)) {
            future.set(None);
            return Poll::Ready(Err(cancelled));
        }
        let polled = future.as_mut().as_pin_mut().expect("it is polled until it is done").poll(cx);
        if let Poll::Ready(output) = polled {
            future.set(None);
            this.wait.end();
            return Poll::Ready(Ok(output));
        }
        if this.wait.is_cancelled() {
            future.set(None);
            this.wait.end();
            return Poll::Ready(Err(Cancelled));
        }
        this.wait.rest(cx, &"a future that is not dapple's");
        Poll::Pending
    }
}

impl<F> fmt::Debug for OrCancelled<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OrCancelled").finish_non_exhaustive()
    }
}
