//! A stored waker, counted: the only form in which this crate keeps a `std::task::Waker`.
//!
//! A stream that is not HTTP any more is polled with whatever waker its new owner has, which may be foreign code. So it
//! is cloned in its own poll, before any lock is taken; the server clones the count alone; and a panic in its `wake` or in
//! its destructor is discarded, so that the other connections are told. `ci/wakers` fails on a bare one.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;

/// See the head of the file.
#[derive(Clone)]
pub(crate) struct CountedWaker(Arc<PanicSafeWaker>);

struct PanicSafeWaker(Option<Waker>);

impl CountedWaker {
    /// A clone of the waker that the caller is polled with. If that panics, so does the poll, and nothing has changed.
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

/// Calls a waker, and discards its panic, whatever the destructor of the payload does.
fn guarded(call: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(call))
        && let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        std::mem::forget(second);
    }
}
