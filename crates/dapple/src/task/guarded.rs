//! A stored waker: the only form in which a wait, a timer or a table keeps a `std::task::Waker`.
//!
//! A waker may be foreign code: a combinator's, another executor's, a test's. Its four functions may panic, block, or
//! call back into the very thing that is being waited for. [`GuardedWaker`] is a `Waker` whose stored life is guarded;
//! `ci/wakers` fails on a bare one that is stored, and on a bare clone.
//!
//! # Invariants
//!
//! * **GUARDED-WAKER**: a panic in `wake` or in the destructor of a stored waker is caught and discarded. The thread
//!   that wakes or drops it is not its owner: it delivers a message, fires a timer or ends a scope, and other waiters
//!   come after. Nothing that was taken is lost by the panic, and no lock is poisoned by it.
//! * **CLONED-FIRST**: a stored waker is cloned once, by [`GuardedWaker::of`], in the poll of the future that it
//!   wakes. A panic in that clone goes on to the poller, whose waker it is. A stand-in that does nothing would turn
//!   the panic into a future that hangs. So a wait clones before it takes anything, and before it changes
//!   state that others see. A stored waker is never cloned again, unless it is a waker of this crate.
//!
//! That neither runs with a lock held is NO-FOREIGN-CODE in `waitlist::wait`. Wakers of this crate (of a task or a
//! child of a scope) run no foreign code when they are cloned or dropped, so both may happen under a lock.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

use super::cell::discard;
use super::waker::is_ours;

/// A waker that is stored, of the size of a `Waker`. GUARDED-WAKER
#[repr(transparent)]
pub(crate) struct GuardedWaker(ManuallyDrop<Waker>);

const _: () = assert!(size_of::<Option<GuardedWaker>>() == size_of::<Waker>());

impl GuardedWaker {
    /// A clone of the waker that the caller is polled with. It may panic, as that waker's clone may. CLONED-FIRST
    #[inline]
    pub(crate) fn of(waker: &Waker) -> GuardedWaker {
        GuardedWaker::from(waker.clone())
    }

    /// Whether both wake the same. It runs no foreign code: addresses are compared.
    #[inline]
    pub(crate) fn will_wake(&self, waker: &Waker) -> bool {
        self.0.will_wake(waker)
    }

    /// As `will_wake`, of two that are stored.
    pub(crate) fn wakes_same(&self, other: &GuardedWaker) -> bool {
        self.0.will_wake(&other.0)
    }

    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        is_ours(&self.0)
    }

    /// A clone of a waker of this crate, which runs no foreign code; `None` for others.
    #[inline]
    pub(crate) fn clone_ours(&self) -> Option<GuardedWaker> {
        self.is_ours().then(|| GuardedWaker::of(&self.0))
    }

    #[inline]
    pub(crate) fn wake(self) {
        let waker = self.into_inner();
        guarded(|| waker.wake());
    }

    pub(crate) fn wake_by_ref(&self) {
        guarded(|| self.0.wake_by_ref());
    }

    /// The waker itself, to look at.
    #[inline]
    pub(crate) fn as_waker(&self) -> &Waker {
        &self.0
    }

    #[inline]
    fn into_inner(self) -> Waker {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: `this` is not used again, and does not drop it.
        unsafe { ManuallyDrop::take(&mut this.0) }
    }
}

impl From<Waker> for GuardedWaker {
    #[inline]
    fn from(waker: Waker) -> GuardedWaker {
        GuardedWaker(ManuallyDrop::new(waker))
    }
}

impl Drop for GuardedWaker {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: it is not used again.
        let waker = unsafe { ManuallyDrop::take(&mut self.0) };
        match is_ours(&waker) {
            true => drop(waker),
            false => drop_foreign(waker),
        }
    }
}

#[cold]
fn drop_foreign(waker: Waker) {
    guarded(|| drop(waker));
}

/// Calls foreign code, and discards its panic: a waker's (GUARDED-WAKER), a hook's, or that of a subscriber of
/// `tracing`, which gets all its events through here. Returns whether it panicked. Call it with no lock held.
#[inline]
pub(crate) fn guarded(call: impl FnOnce()) -> bool {
    let called = catch_unwind(AssertUnwindSafe(call));
    let panicked = called.is_err();
    discard(called);
    panicked
}

impl std::fmt::Debug for GuardedWaker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GuardedWaker")
    }
}
