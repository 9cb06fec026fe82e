//! Promotion: a running task with a color of its own gets a lane that others can share.
//!
//! The thread that runs the task has the new lane's turn until the poll is over (`sched/own_color.rs`).

use super::lane::Lane;
use crate::context::with_context;
use crate::task::header::{Extended, Header, TaskPtr};
use crate::task::{QueuePosition, Task};

fn promoted_lane(task: TaskPtr) -> TaskPtr {
    // SAFETY: the callers own the task or have a reference to it, so it exists.
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
    with_context(|context| unsafe { Lane::drop_task(lane, context) });
}

/// Makes the running task, whose color is its own, a task of `lane`, whose turn this thread has.
///
/// No wake-up can interfere: the thread that runs the task owns it, so no other thread enqueues it until the owner
/// gives it up, which is a release (VTABLE-BY-OWNER).
pub(super) fn promote(task: &Task, lane: TaskPtr) {
    let mut extended = Extended::over(task.header(), None, lane.as_ptr());
    extended.vtable.enqueue = enqueue_promoted;
    extended.vtable.left = Some(left_promoted);
    extended.vtable.color = |task| promoted_lane(task).addr().get();
    extended.vtable.queued = None;
    task.header().set_vtable(Box::into_raw(extended).cast());
    with_context(|context| context.take_turn(lane.as_ptr().cast_const().cast::<Header>()));
}
