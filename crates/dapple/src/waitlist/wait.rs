//! Wake-ups shared by the waits of channels and locks. `cancel::wait` has the start and end of a wait,
//! `threads` the blocking wait of a thread.
//!
//! # Invariants
//!
//! * **NO-FOREIGN-CODE**: no waker is cloned, woken or dropped, and no user value is dropped, while a lock of
//!   this crate is held.
//! * **FILLED-TO-LEN**: of the array in [`Wakers`] the first `len` are initialised, and the rest is not looked at. So to
//!   make one costs nothing.

use std::mem::MaybeUninit;

pub(crate) use {
    super::threads::{block_on, block_on_again},
    crate::cancel::wait::{Wait, got_at_once, wake},
};

pub(crate) use crate::task::guarded::GuardedWaker;

const BATCH: usize = 16;

/// Wakers to be woken after the lock is released. NO-FOREIGN-CODE
pub(crate) struct Wakers {
    /// Initialised up to `len`. FILLED-TO-LEN
    wakers: [MaybeUninit<GuardedWaker>; BATCH],
    len: usize,
}

impl Default for Wakers {
    #[inline]
    fn default() -> Wakers {
        Wakers { wakers: [const { MaybeUninit::uninit() }; BATCH], len: 0 }
    }
}

impl Wakers {
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        self.len == BATCH
    }

    /// Adds one waker. The caller has checked `is_full`.
    #[inline]
    pub(crate) fn put(&mut self, waker: Option<GuardedWaker>) {
        if let Some(waker) = waker {
            self.wakers[self.len].write(waker);
            self.len += 1;
        }
    }

    /// As `put`, unless it wakes the same task as one that is here. Wakers of other executors are always put: to drop one
    /// is to run its code, and the caller may hold a lock. NO-FOREIGN-CODE
    pub(crate) fn put_once(&mut self, waker: Option<GuardedWaker>) {
        let Some(waker) = waker else { return };
        let is_here = |here: &MaybeUninit<GuardedWaker>| {
            // SAFETY: it is one of the first `len`. FILLED-TO-LEN
            unsafe { here.assume_init_ref() }.wakes_same(&waker)
        };
        if !(waker.is_ours() && self.wakers[..self.len].iter().any(is_here)) {
            self.put(Some(waker));
        }
    }

    /// Wakes and removes all wakers, in order.
    #[inline]
    pub(crate) fn wake_all(&mut self) {
        let len = std::mem::take(&mut self.len);
        for waker in &self.wakers[..len] {
            // SAFETY: it was one of the first `len`, which is 0 now, so that it is taken once. FILLED-TO-LEN
            wake(unsafe { waker.assume_init_read() });
        }
    }
}

impl Drop for Wakers {
    #[inline]
    fn drop(&mut self) {
        self.wake_all();
    }
}
