//! Tasks that share a lane: those spawned into a color, and those promoted to a lane of their own.

use super::lane::Lane;
use crate::task::cell::{Front, TaskKind};
use crate::task::context::{ThreadContext, with_context};
use crate::task::header::{Extended, Header, TaskKindTag, TaskPtr};
use crate::task::poll::StepOutcome;
use crate::task::{QueuePosition, Task};

/// The kind of a task in a lane.
pub(crate) struct Laned {
    /// A counted reference, until the future is gone. LANE-LIVES
    pub(super) lane: TaskPtr,
}

/// # Safety
///
/// As for `VTable::left`.
unsafe fn left(task: TaskPtr) {
    // SAFETY: the caller owns the task, so it exists, and it is of this kind.
    let lane = unsafe { Front::<Laned>::of(task) }.kind.lane;
    // SAFETY: the task holds a reference to its lane until now. LANE-LIVES
    with_context(|here| unsafe { Lane::drop_task(lane, here) });
}

// SAFETY: the right to run goes into the lane's line and nowhere else.
unsafe impl TaskKind for Laned {
    const KIND: TaskKindTag = TaskKindTag::Laned;

    unsafe fn run(
        _task: TaskPtr,
        _here: &ThreadContext,
        _step: impl FnOnce(TaskPtr, &ThreadContext) -> StepOutcome,
    ) -> Option<TaskPtr> {
        unreachable!("a task with a lane is run by its lane");
    }

    unsafe fn enqueue(task: TaskPtr, place: QueuePosition) {
        // SAFETY: the caller owns the task, so it exists, and it is of this kind.
        let lane = unsafe { Front::<Laned>::of(task) }.kind.lane;
        // SAFETY: handed on from the caller.
        unsafe { Lane::push(lane, task, place, None) };
    }

    const LEFT: Option<unsafe fn(TaskPtr)> = Some(left);

    unsafe fn color(task: TaskPtr) -> usize {
        // SAFETY: the caller has a reference, and the task is of this kind.
        let lane = unsafe { Front::<Laned>::of(task) }.kind.lane;
        lane.addr().get()
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
    with_context(|here| here.lane.set(lane.as_ptr().cast_const().cast::<Header>()));
}
