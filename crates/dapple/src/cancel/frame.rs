//! The cancellation stack: the scopes and shields around the code that a thread polls.
//!
//! A poll inside of a scope pushes a [`CancelFrame`] for as long as the poll takes. A wait that is polled walks the stack: it is
//! cancelled if any scope around it is, up to the first [`shield`](crate::shield), or if its task is. So a wait that is polled
//! sees a cancel at once, from whichever thread it came.
//!
//! A wait that rests must be polled to see the cancel. So a cancel wakes the poller of the scope, which polls all children
//! that were started in the scope. A wait that is polled with another waker (a combinator's) registers that waker: see
//! `item`.
//!
//! # Invariants
//!
//! * **ON-THE-STACK**: the frames from the thread's innermost one outwards are those of polls that this thread is in. So all
//!   of them, and their scopes, exist while the stack is walked.
//! * **INSIDE-LOOKS**: the poller of a scope looks at the ready list after each poll inside of it. So a child that is pushed
//!   on the same thread, from inside of that poll, needs no wake-up of the poller. The frame of a task that was *spawned* in
//!   the scope does not count: such a task is polled by itself, and no poll of the scope follows.
//! * **LOSER-TAKES-NOTHING**: a race that is decided drops the results of its losers. So a wait in a loser must not take
//!   anything any more: the frame of such a race is *lost*, and so is every frame inside of it up to a shield. A wait asks the
//!   innermost frame alone. The answer cannot change during a poll inside of the frame: a race is decided between two polls.

use std::cell::Cell;
use std::ptr::null;

use super::check;
use super::points;
use super::scope::CancelScope;
use crate::context::{Fills, OfFrame, ThreadContext};

/// A limit of time around the code that is being polled.
pub(crate) struct Deadline {
    /// In nanoseconds of the runtime's clock.
    pub(crate) at: u64,
    /// A limit inside of this one has expired, and has found this one expired.
    pub(crate) is_claimed: Cell<bool>,
}

/// Claims the outermost expired limit of time around the code that is polled here, up to the first shield. `false`: none has
/// expired. `now` is in nanoseconds of the runtime's clock.
pub(crate) fn claim_outermost(context: &ThreadContext, now: u64) -> bool {
    let mut outermost: Option<&Deadline> = None;
    let mut next = context.frame::<CancelFrame>();
    // SAFETY: ON-THE-STACK.
    while let Some(frame) = unsafe { next.as_ref() } {
        if frame.scope.is_null() {
            break;
        }
        // SAFETY: it exists while the frame is on the stack.
        outermost = unsafe { frame.deadline.as_ref() }.filter(|deadline| deadline.at <= now).or(outermost);
        next = frame.outer.get();
    }
    outermost.inspect(|deadline| deadline.is_claimed.set(true)).is_some()
}

/// A scope or a shield around the code that is being polled.
pub(crate) struct CancelFrame {
    /// Null for a shield.
    scope: *const CancelScope,
    outer: Cell<*const CancelFrame>,
    /// The scope is a race that is decided. LOSER-TAKES-NOTHING
    is_decided: bool,
    /// The scope's limit of time, or null. It exists while the frame is on the stack.
    deadline: *const Deadline,
    /// The scope is a decided race, or the frame around this one is lost. LOSER-TAKES-NOTHING
    lost: Cell<bool>,
    /// The frame is around a task that was spawned in the scope. INSIDE-LOOKS
    is_spawned: bool,
    /// A child of a scope around this one is awaited inside, by a foreign waker. ON-ITS-WAY in `scope::children`
    awaits_child: Cell<bool>,
    /// Values of the scope's children that are on their way. ON-ITS-WAY in `scope::children`
    on_their_way: Cell<u32>,
}

// SAFETY: no other type fills it. ONE-TYPE
unsafe impl Fills<OfFrame> for CancelFrame {}

