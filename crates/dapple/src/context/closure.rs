//! The closures of states that this thread is in: what is in one must not wait, or there could be a cycle of
//! those who wait for each other.
//!
//! # Invariants
//!
//! * **CLOSURES-ON-STACK**: the closures from the thread's innermost on outwards are those that it is in. So all of
//!   them are there while they are looked at.

use std::fmt;

use super::context::with_context;

/// A closure that a thread is in.
pub(crate) struct Closure<'a> {
    /// Whose it is: completes "inside of the closure of".
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
            with_context(|here| here.closure.set(self.0.outer));
        }
    }
    let out = LeaveClosure(Closure { of, outer: with_context(|here| here.closure.get()) });
    let innermost: *const Closure<'_> = &out.0;
    with_context(|here| here.closure.set(innermost.cast())); // CLOSURES-ON-STACK
    f()
}

/// Panics if this thread is in a closure of a state. `what` is what would wait.
#[inline]
#[track_caller]
pub(crate) fn assert_outside(what: &dyn fmt::Display) {
    let innermost = with_context(|here| here.closure.get());
    if !innermost.is_null() {
        // SAFETY: it is on this thread's stack. CLOSURES-ON-STACK
        refuse(unsafe { &*innermost }, what);
    }
}

#[cold]
#[track_caller]
fn refuse(closure: &Closure<'_>, what: &dyn fmt::Display) -> ! {
    panic!(
        "{what}, inside of the closure of {}: what waits there could wait for itself. Do it before or after, or name \
         all states at once in dapple::together",
        closure.of
    );
}
