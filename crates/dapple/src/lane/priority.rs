//! What a lane knows of those that wait in it, by priority.

use std::cell::Cell;

use crate::task::Priority;
use crate::task::header::{Header, TaskPtr};

/// How many wait in a line: those without a priority, then by priority. Kept from when the lane is known to be
/// ranked. For the one who has the turn.
#[derive(Default)]
pub(crate) struct PriorityCounts {
    is_kept: Cell<bool>,
    counts: [Cell<u32>; 1 + Priority::ALL.len()],
}

impl PriorityCounts {
    /// Counts what is in line already, the first time.
    #[inline]
    pub(super) fn begin(&self, first: *mut Header) {
        if !self.is_kept.replace(true)
            && let Some(first) = TaskPtr::new(first)
        {
            self.add_list(first);
        }
    }

    #[inline]
    fn count_of(&self, task: TaskPtr) -> &Cell<u32> {
        // SAFETY: what is in line is owned by the lane, so it exists.
        let queued = unsafe { task.as_ref() }.vtable().queued;
        // SAFETY: as above, and the function is that of the task's kind.
        let priority = queued.and_then(|queued| unsafe { (queued.priority)(task) });
        &self.counts[priority.map_or(0, |priority| 1 + priority as usize)]
    }

    /// What hangs together from `first` on has come to the end of the line.
    #[inline]
    pub(super) fn add_list(&self, first: TaskPtr) {
        if self.is_kept.get() {
            self.add_all(first);
        }
    }

    #[cold]
    fn add_all(&self, first: TaskPtr) {
        let mut next = Some(first);
        while let Some(task) = next {
            let count = self.count_of(task);
            count.set(count.get() + 1);
            // SAFETY: what is in line is owned by the lane, so it exists.
            next = TaskPtr::new(unsafe { task.as_ref() }.next_link());
        }
    }

    /// The first in line is taken.
    #[inline]
    pub(super) fn remove(&self, task: TaskPtr) {
        if self.is_kept.get() {
            let count = self.count_of(task);
            count.set(count.get() - 1);
        }
    }

    /// The priority of the most urgent, where those that have none have that of the color; also if there is
    /// nobody.
    #[inline]
    pub(super) fn highest(&self, of_color: Priority) -> Priority {
        if !self.is_kept.get() {
            return of_color;
        }
        let plain = (self.counts[0].get() > 0).then_some(of_color);
        let ranked = Priority::ALL.into_iter().rev().find(|p| self.counts[1 + *p as usize].get() > 0);
        plain.max(ranked).unwrap_or(of_color)
    }
}
