//! Wake-ups shared by the waits of channels and locks. `task::wait` has the start and end of a wait,
//! `threads` the blocking wait of a thread.
//!
//! # Invariants
//!
//! * **NO-FOREIGN-CODE**: no waker is cloned, woken or dropped, and no user value is dropped, while a lock of
//!   this crate is held.

use std::mem::ManuallyDrop;

pub(crate) use {
    super::threads::{block_on, block_on_again},
    crate::cancel::wait::{Wait, got_at_once, wake},
};

pub(crate) use crate::task::guarded::GuardedWaker;

const BATCH: usize = 16;

/// Wakers to be woken after the lock is released. NO-FOREIGN-CODE
pub(crate) struct Wakers {
    /// `None` from `len` on. So there is nothing to drop once all have been woken, and the array is never looked through
    /// for it.
    wakers: ManuallyDrop<[Option<GuardedWaker>; BATCH]>,
    len: usize,
}

impl Default for Wakers {
    #[inline]
    fn default() -> Wakers {
        Wakers { wakers: ManuallyDrop::new([const { None }; BATCH]), len: 0 }
    }
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

    /// As `put`, unless it wakes the same task as one that is here. Wakers of other executors are always put: to drop one
    /// is to run its code, and the caller may hold a lock. NO-FOREIGN-CODE
    pub(crate) fn put_once(&mut self, waker: Option<GuardedWaker>) {
        let Some(waker) = waker else { return };
        let is_here = |here: &GuardedWaker| here.wakes_same(&waker);
        if !(waker.is_ours() && self.wakers[..self.len].iter().flatten().any(is_here)) {
            self.put(Some(waker));
        }
    }

    /// Wakes and removes all wakers, in order.
    pub(crate) fn wake_all(&mut self) {
        let len = std::mem::take(&mut self.len);
        self.wakers[..len].iter_mut().filter_map(Option::take).for_each(wake);
    }
}

impl Drop for Wakers {
    #[inline]
    fn drop(&mut self) {
        self.wake_all();
    }
}
