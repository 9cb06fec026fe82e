//! Futures behind callbacks: they wait for an event, then call the closure.
//!
//! # Invariants
//!
//! * **ONE-A-POLL**: a poll calls a closure at most once, as its last action. So a task that was withdrawn
//!   meanwhile, from anywhere, is dropped before the next call; and other work of its color runs between two
//!   calls.

use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::prim::{AtomicBool, Ordering};
use crate::spawn::{DropClosure, NoDropClosure};
use crate::task::or_else::CallOnDrop;

/// An event that a callback waits for.
pub trait Occasion: Send + Unpin + 'static {
    /// Waits until the event happens. `false` if it never will (again).
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<bool>;
}

/// Calls a closure at its first poll. Fields are in drop order, here and below.
pub(crate) struct CallNow<F, G> {
    closure: Option<F>,
    guard: G,
}

/// Calls a closure once, when an event happens.
pub(crate) struct CallOnce<O, F, G> {
    occasion: O,
    closure: Option<F>,
    guard: G,
}

/// Calls a closure whenever an event happens.
pub(crate) struct CallOften<O, F, G> {
    occasion: O,
    closure: F,
    guard: G,
}

// No field is ever pinned.
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

/// Return type of a repeating callback: nothing, or [`ControlFlow`], whose `Break` withdraws the callback.
///
/// # Examples
///
/// ```
/// use dapple::event::Callback;
/// use std::ops::ControlFlow;
///
/// let _for_ever = Callback::new(|| println!("tick")); // `()`: is called until it is withdrawn
/// let mut left = 3;
/// let _three_times = Callback::new(move || {
///     left -= 1;
///     if left > 0 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
/// });
/// ```
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

/// For closures that never return, such as `todo!()`: their type is `!`, which has no name yet.
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

/// Guard that calls the drop closure, if there is one, when dropped without being disarmed.
pub(crate) trait Guard {
    /// Called before the callback is called.
    fn disarm(&mut self);
}

/// Drop closure of a callback, or its absence.
pub(crate) trait DropCall {
    type Guard: Guard;

    /// Returns the guard.
    fn guard(self) -> Self::Guard;

    /// As `guard`, with a flag by which a [`Registration`](super::Registration) says that it withdrew the
    /// callback.
    fn guard_registration(self) -> (Self::Guard, Option<Withdrawn>);
}

/// Flag of a callback withdrawn by the program: its drop closure is not called.
#[derive(Debug)]
pub(crate) struct Withdrawn(Arc<AtomicBool>);

impl Withdrawn {
    /// To be called before the task is aborted.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// Guard without a drop closure.
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

/// Guard with a drop closure.
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
