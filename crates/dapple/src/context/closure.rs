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

use std::fmt;

use super::with_context;

/// A closure that a thread is in.
pub(crate) struct Closure<'a> {
    /// The owner of the closure: completes "inside of the closure of".
    of: &'a dyn fmt::Display,
    /// With `RETURNED`, if it is set there.
    outer: *const Closure<'static>,
}

/// In a pointer to a closure: it has returned, and its states are being left.
const RETURNED: usize = 1;

/// Calls `f`, in which nothing may wait. `of` completes "inside of the closure of".
#[inline]
pub(crate) fn enter<R>(of: &dyn fmt::Display, f: impl FnOnce() -> R) -> R {
    struct LeaveClosure<'a>(Closure<'a>);
    impl Drop for LeaveClosure<'_> {
        #[inline]
        fn drop(&mut self) {
            with_context(|context| context.set_closure(self.0.outer));
        }
    }
    let leave = LeaveClosure(Closure { of, outer: with_context(|context| context.closure()) });
    let innermost: *const Closure<'_> = &leave.0;
    with_context(|context| context.set_closure(innermost.cast())); // CLOSURES-ON-STACK
    f()
}

/// For the code inside of [`enter`]: the user's closure has returned, and the states are left from now on.
#[inline]
pub(crate) fn note_returned() {
    with_context(|context| {
        let innermost = context.closure().map_addr(|address| address | RETURNED);
        context.set_closure(innermost);
    });
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
    while !next.is_null() {
        // SAFETY: it is a pointer of this thread's list.
        let closure = unsafe { behind(next) };
        if next.addr() & RETURNED == 0 {
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
        // SAFETY: it is a pointer of this thread's list.
        refuse(unsafe { behind(innermost) }, what);
    }
}

/// The closure behind a pointer.
///
/// # Safety
///
/// It is a pointer of this thread's list, and not null. The caller does not keep the reference.
unsafe fn behind<'a>(closure: *const Closure<'static>) -> &'a Closure<'a> {
    let closure = closure.map_addr(|address| address & !RETURNED);
    // SAFETY: it is on this thread's stack. CLOSURES-ON-STACK
    unsafe { &*closure }
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
