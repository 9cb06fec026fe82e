//! Wake-ups shared by the waits of channels and locks. `task::wait` has the start and end of a wait,
//! `threads` the blocking wait of a thread.
//!
//! # Invariants
//!
//! * **NO-FOREIGN-CODE**: no waker is cloned, woken or dropped, and no user value is dropped, while a lock of
//!   this crate is held.

#[cfg(loom)]
pub(crate) use in_models::{Wait, wake};

#[cfg(not(loom))]
pub(crate) use {
    super::threads::{block_on, block_on_again},
    crate::cancel::wait::{Wait, got_at_once, wake},
};

pub(crate) use crate::task::guarded::GuardedWaker;

const BATCH: usize = 16;

/// Wakers to be woken after the lock is released. NO-FOREIGN-CODE
#[derive(Default)]
pub(crate) struct Wakers {
    wakers: [Option<GuardedWaker>; BATCH],
    len: usize,
}

impl Wakers {
    pub(crate) fn is_full(&self) -> bool {
        self.len == BATCH
    }

    /// Adds one waker. The caller has checked `is_full`.
    pub(crate) fn put(&mut self, waker: Option<GuardedWaker>) {
        if waker.is_some() {
            self.wakers[self.len] = waker;
            self.len += 1;
        }
    }

    /// Wakes and removes all wakers, in order.
    pub(crate) fn wake_all(&mut self) {
        let len = std::mem::take(&mut self.len);
        self.wakers[..len].iter_mut().filter_map(Option::take).for_each(wake);
    }
}

impl Drop for Wakers {
    fn drop(&mut self) {
        self.wake_all();
    }
}

/// Stand-ins for loom models, which have no tasks: no cancellation and no budget.
#[cfg(loom)]
mod in_models {
    use std::task::{Context, Poll};

    use super::GuardedWaker;

    #[derive(Default)]
    pub(crate) struct Wait;

    impl Wait {
        pub(crate) fn shielded() -> Wait {
            Wait
        }

        pub(crate) fn begun() -> Wait {
            Wait
        }

        pub(crate) fn begin(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
            Poll::Ready(Ok(()))
        }

        pub(crate) fn is_cancelled(&self) -> bool {
            false
        }

        pub(crate) fn is_lost(&self) -> bool {
            false
        }

        pub(crate) fn rest(&mut self, _cx: &mut Context<'_>, _what: &'static &'static str) {}

        pub(crate) fn end(&mut self) {}

        pub(crate) fn give_up(&mut self) {}
    }

    pub(crate) fn wake(waker: GuardedWaker) {
        waker.wake();
    }
}
