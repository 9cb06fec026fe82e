//! Closures of states that this thread is in. Code in such a closure must not wait: waits could form a cycle.
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
    outer: *const Closure<'static>,
}

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

/// Panics if this thread is in a closure of a state. `what` names the operation that would wait.
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
