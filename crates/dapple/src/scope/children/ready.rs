//! Which child of a scope is polled next: those that were woken, and those that gave way.
//!
//! # Invariants
//!
//! * **FAIR**: children that gave way and children that were woken take turns, each in the order in which they did or
//!   were; one poll of the scope goes on until none is left or `finish::TURN` is used up. The body has at most every
//!   other one of these polls. So a child with `k` before it is polled within `1 + k / 64` polls of the scope,
//!   whatever its siblings and the body do. The budget of the task has no say in this (BUDGET in `cancel::wait`).

use std::cell::Cell;
use std::ptr::{NonNull, null_mut};

use super::Children;
use super::child::ChildHeader;
use crate::cancel::child_waker;

/// Children in a line of the scope's own. They are in the list, with a future, while they are in it.
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
            // SAFETY: what is in line is in memory.
            Some(before) => unsafe { before.as_ref() }.behind.set(first),
            None => self.first.set(first),
        }
    }

    /// Takes the first out.
    #[inline]
    pub(super) fn next(&self) -> Option<NonNull<ChildHeader>> {
        let child = NonNull::new(self.first.get())?;
        // SAFETY: what is in line is in memory.
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
    /// A child has woken itself: gives way, to its siblings and to other tasks, and is polled when the scope is
    /// polled the next time.
    pub(super) fn put_off(&self, child: NonNull<ChildHeader>) {
        // SAFETY: it is in memory.
        if !unsafe { child.as_ref() }.is_put_off.replace(true) {
            self.later.append(child.as_ptr(), child.as_ptr());
        }
    }

    /// The scope is polled, and with it those that were put off the last time.
    #[inline]
    pub(in crate::scope) fn begin_poll(&self) {
        if !self.later.is_empty() {
            self.due.append(self.later.first.replace(null_mut()), self.later.last.replace(null_mut()));
        }
    }

    /// Whether the scope must be polled again, for those that were put off.
    #[inline]
    pub(in crate::scope) fn has_put_off(&self) -> bool {
        !self.later.is_empty() || !self.due.is_empty()
    }

    /// Puts a child in line that is to be told of a cancel.
    pub(super) fn put_in_line(&self, child: NonNull<ChildHeader>) {
        // SAFETY: it is in memory.
        if unsafe { child.as_ref() }.strand.try_enqueue() {
            self.line_up(child.cast(), child.cast());
        }
    }

    /// Puts strands in line that are linked to each other, and have a reference each.
    pub(super) fn line_up(&self, first: child_waker::ChildPtr, last: child_waker::ChildPtr) {
        // SAFETY: what is in line is in memory, and its link is the line's. IN-LINE-ONCE
        unsafe { last.as_ref() }.set_next_child(null_mut());
        match NonNull::new(self.ready_last.replace(last.as_ptr())) {
            // SAFETY: as above.
            Some(before) => unsafe { before.as_ref() }.set_next_child(first.as_ptr()),
            None => self.ready_first.set(first.as_ptr()),
        }
    }

    /// The next that is to be polled; it has a reference.
    #[inline]
    pub(super) fn next_ready(&self) -> Option<child_waker::ChildPtr> {
        let strand = match NonNull::new(self.ready_first.get()) {
            Some(first) => first,
            None => {
                let list = self.reach.ready.pull(self.reach.is_by_waker())?;
                self.ready_last.set(list.last.as_ptr());
                list.first
            }
        };
        // SAFETY: what is in line is in memory. IN-LINE-ONCE
        let next = unsafe { strand.as_ref() }.next_child();
        self.ready_first.set(next);
        if next.is_null() {
            self.ready_last.set(null_mut());
        }
        Some(strand)
    }

    /// Whether a child is to be polled.
    #[inline]
    pub(in crate::scope) fn has_ready(&self) -> bool {
        !self.ready_first.get().is_null() || !self.due.is_empty() || !self.reach.ready.is_empty()
    }

    /// The next child that is to be polled, if any, and whether it is one that was woken. FAIR
    #[inline]
    pub(super) fn next(&self) -> Option<(NonNull<ChildHeader>, bool)> {
        let is_for_due = !self.due.is_empty() && self.is_for_due.replace(!self.is_for_due.get());
        let woken = if is_for_due { None } else { self.next_ready() };
        match woken {
            Some(strand) => Some((strand.cast(), true)),
            None => self.due.next().map(|child| (child, false)),
        }
    }
}
