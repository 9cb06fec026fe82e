//! Closures of states that this thread is in. Code in such a closure must not wait: waits could form a cycle.
//!
//! # Invariants
//!
//! * **CLOSURES-ON-STACK**: the closures from the thread's innermost one outwards are those that the thread is in. So all
//!   of them exist while the list is read.
//! * **OVER-IS-LEFT**: a closure of several states is over when its code has returned, and they are being left. A waker that is
//!   called then may poll on the spot, since a wait holds no state. It must not block: the thread that it would block has to
//!   leave the others. The pointer to a closure that is over is odd.

use std::fmt;

use super::with_context;

/// The mark of a pointer to a closure that is over. OVER-IS-LEFT
const OVER: usize = 1;

const _: () = assert!(align_of::<Closure<'_>>() > OVER);

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

/// The thread's innermost closure is over when this is dropped. OVER-IS-LEFT
pub(crate) struct EndsClosure;

impl Drop for EndsClosure {
    #[inline]
    fn drop(&mut self) {
        with_context(|context| context.set_closure(context.closure().map_addr(|addr| addr | OVER)));
    }
}

/// Panics if this thread is in a closure of a state. `what` names the operation that would block.
#[inline]
#[track_caller]
pub(crate) fn assert_outside(what: &dyn fmt::Display) {
    let innermost = with_context(|context| context.closure());
    if !innermost.is_null() {
        // SAFETY: it is on this thread's stack. CLOSURES-ON-STACK
        refuse(unsafe { &*without_mark(innermost) }, what);
    }
}

/// Panics if this thread is in a closure of a state that is not over. `what` names the operation that would wait in its poll.
/// OVER-IS-LEFT
#[inline]
#[track_caller]
pub(crate) fn assert_may_wait(what: &dyn fmt::Display) {
    let innermost = with_context(|context| context.closure());
    if !innermost.is_null() {
        refuse_in_code(innermost, what);
    }
}

#[cold]
#[track_caller]
fn refuse_in_code(mut at: *const Closure<'static>, what: &dyn fmt::Display) {
    while !at.is_null() {
        // SAFETY: it is on this thread's stack. CLOSURES-ON-STACK
        let closure = unsafe { &*without_mark(at) };
        if at.addr() & OVER == 0 {
            refuse(closure, what);
        }
        at = closure.outer;
    }
}

fn without_mark(closure: *const Closure<'static>) -> *const Closure<'static> {
    closure.map_addr(|addr| addr & !OVER)
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
