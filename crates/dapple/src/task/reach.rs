//! How far a cancel reaches: the counted part of a scope, and the chain of scopes around what is polled.
//!
//! Whoever polls inside of a scope puts a [`Link`] into the chain, for as long as that takes. A wait that
//! is polled looks up the chain: it is cancelled if any of the scopes around it is, up to the first
//! [`shield`](crate::shield), or if its task is. So a cancel is seen at once, wherever it happens.
//!
//! Being seen is not enough for those who wait: they must be polled. A cancel wakes whoever polls the
//! scope, and that polls all that was started in it. A wait that is polled with another waker than that (a
//! combinator's) links it: see `cancel`.
//!
//! # Invariants
//!
//! * **ON-THE-STACK**: the links of the chain, from the thread's innermost on outwards, are those of polls
//!   that this thread is in. So all of them, and their reaches, are there while the chain is walked.
//! * **STORE-OR-SEE**: who polls a scope leaves its waker there and then looks at the flag once more. Who
//!   cancels sets the flag and then takes the waker. To leave it and to take it needs the waker's lock: so
//!   who comes to it later sees what the other did before, and no cancel is slept through.

use std::cell::Cell;
use std::ptr::null;
use std::sync::Arc;
use std::task::Waker;

use super::here::Here;
use super::strand::Strand;
#[cfg(not(loom))]
use super::wait::wake;
use crate::lane::inbox::Inbox;
use crate::prim::{AtomicBool, AtomicUsize, Ordering, SpinLock};

/// What a scope shares with who can reach it from elsewhere: its cancellers, the wakers of what was
/// started in it, and what was spawned in it.
pub(crate) struct Reach {
    cancelled: AtomicBool,
    /// Wakes who polls the scope. Whoever has news takes it.
    waker: SpinLock<Option<Waker>>,
    /// What was started and is to be polled.
    pub(crate) inbox: Inbox<Strand>,
    /// How many tasks were spawned in it that have not ended.
    pub(crate) spawned: AtomicUsize,
}

impl Reach {
    /// A new one; who polls the scope has the inbox's turn.
    pub(crate) fn new() -> Arc<Reach> {
        Arc::new(Reach {
            cancelled: AtomicBool::new(false),
            waker: SpinLock::default(),
            inbox: Inbox::new_owned(),
            spawned: AtomicUsize::new(0),
        })
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Cancels all that is inside, and wakes it. `false`: it was cancelled already.
    pub(crate) fn cancel(self: &Arc<Reach>) -> bool {
        if self.is_cancelled() || self.cancelled.swap(true, Ordering::SeqCst) {
            return false;
        }
        #[cfg(not(loom))]
        super::cancel::wake_linked(Arc::as_ptr(self).addr());
        self.nudge(); // STORE-OR-SEE
        true
    }

    /// Wakes who polls the scope.
    pub(crate) fn nudge(&self) {
        let waker = self.waker.lock().take();
        if let Some(waker) = waker {
            wake(waker);
        }
    }

    /// Who polls the scope is about to rest: it is to be woken by this. It must look at the flag after
    /// this. STORE-OR-SEE
    pub(crate) fn leave_waker(&self, waker: &Waker) {
        if self.waker.lock().as_ref().is_some_and(|old| old.will_wake(waker)) {
            return;
        }
        let new = waker.clone(); // foreign code: not under the lock
        let old = self.waker.lock().replace(new);
        drop(old);
    }

    /// The scope has ended. Who is still linked to it (a wait that was polled in it, and lives on) is to be
    /// polled again, to be linked to what is around it then.
    pub(crate) fn end(self: &Arc<Reach>) {
        #[cfg(not(loom))]
        super::cancel::wake_linked(Arc::as_ptr(self).addr());
    }

    /// A task that was spawned in the scope has ended.
    pub(crate) fn task_ended(&self) {
        if self.spawned.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.nudge();
        }
    }
}

/// Who uses one that is gone waits for its lock for ever, which loom notices.
#[cfg(loom)]
impl Drop for Reach {
    fn drop(&mut self) {
        std::mem::forget(self.waker.lock());
    }
}

/// In place of `wait::wake`: no waker of a model is foreign code.
#[cfg(loom)]
fn wake(waker: Waker) {
    waker.wake();
}

/// A scope, or a shield, around what is being polled.
pub(crate) struct Link {
    /// Null for a shield.
    reach: *const Reach,
    outer: Cell<*const Link>,
}

impl Link {
    pub(crate) const fn shield() -> Link {
        Link { reach: null(), outer: Cell::new(null()) }
    }

    /// Makes it the link of a scope.
    pub(crate) fn of(reach: *const Reach) -> Link {
        Link { reach, outer: Cell::new(null()) }
    }

    /// Puts it into the chain while `f` is called. ON-THE-STACK
    #[inline]
    pub(crate) fn around<R>(&self, here: &Here, f: impl FnOnce() -> R) -> R {
        struct Out<'a>(&'a Link, &'a Here);
        impl Drop for Out<'_> {
            fn drop(&mut self) {
                self.1.link.set(self.0.outer.get());
            }
        }
        self.outer.set(here.link.replace(self));
        let _out = Out(self, here);
        f()
    }

    /// The scope; `None` for a shield.
    fn reach(&self) -> Option<&Reach> {
        // SAFETY: it is the link of a poll that this thread is in. ON-THE-STACK
        unsafe { self.reach.as_ref() }
    }
}

/// The scopes around what is polled here, from the inside out, up to the first shield, by pointers into
/// their `Arc`s; and whether that is all, so that a cancel of the task reaches it, too.
pub(super) fn around(here: &Here, mut each: impl FnMut(*const Reach)) -> bool {
    let mut next = here.link.get();
    // SAFETY: ON-THE-STACK.
    while let Some(link) = unsafe { next.as_ref() } {
        if link.reach.is_null() {
            return false;
        }
        each(link.reach);
        next = link.outer.get();
    }
    true
}

/// Whether what is polled here is cancelled: by a scope around it, or as a task.
#[cfg(not(loom))]
#[inline(never)]
pub(super) fn is_cancelled(here: &Here) -> bool {
    let mut next = here.link.get();
    // SAFETY: ON-THE-STACK.
    while let Some(link) = unsafe { next.as_ref() } {
        match link.reach() {
            None => return false,
            Some(reach) if reach.is_cancelled() => return true,
            Some(_) => next = link.outer.get(),
        }
    }
    super::cancel::is_task_cancelled(here)
}
