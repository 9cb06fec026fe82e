//! A task's drop closure: what is called if the task comes to its end before it has begun.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future with a drop closure. The future goes first, so what it holds is free when the closure is
/// called; and that is in the turn of the task's color, as all of its drops are.
pub(crate) struct OrElse<F, G: FnOnce()> {
    future: F,
    closure: CallOnDrop<G>,
}

/// Calls a closure when it is dropped, unless it was disarmed.
pub(crate) struct CallOnDrop<G: FnOnce()>(Option<G>);

impl<G: FnOnce()> CallOnDrop<G> {
    pub(crate) fn new(closure: G) -> CallOnDrop<G> {
        CallOnDrop(Some(closure))
    }

    pub(crate) fn disarm(&mut self) {
        self.0 = None;
    }
}

impl<F, G: FnOnce()> OrElse<F, G> {
    pub(crate) fn new(future: F, closure: G) -> OrElse<F, G> {
        OrElse { future, closure: CallOnDrop::new(closure) }
    }
}

impl<F: Future, G: FnOnce()> Future for OrElse<F, G> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: the future is not moved: it stays in its place until it is dropped there. The closure is not pinned
        let this = unsafe { self.get_unchecked_mut() };
        this.closure.disarm(); // it has begun
        // SAFETY: as above.
        unsafe { Pin::new_unchecked(&mut this.future) }.poll(context)
    }
}

impl<G: FnOnce()> Drop for CallOnDrop<G> {
    fn drop(&mut self) {
        let Some(closure) = self.0.take() else { return };
        let called = catch_unwind(AssertUnwindSafe(closure));
        // If the future's destructor has panicked, that is the panic that counts.
        if let Err(payload) = called
            && !std::thread::panicking()
        {
            resume_unwind(payload);
        }
    }
}
