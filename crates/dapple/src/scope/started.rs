//! Wait for a child started in a scope.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

use super::children::{ChildHeader, Children, StartOutcome};

/// Handle of a child started in a scope. Await it inside of the scope for the child's output, or drop it: the
/// scope waits for the child in either case.
///
/// # Panics
///
/// If it is awaited outside of its scope. If the child has panicked: the waiter unwinds too, and then the
/// scope, with the first panic.
///
/// # Cancellation
///
/// *Dropped early*: **clean**; the child goes on.
/// *Scope cancelled*: the child is cancelled, and this returns the child's output then.
///
/// If the wait is inside of a [`timeout`](crate::time::timeout()) whose time is up, or of a loser of a
/// [`race`](crate::race), the wait is dropped and the child goes on. An output that is ready by then is not
/// lost: a `timeout` returns it, even if a foreign waker delivers the wake-up up to a second late. A loser of
/// a race leaves it in the `Started`, which can be awaited again if the loser only borrowed it.
///
/// # Examples
///
/// ```
/// dapple::run(async {
///     let sum = dapple::finish(async |scope| {
///         let one = scope.start(async { 1 });
///         let two = scope.start(async {
///             dapple::task::yield_now().await;
///             2
///         });
///         assert!(one.was_ready() && !two.was_ready());
///         one.await + two.await
///     });
///     assert_eq!(sum.await, 3);
/// });
/// ```
pub struct Started<'scope, T> {
    state: StartedState<'scope, T>,
}

enum StartedState<'scope, T> {
    Done(Option<T>),
    Waits { children: &'scope Children, child: NonNull<ChildHeader>, of: PhantomData<T> },
    Panicked,
}

// SAFETY: the child is touched only inside of its scope's poll, which `children` checks. The exception is
// giving up the reference, which is atomic. The output is of type `T`, and moves with this handle.
unsafe impl<T: Send> Send for Started<'_, T> {}
// SAFETY: a shared reference gives access to nothing.
unsafe impl<T: Send> Sync for Started<'_, T> {}

impl<T> Unpin for Started<'_, T> {}

impl<'scope, T> Started<'scope, T> {
    pub(super) fn new(children: &'scope Children, begun: StartOutcome<T>) -> Started<'scope, T> {
        let state = match begun {
            StartOutcome::Done(value) => StartedState::Done(Some(value)),
            StartOutcome::Waits(child) => StartedState::Waits { children, child, of: PhantomData },
            StartOutcome::Panicked => StartedState::Panicked,
        };
        Started { state }
    }

    /// Whether the child ended in its first poll, when it was started.
    #[must_use]
    pub fn was_ready(&self) -> bool {
        matches!(self.state, StartedState::Done(_))
    }
}

impl<T> Future for Started<'_, T> {
    type Output = T;

    #[track_caller]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let value = match &mut self.state {
            StartedState::Done(value) => Some(value.take().expect("Started: polled again after it was done")),
            StartedState::Panicked => None,
            StartedState::Waits { children, child, .. } => {
                // SAFETY: it is a child of this scope, with this output, and this handle has a reference.
                match unsafe { children.poll_output(*child, cx.waker()) } {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(value) => {
                        self.state = StartedState::Done(None);
                        value
                    }
                }
            }
        };
        match value {
            Some(value) => Poll::Ready(value),
            // Without calling the panic hook, which has reported the panic; it goes on when all children have
            // ended.
            None => std::panic::resume_unwind(Box::new(StartedPanicked)),
        }
    }
}

/// Panic payload for waiters of a child that panicked.
pub(super) struct StartedPanicked;

impl<T> Drop for Started<'_, T> {
    fn drop(&mut self) {
        if let StartedState::Waits { children, child, .. } = self.state {
            // SAFETY: the reference is this handle's, which gives it up.
            unsafe { children.disown(child) };
        }
    }
}

impl<T> fmt::Debug for Started<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").field("was_ready", &self.was_ready()).finish_non_exhaustive()
    }
}