impl CancelFrame {
    pub(crate) const fn shield() -> CancelFrame {
        CancelFrame {
            scope: null(),
            outer: Cell::new(null()),
            is_decided: false,
            deadline: null(),
            lost: Cell::new(false),
            is_spawned: false,
            awaits_child: Cell::new(false),
            on_their_way: Cell::new(0),
        }
    }

    /// The frame of a scope.
    pub(crate) fn of(scope: *const CancelScope) -> CancelFrame {
        CancelFrame::of_region(scope, false, null())
    }

    /// As `of`. `is_decided`: the scope is a race, and has been won (LOSER-TAKES-NOTHING). `deadline`: the scope's limit of
    /// time, which exists for as long as the frame is on the stack, or null.
    pub(crate) fn of_region(
        scope: *const CancelScope,
        is_decided: bool,
        deadline: *const Deadline,
    ) -> CancelFrame {
        CancelFrame { scope, is_decided, deadline, ..CancelFrame::shield() }
    }

    /// The frame of a task that was spawned in the scope. SPAWNED-SEE in `item`
    pub(crate) fn of_spawned(scope: *const CancelScope) -> CancelFrame {
        CancelFrame { is_spawned: true, ..CancelFrame::of(scope) }
    }

    /// Whether the code inside is in a race that another has won. LOSER-TAKES-NOTHING
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get()
    }

    /// Whether a child of a scope around this one was awaited inside, by a foreign waker.
    pub(crate) fn awaits_child(&self) -> bool {
        self.awaits_child.get()
    }

    /// A child of this scope is awaited here by a foreign waker: all frames inside of this one note it.
    pub(crate) fn note_awaited(&self, context: &ThreadContext) {
        let mut next = context.frame::<CancelFrame>();
        // SAFETY: ON-THE-STACK.
        while let Some(frame) = unsafe { next.as_ref() }.filter(|frame| !std::ptr::eq(*frame, self)) {
            frame.awaits_child.set(true);
            next = frame.outer.get();
        }
    }

    /// Counts values of the scope's children that are on their way.
    pub(crate) fn count_on_their_way(&self, change: i32) {
        self.on_their_way.set(self.on_their_way.get().wrapping_add_signed(change));
    }

    pub(crate) fn has_on_their_way(&self) -> bool {
        self.on_their_way.get() > 0
    }

    /// Calls `f` as if it were called around this frame, which is on the stack.
    pub(crate) fn outside<R>(&self, context: &ThreadContext, f: impl FnOnce() -> R) -> R {
        struct Back<'a>(*const CancelFrame, &'a ThreadContext);
        impl Drop for Back<'_> {
            fn drop(&mut self) {
                self.1.set_frame(self.0);
            }
        }
        let _back = Back(context.replace_frame(self.outer.get()), context);
        f()
    }

    /// Pushes the frame while `f` is called. ON-THE-STACK
    #[inline]
    pub(crate) fn around<R>(&self, context: &ThreadContext, f: impl FnOnce() -> R) -> R {
        struct LeaveFrame<'a>(&'a CancelFrame, &'a ThreadContext);
        impl Drop for LeaveFrame<'_> {
            fn drop(&mut self) {
                self.1.set_frame(self.0.outer.get());
            }
        }
        let outer = context.replace_frame(std::ptr::from_ref(self));
        self.outer.set(outer);
        let _leave = LeaveFrame(self, context);
        // SAFETY: ON-THE-STACK.
        let outer = unsafe { outer.as_ref() };
        self.lost
            .set(self.is_decided || !self.scope.is_null() && outer.is_some_and(|outer| outer.lost.get()));
        f()
    }

    /// The scope; `None` for a shield.
    fn cancel_scope(&self) -> Option<&CancelScope> {
        // SAFETY: the frame is of a poll that this thread is in. ON-THE-STACK
        unsafe { self.scope.as_ref() }
    }
}

