//! Tasks with a color of their own: the kind of most tasks.
//!
//! The header of such a task is its lane: what goes to a run queue is the task itself. If the running task is asked for its
//! color, it is *promoted*: it gets a lane that others can share (`lane/promotion.rs`).

use super::Sched;
use crate::task::RuntimeShared;
use crate::task::cell::TaskKind;
use crate::task::context::ThreadContext;
use crate::task::header::{QueuePosition, Runnable, TaskPtr};
use crate::task::poll::{StepOutcome, step};
use crate::task::runtime_shared::WholeRuntime;

/// The kind of an ordinary task: its color is its own, and its header is its lane.
pub(crate) struct OwnColor;

// SAFETY: the right to run goes to `step`, or into a run queue, and nowhere else.
unsafe impl TaskKind for OwnColor {
    #[inline(always)]
    unsafe fn run(
        task: TaskPtr,
        here: &ThreadContext,
        step: impl FnOnce(TaskPtr, &ThreadContext) -> StepOutcome,
    ) -> Option<TaskPtr> {
        here.color.set(task.addr().get());
        let after = step(task, here); // the caller gives us the right to run. ONE-OWNER
        here.color.set(0);
        if !here.lane.get().is_null() {
            // SAFETY: as above, and the task has got a lane meanwhile, whose turn we have.
            return unsafe { leave_new_lane(task, after, here) };
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

/// Ends the first turn of a lane that a task got in the poll that is just over. What is returned is the lane, if
/// something is in line there, of which the caller has an entry then.
///
/// # Safety
///
/// The thread has the lane's turn; for `StepOutcome::Again` the caller owns the task.
#[cold]
unsafe fn leave_new_lane(task: TaskPtr, after: StepOutcome, here: &ThreadContext) -> Option<TaskPtr> {
    if after == StepOutcome::Again {
        // SAFETY: an owned task exists.
        let enqueue = unsafe { task.as_ref() }.vtable().enqueue;
        // SAFETY: we own the task. It goes into its lane's line, since we have that lane's turn.
        unsafe { enqueue(task, QueuePosition::Back) };
    }
    let lane = TaskPtr::new(here.lane.get().cast_mut()).expect("the lane of this turn");
    // SAFETY: this thread has the turn, and gives it away.
    (unsafe { step(lane, here) } == StepOutcome::Again).then_some(lane)
}
