//! Tasks in the queue of a lane: those spawned into a color.
//!
//! All of them are of one kind, [`InLane`], with additional fields ([`LaneExtra`]): none, a priority of its own, its
//! admission by a limit (`limited`), or its position in the task list of a main color (`main`).

use std::mem::ManuallyDrop;

use super::Color;
use super::lane::Lane;
use crate::context::{ThreadContext, with_context};
use crate::task::cell::{CellPrefix, TaskKind};
use crate::task::header::{QueuedAccess, TaskPtr};
use crate::task::poll::{Passage, StepOutcome};
use crate::task::{Priority, QueuePosition};

/// The kind of a task in a lane.
pub(crate) struct InLane<X: LaneExtra> {
    /// A counted reference, until the future has been dropped. LANE-LIVES
    lane: TaskPtr,
    pub(super) extra: X,
}

/// Additional fields of a task in a lane.
pub(crate) trait LaneExtra: Sized {
    /// See [`TaskKind::ADMIT`].
    const ADMIT: Option<unsafe fn(TaskPtr) -> Passage> = None;
    /// See [`TaskKind::QUEUED`]. `None` if `priority` always is.
    const QUEUED: Option<&'static QueuedAccess> = None;

    /// The task's own priority.
    fn priority(&self) -> Option<Priority> {
        None
    }

    /// The future has been dropped, or the task was never made.
    fn leave(&self) {}
}

/// No additional field: the task has the priority of its color.
impl LaneExtra for () {}

/// A priority of its own.
impl LaneExtra for Priority {
    const QUEUED: Option<&'static QueuedAccess> =
        Some(&QueuedAccess { priority: priority_of::<Priority>, is_refused: |_| false });

    fn priority(&self) -> Option<Priority> {
        Some(*self)
    }
}

/// The own priority of a task in a lane: a [`QueuedAccess::priority`].
///
/// # Safety
///
/// The task exists, and is of the kind `InLane<X>`.
pub(super) unsafe fn priority_of<X: LaneExtra>(task: TaskPtr) -> Option<Priority> {
    // SAFETY: handed on from the caller.
    unsafe { CellPrefix::<InLane<X>>::of(task) }.kind.extra.priority()
}

/// The color that a task is spawned into: an owned one to give away, or a reference.
pub(crate) trait LaneOwner {
    fn lane(&self) -> &Lane;
    /// The lane, with a counted reference for a task.
    fn into_counted(self) -> TaskPtr;
}

impl LaneOwner for &Color {
    #[inline]
    fn lane(&self) -> &Lane {
        Color::lane(self)
    }

    #[inline]
    fn into_counted(self) -> TaskPtr {
        with_context(|context| Color::lane(self).add_task(context));
        Color::lane(self).ptr()
    }
}

impl LaneOwner for Color {
    #[inline]
    fn lane(&self) -> &Lane {
        Color::lane(self)
    }

    #[inline]
    fn into_counted(self) -> TaskPtr {
        Color::lane(&ManuallyDrop::new(self)).ptr()
    }
}

impl<X: LaneExtra> InLane<X> {
    #[inline]
    pub(crate) fn new(color: impl LaneOwner, extra: X) -> InLane<X> {
        InLane { lane: color.into_counted(), extra }
    }

    /// # Safety
    ///
    /// The reference to the lane exists, and is not used again.
    #[inline]
    unsafe fn leave(&self) {
        self.extra.leave();
        // SAFETY: handed on from the caller. LANE-LIVES
        with_context(|context| unsafe { Lane::drop_task(self.lane, context) });
    }
}

/// For a value that never became part of a task. For others only [`left`] is called.
impl<X: LaneExtra> Drop for InLane<X> {
    fn drop(&mut self) {
        // SAFETY: the reference is dropped together with `self`.
        unsafe { self.leave() };
    }
}

/// # Safety
///
/// As for `VTable::left`.
unsafe fn left<X: LaneExtra>(task: TaskPtr) {
    // SAFETY: the caller owns the task, so it exists, and it is of this kind.
    let kind = &unsafe { CellPrefix::<InLane<X>>::of(task) }.kind;
    // SAFETY: the task holds a reference to its lane until now. LANE-LIVES
    unsafe { kind.leave() };
}

// SAFETY: the right to run goes into the lane's queue and nowhere else.
unsafe impl<X: LaneExtra> TaskKind for InLane<X> {
    const QUEUED: Option<&'static QueuedAccess> = X::QUEUED;
    const ADMIT: Option<unsafe fn(TaskPtr) -> Passage> = X::ADMIT;

    unsafe fn run(
        _task: TaskPtr,
        _context: &ThreadContext,
        _step: impl FnOnce(TaskPtr, &ThreadContext) -> StepOutcome,
    ) -> Option<TaskPtr> {
        unreachable!("a task with a lane is run by its lane");
    }

    unsafe fn enqueue(task: TaskPtr, place: QueuePosition) {
        // SAFETY: the caller owns the task, so it exists, and it is of this kind.
        let kind = &unsafe { CellPrefix::<InLane<X>>::of(task) }.kind;
        // SAFETY: handed on from the caller.
        unsafe { Lane::push(kind.lane, task, place, kind.extra.priority()) };
    }

    const LEFT: Option<unsafe fn(TaskPtr)> = Some(left::<X>);

    unsafe fn color(task: TaskPtr) -> usize {
        // SAFETY: the caller has a reference, and the task is of this kind.
        unsafe { CellPrefix::<InLane<X>>::of(task) }.kind.lane.addr().get()
    }
}
