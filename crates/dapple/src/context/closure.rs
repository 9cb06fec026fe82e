//! Closures of states that this thread is in. Code in such a closure must not wait: waits could form a cycle.
//!
//! When the closure has returned, its states are left, one after the other. That wakes waiters, and a foreign waker may poll
//! its future on the spot. That future may wait, since it returns `Pending` where it finds a state that is still to be left.
//! But it must not block the thread.
//!
//! # Invariants
//!
//! * **CLOSURES-ON-STACK**: the closures from the thread's innermost one outwards are those that the thread is in. So all
//!   of them exist while the list is read.

use std::cell::Cell;
use std::fmt;

use super::with_context;

/// A closure that a thread is in.
pub(crate) struct Closure<'a> {
    /// The owner of the closure: completes "inside of the closure of".
    of: &'a dyn fmt::Display,
    outer: *const Closure<'static>,
    /// It has returned, and its states are being left.
    has_returned: Cell<bool>,
}

impl Closure<'_> {
    /// The states are left from now on.
    #[inline]
    pub(crate) fn note_returned(&self) {
        self.has_returned.set(true);
    }
}

/// Calls `f`, in which nothing may wait. `of` completes "inside of the closure of".
#[inline]
pub(crate) fn enter<R>(of: &dyn fmt::Display, f: impl FnOnce() -> R) -> R {
    enter_and_leave(of, |_| f())
}

/// As [`enter`], where `f` also leaves the states, after [`Closure::note_returned`].
#[inline]
pub(crate) fn enter_and_leave<R>(of: &dyn fmt::Display, f: impl FnOnce(&Closure<'_>) -> R) -> R {
    struct LeaveClosure<'a>(Closure<'a>);
    impl Drop for LeaveClosure<'_> {
        #[inline]
        fn drop(&mut self) {
            with_context(|context| context.set_closure(self.0.outer));
        }
    }
    let outer = with_context(|context| context.closure());
    let leave = LeaveClosure(Closure { of, outer, has_returned: Cell::new(false) });
    let innermost: *const Closure<'_> = &leave.0;
    with_context(|context| context.set_closure(innermost.cast())); // CLOSURES-ON-STACK
    f(&leave.0)
}

/// Panics if this thread is in a closure of a state that has not returned. `what` names the operation that would wait.
#[inline]
#[track_caller]
pub(crate) fn assert_may_wait(what: &dyn fmt::Display) {
    let innermost = with_context(|context| context.closure());
    if !innermost.is_null() {
        refuse_unless_returned(innermost, what);
    }
}

#[cold]
#[track_caller]
fn refuse_unless_returned(innermost: *const Closure<'static>, what: &dyn fmt::Display) {
    let mut next = innermost;
    // SAFETY: it is on this thread's stack. CLOSURES-ON-STACK
    while let Some(closure) = unsafe { next.as_ref() } {
        if !closure.has_returned.get() {
            refuse(closure, what);
        }
        next = closure.outer;
    }
}

/// Panics if this thread is in a closure of a state, or leaves its states. `what` names the operation that would block.
#[inline]
#[track_caller]
pub(crate) fn assert_outside(what: &dyn fmt::Display) {
    let innermost = with_context(|context| context.closure());
    if !innermost.is_null() {
        // SAFETY: it is on this thread's stack. CLOSURES-ON-STACK
        refuse(unsafe { &*innermost }, what);
    }
}

#[cold]
#[track_caller]
fn refuse(closure: &Closure<'_>, what: &dyn fmt::Display) -> ! {
    panic!(
        "{what}, inside of the closure of {}: a wait there can deadlock. Wait before or after the \
         closure. To use several states at once, name all of them in dapple::together, or keep them in TVars of one \
         transaction",
        closure.of
    );
}
