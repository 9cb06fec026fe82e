//! The scopes and shields around the code that is being polled, the child that is polled, and the budget of the poll.

use std::cell::Cell;
use std::ptr::null;
use std::task::Waker;

use super::ThreadContext;
use super::slot::{Fills, OfChild, OfFrame, Slot};

/// Results that a task may get in one poll. BUDGET in `cancel::wait`
pub(crate) const BUDGET: i32 = 128;

/// Waits that may be put off in one poll of a task, at most.
const MAX_PUT_OFF: i32 = 1 << 16;

pub(super) struct CancelPart {
    /// The innermost frame of the cancellation stack; null if there is none. ON-THE-STACK in `cancel::frame`
    frame: Slot<OfFrame>,
    /// The waker by which a cancel wakes the code that is being polled; null if that is the task's own.
    own_waker: Cell<*const Waker>,
    /// The child of a scope that is being polled.
    child: Slot<OfChild>,
    /// References to that child that were made (or, below zero, dropped) in this poll.
    child_refs: Cell<i64>,
    /// That child has woken itself.
    child_woken: Cell<bool>,
    /// Results that the current task may still get in this poll; below zero, how often its waits were put off.
    budget: Cell<i32>,
    /// Waits that have said in this poll of the task that they rest although they may be cancelled. LEFT-ALONE in
    /// `cancel::grace`
    stays: Cell<u32>,
    /// The waits of the task that is being polled are observed. SUSPECT in `cancel::points`
    is_observed: Cell<bool>,
}

impl CancelPart {
    pub(super) const fn new() -> CancelPart {
        CancelPart {
            frame: Slot::null(),
            own_waker: Cell::new(null()),
            child: Slot::null(),
            child_refs: Cell::new(0),
            child_woken: Cell::new(false),
            budget: Cell::new(BUDGET),
            stays: Cell::new(0),
            is_observed: Cell::new(false),
        }
    }

    pub(super) fn swap(&self, other: &CancelPart) {
        self.frame.swap(&other.frame);
        self.own_waker.swap(&other.own_waker);
        self.child.swap(&other.child);
        self.child_refs.swap(&other.child_refs);
        self.child_woken.swap(&other.child_woken);
        self.budget.swap(&other.budget);
        self.stays.swap(&other.stays);
        self.is_observed.swap(&other.is_observed);
    }

    #[inline]
    pub(super) fn renew_budget(&self) {
        self.budget.set(BUDGET);
    }
}

/// The cancellation stack.
impl ThreadContext {
    /// The innermost frame; null if there is none.
    #[inline]
    pub(crate) fn frame<T: Fills<OfFrame>>(&self) -> *const T {
        self.cancel.frame.get()
    }

    #[inline]
    pub(crate) fn has_frame(&self) -> bool {
        !self.cancel.frame.is_null()
    }

    #[inline]
    pub(crate) fn set_frame<T: Fills<OfFrame>>(&self, frame: *const T) {
        self.cancel.frame.set(frame);
    }

    /// Makes `frame` the innermost one, and returns the one before.
    #[inline]
    pub(crate) fn replace_frame<T: Fills<OfFrame>>(&self, frame: *const T) -> *const T {
        self.cancel.frame.replace(frame)
    }

    /// The waker by which a cancel wakes the code that is being polled; null if that is the task's own.
    #[inline]
    pub(crate) fn own_waker(&self) -> *const Waker {
        self.cancel.own_waker.get()
    }

    /// Makes `waker` the one of [`own_waker`](Self::own_waker), and returns the one before.
    #[inline]
    pub(crate) fn replace_own_waker(&self, waker: *const Waker) -> *const Waker {
        self.cancel.own_waker.replace(waker)
    }

    /// Whether the waits of the current task are observed. SUSPECT in `cancel::points`
    #[inline]
    pub(crate) fn is_observed(&self) -> bool {
        self.cancel.is_observed.get()
    }

    pub(crate) fn replace_observed(&self, is_observed: bool) -> bool {
        self.cancel.is_observed.replace(is_observed)
    }
}

/// The state of the code around a child, while the child is polled.
pub(crate) struct OuterChild<T> {
    child: *const T,
    own_waker: *const Waker,
    refs: i64,
    woken: bool,
}

