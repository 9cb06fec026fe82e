//! The futures behind callbacks: they wait for something to happen, and call.
//!
//! # Invariants
//!
//! * **ONE-A-POLL**: a closure is called at most once in a poll, as the last thing that the poll does. So a task that
//!   was withdrawn meanwhile, from wherever, is dropped before the next call; and others of its color come between
//!   two calls.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::prim::{AtomicBool, Ordering};
use crate::spawn::{DropClosure, NoDropClosure};
use crate::task::or_else::CallOnDrop;

/// What a callback waits for.
pub trait Occasion: Send + Unpin + 'static {
    /// Waits until it happens. `false`: it never will (again).
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<bool>;
}

/// Calls a closure at its first poll. Fields are in the order in which they are dropped, here and below.
pub(crate) struct CallNow<F, G> {
    closure: Option<F>,
    guard: G,
}

/// Calls a closure once, when something happens.
pub(crate) struct CallOnce<O, F, G> {
    occasion: O,
    closure: Option<F>,
    guard: G,
}

/// Calls a closure whenever something happens.
pub(crate) struct CallOften<O, F, G> {
    occasion: O,
    closure: F,
    guard: G,
}

// Nothing in them is ever pinned.
impl<F, G> Unpin for CallNow<F, G> {}
impl<O, F, G> Unpin for CallOnce<O, F, G> {}
impl<O, F, G> Unpin for CallOften<O, F, G> {}

impl<F, G> CallNow<F, G> {
    #[inline]
    pub(super) fn new(closure: F, guard: G) -> CallNow<F, G> {
        CallNow { closure: Some(closure), guard }
    }
}

impl<O, F, G> CallOnce<O, F, G> {
    pub(super) fn new(occasion: O, closure: F, guard: G) -> CallOnce<O, F, G> {
        CallOnce { occasion, closure: Some(closure), guard }
    }
}

impl<O, F, G> CallOften<O, F, G> {
    pub(super) fn new(occasion: O, closure: F, guard: G) -> CallOften<O, F, G> {
        CallOften { occasion, closure, guard }
    }
}

impl<F: FnOnce() -> T, T, G: Guard> Future for CallNow<F, G> {
    type Output = T;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<T> {
        self.guard.disarm();
        let closure = self.closure.take().expect("a call is polled once");
        Poll::Ready(closure())
    }
}

impl<O: Occasion, F: FnOnce() -> T, T, G: Guard> Future for CallOnce<O, F, G> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if ready!(self.occasion.poll_next(cx)) {
            self.guard.disarm();
            let closure = self.closure.take().expect("it is called once");
            closure();
        }
        Poll::Ready(())
    }
}

impl<O: Occasion, F: FnMut() -> T, T: Verdict, G: Guard> Future for CallOften<O, F, G> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        if !ready!(this.occasion.poll_next(cx)) {
            return Poll::Ready(());
        }
        this.guard.disarm();
        if (this.closure)().into_flow().is_break() {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref(); // ONE-A-POLL
        Poll::Pending
    }
}

/// What a callback that is called often may return: nothing, or [`ControlFlow`], whose `Break` withdraws it.
#[diagnostic::on_unimplemented(
    message = "a callback that is called often returns nothing, or a `ControlFlow<()>`, not `{Self}`",
    note = "`ControlFlow::Break(())` withdraws it"
)]
pub trait Verdict: sealed::Sealed {
    #[doc(hidden)]
    fn into_flow(self) -> ControlFlow<()>;
}

impl Verdict for () {
    fn into_flow(self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Verdict for ControlFlow<()> {
    fn into_flow(self) -> ControlFlow<()> {
        self
    }
}

/// What never returns, such as `todo!()`, is a closure of the type `!`, which has no name yet.
impl Verdict for Never {
    fn into_flow(self) -> ControlFlow<()> {
        match self {}
    }
}

type Never = <fn() -> ! as sealed::Returns>::What;

mod sealed {
    pub trait Sealed {}
    impl Sealed for () {}
    impl Sealed for std::ops::ControlFlow<()> {}
    impl Sealed for super::Never {}

    pub trait Returns {
        type What;
    }

    impl<T> Returns for fn() -> T {
        type What = T;
    }
}

/// Calls the drop closure when it is dropped, if there is one, unless it was disarmed.
pub(crate) trait Guard {
    /// The callback is about to be called.
    fn disarm(&mut self);
}

/// A callback's drop closure, or that it has none.
pub(crate) trait DropCall {
    type Guard: Guard;

    /// What calls it.
    fn guard(self) -> Self::Guard;

    /// The same, unless the program says that it was it who withdrew the callback.
    fn guard_registration(self) -> (Self::Guard, Option<Withdrawn>);
}

/// Where the program says that it has withdrawn a callback: then its drop closure is not called.
#[derive(Debug)]
pub(crate) struct Withdrawn(Arc<AtomicBool>);

impl Withdrawn {
    /// To be called before the task is told to end.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// No drop closure.
pub(crate) struct Unguarded;

impl Guard for Unguarded {
    #[inline]
    fn disarm(&mut self) {}
}

impl DropCall for NoDropClosure {
    type Guard = Unguarded;

    #[inline]
    fn guard(self) -> Unguarded {
        Unguarded
    }

    fn guard_registration(self) -> (Unguarded, Option<Withdrawn>) {
        (Unguarded, None)
    }
}

/// A drop closure.
pub(crate) struct DropCallGuard<G: FnOnce()> {
    withdrawn: Option<Arc<AtomicBool>>,
    closure: CallOnDrop<G>,
}

impl<G: FnOnce()> Guard for DropCallGuard<G> {
    fn disarm(&mut self) {
        self.closure.disarm();
    }
}

impl<G: FnOnce()> DropCall for DropClosure<G> {
    type Guard = DropCallGuard<G>;

    fn guard(self) -> DropCallGuard<G> {
        DropCallGuard { withdrawn: None, closure: CallOnDrop::new(self.into_inner()) }
    }

    fn guard_registration(self) -> (DropCallGuard<G>, Option<Withdrawn>) {
        let withdrawn = Arc::new(AtomicBool::new(false));
        let mut guard = self.guard();
        guard.withdrawn = Some(withdrawn.clone());
        (guard, Some(Withdrawn(withdrawn)))
    }
}

impl<G: FnOnce()> Drop for DropCallGuard<G> {
    fn drop(&mut self) {
        let is_withdrawn = |withdrawn: &Arc<AtomicBool>| withdrawn.load(Ordering::Acquire);
        if self.withdrawn.as_ref().is_some_and(is_withdrawn) {
            self.closure.disarm();
        }
    }
}
