//! Wake-ups shared by the waits of channels and locks. `task::wait` has the start and end of a wait,
//! `threads` the blocking wait of a thread.
//!
//! # Invariants
//!
//! * **NO-FOREIGN-CODE**: no waker is cloned, woken or dropped, and no user value is dropped, while a lock of
//!   this crate is held.

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
