//! A stored waker, reference-counted: the only form in which this crate keeps a `std::task::Waker`.
//!
//! An upgraded stream is polled with the waker of its new owner, which may be foreign code. So the waker is cloned in
//! the owner's own poll, before any lock is taken. The server clones only the reference count. A panic in `wake` or
//! in the waker's destructor is discarded, so that the other connections are still woken. `ci/wakers` fails on a bare
//! waker.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

/// A reference-counted waker whose panics are discarded; see the head of the file.
#[derive(Clone)]
pub(crate) struct CountedWaker(Arc<PanicSafeWaker>);

struct PanicSafeWaker(Option<Waker>);

impl CountedWaker {
    /// Clones the waker that the caller is polled with. If the clone panics, the poll panics too, and nothing has
    /// changed.
    pub(crate) fn of(waker: &Waker) -> CountedWaker {
        CountedWaker(Arc::new(PanicSafeWaker(Some(waker.clone()))))
    }

    pub(crate) fn will_wake(&self, waker: &Waker) -> bool {
        self.0.0.as_ref().is_some_and(|own| own.will_wake(waker))
    }

    pub(crate) fn wake(&self) {
        guarded(|| self.0.0.iter().for_each(Waker::wake_by_ref));
    }
}

impl Drop for PanicSafeWaker {
    fn drop(&mut self) {
        guarded(|| drop(self.0.take()));
    }
}

/// Calls a waker and discards its panic, even if the destructor of the panic's payload panics as well.
fn guarded(call: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(call))
        && let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        std::mem::forget(second);
    }
}
