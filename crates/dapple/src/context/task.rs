//! The task that this thread polls, and the values of task-locals around it.

use std::cell::Cell;
use std::ptr::null;

use super::ThreadContext;
use super::slot::{Fills, OfLocal, OfTask, Slot};
use crate::prim::Published;

pub(super) struct TaskPart {
    /// The task that is being polled, or whose future is being dropped. The monitor reads it from other threads, to name
    /// the task that a worker is stuck in.
    current: Published<OfTask>,
    /// The current task has woken itself.
    woken: Cell<bool>,
    /// References to the current task that were made (or, below zero, dropped) in this poll.
    unsettled: Cell<i64>,
    /// The innermost value of a task-local around the code that is being polled. BOUND in `task::local`
    local: Slot<OfLocal>,
}

impl TaskPart {
    pub(super) const fn new() -> TaskPart {
        TaskPart {
            current: Published::null(),
            woken: Cell::new(false),
            unsettled: Cell::new(0),
            local: Slot::null(),
        }
    }

    pub(super) fn swap(&self, other: &TaskPart) {
        self.current.swap(&other.current);
        self.woken.swap(&other.woken);
        self.unsettled.swap(&other.unsettled);
        self.local.swap(&other.local);
    }
}

/// The current task.
impl ThreadContext {
    /// The task that this thread polls, or whose future it drops; null outside of tasks.
    #[inline]
    pub(crate) fn current<T: Fills<OfTask>>(&self) -> *const T {
        self.task.current.get().cast()
    }

    #[inline]
    pub(crate) fn has_task(&self) -> bool {
        !self.task.current.get().is_null()
    }

    /// The address of the current task; 0 outside of tasks.
    #[inline]
    pub(crate) fn task_address(&self) -> usize {
        self.task.current.get().addr()
    }

    /// The place of the current task, for the monitor of another thread. It is valid until this thread ends.
    pub(crate) fn published_task(&self) -> *const Published<OfTask> {
        &raw const self.task.current
    }

    /// A poll of `task` begins: nothing has happened in it.
    #[inline]
    pub(crate) fn begin_poll<T: Fills<OfTask>>(&self, task: *const T) {
        self.begin_last_poll(task);
        self.cancel.renew_budget();
        self.states.forget_yield();
    }

    /// As [`begin_poll`](Self::begin_poll), for a task that is ended in place of being polled.
    #[inline]
    pub(crate) fn begin_last_poll<T: Fills<OfTask>>(&self, task: *const T) {
        self.set_current(task);
        self.task.woken.set(false);
        self.task.unsettled.set(0);
    }

    #[inline]
    pub(crate) fn set_current<T: Fills<OfTask>>(&self, task: *const T) {
        self.task.current.set(task.cast());
    }

    /// The thread is outside of all tasks from now on.
    #[inline]
    pub(crate) fn clear_current(&self) {
        self.task.current.set(null());
    }

    /// The current task has woken itself.
    #[inline]
    pub(crate) fn note_woken(&self) {
        self.task.woken.set(true);
    }

    /// Whether the current task has woken itself in this poll.
    #[inline]
    pub(crate) fn is_woken(&self) -> bool {
        self.task.woken.get()
    }

    /// The references to the current task that were made in this poll, without those that were dropped.
    #[inline]
    pub(crate) fn unsettled(&self) -> i64 {
        self.task.unsettled.get()
    }

    /// Counts references to the current task that are made, or dropped if `change` is negative. Returns the new sum.
    #[inline]
    pub(crate) fn count_unsettled(&self, change: i64) -> i64 {
        let unsettled = self.task.unsettled.get() + change;
        self.task.unsettled.set(unsettled);
        unsettled
    }

    /// The caller has added the sum to the state word of the task.
    #[inline]
    pub(crate) fn clear_unsettled(&self) {
        self.task.unsettled.set(0);
    }
}

/// Task-locals.
impl ThreadContext {
    /// The innermost value of a task-local; null if there is none.
    pub(crate) fn local<T: Fills<OfLocal>>(&self) -> *const T {
        self.task.local.get()
    }

    /// Makes `value` the innermost value of a task-local, and returns the one before.
    pub(crate) fn replace_local<T: Fills<OfLocal>>(&self, value: *const T) -> *const T {
        self.task.local.replace(value)
    }
}