/// The child of a scope that is being polled.
impl ThreadContext {
    /// A child is going to be polled, with this waker. The result is for [`leave_child`](Self::leave_child).
    #[inline]
    pub(crate) fn enter_child<T: Fills<OfChild>>(
        &self,
        child: *const T,
        waker: *const Waker,
    ) -> OuterChild<T> {
        OuterChild {
            child: self.cancel.child.replace(child),
            own_waker: self.cancel.own_waker.replace(waker),
            refs: self.cancel.child_refs.replace(0),
            woken: self.cancel.child_woken.replace(false),
        }
    }

    /// The poll is over. Returns the references to the child that were made, and whether it has woken itself.
    #[inline]
    pub(crate) fn leave_child<T: Fills<OfChild>>(&self, outer: OuterChild<T>) -> (i64, bool) {
        self.cancel.child.set(outer.child);
        self.cancel.own_waker.set(outer.own_waker);
        (self.cancel.child_refs.replace(outer.refs), self.cancel.child_woken.replace(outer.woken))
    }

    /// The child that is being polled; null if there is none.
    #[inline]
    pub(crate) fn child<T: Fills<OfChild>>(&self) -> *const T {
        self.cancel.child.get()
    }

    /// That child has woken itself.
    #[inline]
    pub(crate) fn note_child_woken(&self) {
        self.cancel.child_woken.set(true);
    }

    /// Counts references to that child that are made, or dropped if `change` is negative.
    #[inline]
    pub(crate) fn count_child_refs(&self, change: i64) {
        self.cancel.child_refs.set(self.cancel.child_refs.get() + change);
    }

    /// Whether the current task or child has woken itself in this poll.
    pub(crate) fn is_awake(&self) -> bool {
        self.is_woken() || self.cancel.child_woken.get()
    }
}

/// The budget of a poll. BUDGET in `cancel::wait`
impl ThreadContext {
    /// Results that the current task may still get in this poll.
    #[inline]
    pub(crate) fn budget(&self) -> i32 {
        self.cancel.budget.get()
    }

    /// The current task got a result.
    #[inline]
    pub(crate) fn count_result(&self) {
        self.cancel.budget.set(self.cancel.budget.get().wrapping_sub(1));
    }

    /// The current task got a result that counts as `count` more. The budget does not go below zero by this: there, the
    /// waits that were put off are counted.
    pub(crate) fn count_more(&self, count: i32) {
        let budget = self.cancel.budget.get();
        self.cancel.budget.set((budget - count).max(budget.min(0)));
    }

    /// Whether the budget is spent, so that new waits are put off.
    #[inline]
    pub(crate) fn is_spent(&self) -> bool {
        self.cancel.budget.get() <= 0 && self.is_really_spent()
    }

    #[cold]
    fn is_really_spent(&self) -> bool {
        // A future that is polled outside of a task has no other task to yield to. A task that goes on after MAX_PUT_OFF of
        // its waits were put off spins: it makes new waits and drops them, until one of them is ready.
        let is_spent = self.has_task() && self.cancel.budget.get() > -MAX_PUT_OFF;
        if !is_spent {
            self.cancel.renew_budget();
        }
        is_spent
    }

    /// A wait was put off.
    pub(crate) fn note_put_off(&self) {
        self.cancel.budget.set(self.cancel.budget.get() - 1);
        self.note_stays(); // it has not looked whether it is cancelled
    }

    /// Waits that have called [`note_stays`](Self::note_stays) since [`forget_stays`](Self::forget_stays).
    #[inline]
    pub(crate) fn stays(&self) -> u32 {
        self.cancel.stays.get()
    }

    /// A poll begins of a task that was cancelled: no wait in it has said that it stays.
    #[inline]
    pub(crate) fn forget_stays(&self) {
        self.cancel.stays.set(0);
    }

    /// A wait rests although it may be cancelled: it has to be polled again. LEFT-ALONE in `cancel::grace`
    #[cold]
    pub(crate) fn note_stays(&self) {
        self.cancel.stays.set(self.cancel.stays.get().wrapping_add(1));
    }
}
