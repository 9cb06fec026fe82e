//! Order in which children of a scope are polled: woken children, and children that have yielded.
//!
//! # Invariants
//!
//! * **FAIR**: children that yielded and children that were woken take turns, each group in
//!   first-in-first-out order. A poll of the scope goes on until no child is ready or `finish::TURN` polls
//!   are used up. The body gets at most every other one of these polls. So a child with `k` children before
//!   it is polled within `1 + k / 64` polls of the scope, whatever its siblings and the body do. The budget
//!   of the task has no influence (BUDGET in `cancel::wait`).

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};

use super::Children;
use super::child::ChildHeader;
use crate::cancel::child_waker;

/// Queue of children, used only by the scope's own thread. Each child in it is listed, with a future.
pub(super) struct ChildQueue {
    pub(super) first: Cell<*mut ChildHeader>,
    pub(super) last: Cell<*mut ChildHeader>,
}

impl Default for ChildQueue {
    fn default() -> ChildQueue {
        ChildQueue { first: Cell::new(null_mut()), last: Cell::new(null_mut()) }
    }
}

impl ChildQueue {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.first.get().is_null()
    }

    pub(super) fn append(&self, first: *mut ChildHeader, last: *mut ChildHeader) {
        match NonNull::new(self.last.replace(last)) {
            // SAFETY: a child in the queue is in memory.
            Some(before) => unsafe { before.as_ref() }.behind.set(first),
            None => self.first.set(first),
        }
    }

    /// Removes and returns the first child.
    #[inline]
    pub(super) fn next(&self) -> Option<NonNull<ChildHeader>> {
        let child = NonNull::new(self.first.get())?;
        // SAFETY: a child in the queue is in memory.
        let this = unsafe { child.as_ref() };
        this.is_put_off.set(false);
        self.first.set(this.behind.replace(null_mut()));
        if self.is_empty() {
            self.last.set(null_mut());
        }
        Some(child)
    }
}

impl Children {
    /// Queues a child that has woken itself. It yields to its siblings and to other tasks, and is polled in
    /// the scope's next poll.
    pub(super) fn put_off(&self, child: NonNull<ChildHeader>) {
        // SAFETY: the child is in memory.
        if !unsafe { child.as_ref() }.is_put_off.replace(true) {
            self.later.append(child.as_ptr(), child.as_ptr());
        }
    }

    /// Called at the start of a poll of the scope: the children put off in the last poll are due.
    #[inline]
    pub(in crate::scope) fn begin_poll(&self) {
        if !self.later.is_empty() {
            self.due.append(self.later.first.replace(null_mut()), self.later.last.replace(null_mut()));
        }
    }

    /// Whether the scope must be polled again for children that were put off.
    #[inline]
    pub(in crate::scope) fn has_put_off(&self) -> bool {
        !self.later.is_empty() || !self.due.is_empty()
    }

    /// Queues a child that must see a cancel.
    pub(super) fn put_in_line(&self, child: NonNull<ChildHeader>) {
        // SAFETY: it is in memory.
        if unsafe { child.as_ref() }.child_waker.try_enqueue() {
            self.line_up(child.cast(), child.cast());
        }
    }

    /// Appends a linked list of children to the ready queue. Each brings a reference.
    pub(super) fn line_up(&self, first: child_waker::ChildPtr, last: child_waker::ChildPtr) {
        // SAFETY: a child in the ready queue is in memory, and its link is the line's. IN-LINE-ONCE
        unsafe { last.as_ref() }.set_next_child(null_mut());
        match NonNull::new(self.ready_last.replace(last.as_ptr())) {
            // SAFETY: as above.
            Some(before) => unsafe { before.as_ref() }.set_next_child(first.as_ptr()),
            None => self.ready_first.set(first.as_ptr()),
        }
    }

    /// Removes and returns the next woken child, with its reference.
    #[inline]
    pub(super) fn next_ready(&self) -> Option<child_waker::ChildPtr> {
        let child_waker = match NonNull::new(self.ready_first.get()) {
            Some(first) => first,
            None => {
                let list = self.cancel_scope.ready.pull(self.cancel_scope.is_by_waker())?;
                self.ready_last.set(list.last.as_ptr());
                list.first
            }
        };
        // SAFETY: a child in the ready queue is in memory. IN-LINE-ONCE
        let next = unsafe { child_waker.as_ref() }.next_child();
        self.ready_first.set(next);
        if next.is_null() {
            self.ready_last.set(null_mut());
        }
        Some(child_waker)
    }

    /// Whether a child is ready to be polled.
    #[inline]
    pub(in crate::scope) fn has_ready(&self) -> bool {
        !self.ready_first.get().is_null() || !self.due.is_empty() || !self.cancel_scope.ready.is_empty()
    }

    /// Removes and returns the next child to be polled, if any, and whether it was woken. FAIR
    #[inline]
    pub(super) fn next(&self) -> Option<(NonNull<ChildHeader>, bool)> {
        let is_for_due = !self.due.is_empty() && self.is_for_due.replace(!self.is_for_due.get());
        let woken = if is_for_due { None } else { self.next_ready() };
        match woken {
            Some(child_waker) => Some((child_waker.cast(), true)),
            None => self.due.next().map(|child| (child, false)),
        }
    }
}
