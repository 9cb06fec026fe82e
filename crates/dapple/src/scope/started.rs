//! The wait for what was started in a scope.

use std::fmt;
use std::marker::PhantomData;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

use super::children::{ChildHeader, Children, StartOutcome};

/// What was started in a scope; await it, inside of the scope, for its value. Or drop it: the scope waits
/// all the same.
///
/// # Panics
///
/// If it is awaited outside of its scope. If what was started has panicked: what waits for it unwinds, too,
/// and then the scope does, with the first panic.
///
/// # Cancellation
///
/// *Dropped early*: **clean**; what was started goes on. *Scope cancelled*: what was started is cancelled,
/// and its value is what it returns then. Awaited in a [`timeout`](crate::time::timeout()) whose time is up, or in a loser
/// of a [`race`](crate::race), the wait is dropped, and what was started goes on. A value that is there by then is not
/// lost: a `timeout` returns it, also by a foreign waker that is passed on within a second; a loser leaves it in the
/// `Started`, which can be awaited again if the loser had a reference to it.
pub struct Started<'scope, T> {
    state: StartedState<'scope, T>,
}

enum StartedState<'scope, T> {
    Done(Option<T>),
    Waits { children: &'scope Children, child: NonNull<ChildHeader>, of: PhantomData<T> },
    Panicked,
}

// SAFETY: the child is touched inside of its scope's poll alone, which `children` checks, but for giving up
// the reference, which is atomic; its output is of type `T`, and goes where this goes.
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

    /// Whether it was done at once, when it was started, without having had to wait.
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
            StartedState::Done(value) => Some(value.take().expect("what was started is awaited once")),
            StartedState::Panicked => None,
            StartedState::Waits { children, child, .. } => {
                // SAFETY: it is a child of this scope, of this output, and we have a reference.
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
            // Quietly: the panic was reported where it happened, and goes on when all has ended.
            None => std::panic::resume_unwind(Box::new(StartedPanicked)),
        }
    }
}

/// What unwinds who waits for something that panicked.
pub(super) struct StartedPanicked;

impl<T> Drop for Started<'_, T> {
    fn drop(&mut self) {
        if let StartedState::Waits { children, child, .. } = self.state {
            // SAFETY: the reference is ours, and we give it up.
            unsafe { children.disown(child) };
        }
    }
}

impl<T> fmt::Debug for Started<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Started").field("was_ready", &self.was_ready()).finish_non_exhaustive()
    }
}
