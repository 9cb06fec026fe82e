//! Tasks in the line of a lane: those spawned into a color, and those promoted to a lane of their own.
//!
//! All that are spawned into a color are of one kind, [`InLane`], with more or less in it ([`LaneExtra`]): nothing, a
//! priority of its own, its admission by a limit (`limited`), its place in the list of a main color (`main`).

use std::mem::ManuallyDrop;

use super::Color;
use super::lane::Lane;
use crate::context::{ThreadContext, with_context};
use crate::task::cell::{Front, TaskKind};
use crate::task::header::{Extended, Header, TaskKindTag, TaskPtr};
use crate::task::poll::{Passage, StepOutcome};
use crate::task::{Priority, QueuePosition, Task};

/// The kind of a task in a lane.
pub(crate) struct InLane<X: LaneExtra> {
    /// A counted reference, until the future is gone. LANE-LIVES
    lane: TaskPtr,
    pub(super) extra: X,
}

/// The part of a task in a lane that is not the same for all.
pub(crate) trait LaneExtra: Sized {
    const KIND: TaskKindTag;
    /// See [`TaskKind::GATE`].
    const GATE: Option<unsafe fn(TaskPtr) -> Passage> = None;

    /// The task's own priority.
    fn priority(&self) -> Option<Priority> {
        None
    }

    /// The future is gone, or there will be no task.
    fn leave(&self) {}
}

/// Nothing: as urgent as its color.
impl LaneExtra for () {
    const KIND: TaskKindTag = TaskKindTag::Laned;
}

/// A priority of its own.
impl LaneExtra for Priority {
    const KIND: TaskKindTag = TaskKindTag::Ranked;

    fn priority(&self) -> Option<Priority> {
        Some(*self)
    }
}

/// A color that a task is spawned into: one to give away, or a reference to one.
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
        with_context(|here| Color::lane(self).add_task(here));
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
    /// The reference to the lane is there, and not used again.
    #[inline]
    unsafe fn leave(&self) {
        self.extra.leave();
        // SAFETY: handed on from the caller. LANE-LIVES
        with_context(|here| unsafe { Lane::drop_task(self.lane, here) });
    }
}

/// One that never came to be a task; of others only [`left`] is called.
impl<X: LaneExtra> Drop for InLane<X> {
    fn drop(&mut self) {
        // SAFETY: it goes with this.
        unsafe { self.leave() };
    }
}

/// # Safety
///
/// As for `VTable::left`.
unsafe fn left<X: LaneExtra>(task: TaskPtr) {
    // SAFETY: the caller owns the task, so it exists, and it is of this kind.
    let kind = &unsafe { Front::<InLane<X>>::of(task) }.kind;
    // SAFETY: the task holds a reference to its lane until now. LANE-LIVES
    unsafe { kind.leave() };
}

// SAFETY: the right to run goes into the lane's line and nowhere else.
unsafe impl<X: LaneExtra> TaskKind for InLane<X> {
    const KIND: TaskKindTag = X::KIND;
    const GATE: Option<unsafe fn(TaskPtr) -> Passage> = X::GATE;

    unsafe fn run(
        _task: TaskPtr,
        _here: &ThreadContext,
        _step: impl FnOnce(TaskPtr, &ThreadContext) -> StepOutcome,
    ) -> Option<TaskPtr> {
        unreachable!("a task with a lane is run by its lane");
    }

    unsafe fn enqueue(task: TaskPtr, place: QueuePosition) {
        // SAFETY: the caller owns the task, so it exists, and it is of this kind.
        let kind = &unsafe { Front::<InLane<X>>::of(task) }.kind;
        // SAFETY: handed on from the caller.
        unsafe { Lane::push(kind.lane, task, place, kind.extra.priority()) };
    }

    const LEFT: Option<unsafe fn(TaskPtr)> = Some(left::<X>);

    unsafe fn color(task: TaskPtr) -> usize {
        // SAFETY: the caller has a reference, and the task is of this kind.
        unsafe { Front::<InLane<X>>::of(task) }.kind.lane.addr().get()
    }
}

fn promoted_lane(task: TaskPtr) -> TaskPtr {
    // SAFETY: this is called for tasks that their owner, or somebody with a reference, names.
    let extended = Extended::of(unsafe { task.as_ref() });
    let lane = extended.map_or(std::ptr::null(), |extended| extended.lane);
    TaskPtr::new(lane.cast_mut()).expect("a promoted task has a lane")
}

/// # Safety
///
/// As for `VTable::enqueue`.
unsafe fn enqueue_promoted(task: TaskPtr, place: QueuePosition) {
    // SAFETY: handed on from the caller.
    unsafe { Lane::push(promoted_lane(task), task, place, None) };
}

/// # Safety
///
/// As for `VTable::left`.
unsafe fn left_promoted(task: TaskPtr) {
    let lane = promoted_lane(task);
    // SAFETY: the task holds a reference to its lane until now. LANE-LIVES
    with_context(|here| unsafe { Lane::drop_task(lane, here) });
}

/// Makes the running task, whose color is its own, a task of `lane`, whose turn this thread has.
///
/// A wake-up from elsewhere cannot meet this: the task is owned by the thread that runs it, so
/// nobody else enqueues it until that gives it up, which is a release (VTABLE-BY-OWNER).
pub(super) fn promote(task: &Task, lane: TaskPtr) {
    let mut extended = Extended::over(task.header(), None, lane.as_ptr());
    extended.vtable.enqueue = enqueue_promoted;
    extended.vtable.left = Some(left_promoted);
    extended.vtable.color = |task| promoted_lane(task).addr().get();
    extended.vtable.kind = TaskKindTag::Laned;
    task.header().set_vtable(Box::into_raw(extended).cast());
    with_context(|here| here.take_turn(lane.as_ptr().cast_const().cast::<Header>()));
}
