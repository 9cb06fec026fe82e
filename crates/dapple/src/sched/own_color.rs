//! Tasks with a color of their own: the kind of most tasks.
//!
//! The header of such a task is its lane: the task itself goes to a run queue. If the running task is asked for its
//! color, it is *promoted*: it gets a lane that others can share (`lane/promotion.rs`).

use super::Sched;
use crate::context::ThreadContext;
use crate::task::RuntimeShared;
use crate::task::cell::TaskKind;
use crate::task::header::{Header, QueuePosition, Runnable, TaskPtr};
use crate::task::poll::{StepOutcome, step};
use crate::task::runtime_shared::WholeRuntime;

/// The kind of an ordinary task: its color is its own, and its header is its lane.
pub(crate) struct OwnColor;

// SAFETY: the right to run goes to `step`, or into a run queue, and nowhere else.
unsafe impl TaskKind for OwnColor {
    #[inline(always)]
    unsafe fn run(
        task: TaskPtr,
        context: &ThreadContext,
        step: impl FnOnce(TaskPtr, &ThreadContext) -> StepOutcome,
    ) -> Option<TaskPtr> {
        context.set_color(task.addr().get());
        let after = step(task, context); // the caller gives away the right to run. ONE-OWNER
        context.set_color(0);
        if context.has_lane() {
            // SAFETY: as above, and the task has got a lane in this poll, whose turn this thread has.
            return unsafe { leave_new_lane(task, after, context) };
        }
        (after == StepOutcome::Again).then_some(task)
    }

    #[inline]
    unsafe fn enqueue(task: TaskPtr, place: QueuePosition) {
        // SAFETY: a task has the settled pointer, and its runtime outlives it. LIVE-UNTIL-EMPTY
        let sched = unsafe { Sched::from_settled(RuntimeShared::of(task)) };
        // SAFETY: the caller has the right to run, and gives it away.
        sched.enqueue(unsafe { Runnable::new(task) }, place);
    }

    unsafe fn color(task: TaskPtr) -> usize {
        task.addr().get()
    }
}

/// Ends the first turn of a lane that a task got in the poll that has just ended. Returns the lane if tasks are
/// queued in it. Then the caller has an entry of the lane.
///
/// # Safety
///
/// The thread has the lane's turn; for `StepOutcome::Again` the caller owns the task.
#[cold]
unsafe fn leave_new_lane(task: TaskPtr, after: StepOutcome, context: &ThreadContext) -> Option<TaskPtr> {
    if after == StepOutcome::Again {
        // SAFETY: an owned task exists.
        let enqueue = unsafe { task.as_ref() }.vtable().enqueue;
        // SAFETY: the caller owns the task. It goes into the queue of its lane, whose turn this thread has.
        unsafe { enqueue(task, QueuePosition::Back) };
    }
    let lane = TaskPtr::new(context.lane::<Header>().cast_mut()).expect("the lane of this turn");
    // SAFETY: this thread has the turn, and gives it away.
    (unsafe { step(lane, context) } == StepOutcome::Again).then_some(lane)
}