/// Whether this thread is in a poll of the scope. INSIDE-LOOKS
#[inline]
pub(super) fn is_inside(context: &ThreadContext, scope: *const CancelScope) -> bool {
    let mut next = context.frame::<CancelFrame>();
    // SAFETY: ON-THE-STACK.
    while let Some(frame) = unsafe { next.as_ref() } {
        if std::ptr::eq(frame.scope, scope) && !frame.is_spawned {
            return true;
        }
        next = frame.outer.get();
    }
    false
}

/// Whether the code that is polled here is in a race that another has won. LOSER-TAKES-NOTHING
#[inline]
pub(crate) fn is_lost(context: &ThreadContext) -> bool {
    // SAFETY: ON-THE-STACK.
    unsafe { context.frame::<CancelFrame>().as_ref() }.is_some_and(|frame| frame.lost.get())
}

/// Whether a value of a child is on its way, in any scope around the code that is polled here. ON-ITS-WAY in
/// `scope::children`
#[cold]
pub(crate) fn has_on_their_way(context: &ThreadContext) -> bool {
    let mut next = context.frame::<CancelFrame>();
    // SAFETY: ON-THE-STACK.
    while let Some(frame) = unsafe { next.as_ref() } {
        if frame.has_on_their_way() {
            return true;
        }
        next = frame.outer.get();
    }
    false
}

/// Calls `each` with the scopes around the code that is polled here, from the inside out, up to the first shield, by pointers
/// into their `Arc`s. `true`: there was no shield, so a cancel of the task reaches this code, too.
pub(super) fn around(context: &ThreadContext, mut each: impl FnMut(*const CancelScope)) -> bool {
    let mut next = context.frame::<CancelFrame>();
    // SAFETY: ON-THE-STACK.
    while let Some(frame) = unsafe { next.as_ref() } {
        if frame.scope.is_null() {
            return false;
        }
        each(frame.scope);
        next = frame.outer.get();
    }
    true
}

/// As [`around`], without the scopes that a task was spawned in.
pub(super) fn around_in_task(context: &ThreadContext, mut each: impl FnMut(*const CancelScope)) {
    let mut next = context.frame::<CancelFrame>();
    // SAFETY: ON-THE-STACK.
    while let Some(frame) = unsafe { next.as_ref() }.filter(|frame| !frame.scope.is_null()) {
        if !frame.is_spawned {
            each(frame.scope);
        }
        next = frame.outer.get();
    }
}

/// Whether the code that is polled here is cancelled: by a scope around it, or with its task.
#[inline(never)]
pub(super) fn is_cancelled(context: &ThreadContext) -> bool {
    let mut next = context.frame::<CancelFrame>();
    // SAFETY: ON-THE-STACK.
    while let Some(frame) = unsafe { next.as_ref() } {
        match frame.cancel_scope() {
            None => return false,
            Some(scope) if scope.is_cancelled() => return is_really_cancelled(context),
            Some(_) => next = frame.outer.get(),
        }
    }
    check::is_task_cancelled(context)
}

/// As [`is_cancelled`], for a wait that begins; also true wherever waits are observed. SUSPECT in `points`
#[inline(never)]
pub(super) fn may_be_cancelled(context: &ThreadContext) -> bool {
    let mut next = context.frame::<CancelFrame>();
    // SAFETY: ON-THE-STACK.
    while let Some(frame) = unsafe { next.as_ref() } {
        match frame.cancel_scope() {
            None => return false,
            Some(scope) if scope.is_cancelled() => return true,
            Some(_) => next = frame.outer.get(),
        }
    }
    check::is_task_cancelled(context)
}

/// A scope around the code that is polled here is cancelled. Whether there is another one than the scope by which waits are
/// observed.
#[cold]
fn is_really_cancelled(context: &ThreadContext) -> bool {
    !points::OBSERVES || !context.is_observed() || points::is_cancelled(context)
}
