//! Blocking calls as a kind of task: a closure that runs once, on a thread of the pool.

use crate::context::ThreadContext;
use crate::prim::{AtomicU8, Ordering};
use crate::task::cell::{CellPrefix, TaskKind};
use crate::task::header::{QueuePosition, TaskPtr};
use crate::task::poll::StepOutcome;
use crate::task::state::ABORTED;

/// The kind of a closure for the pool of blocking calls.
///
/// One atomic step decides whether it begins or is withdrawn: by its thread, or by a cancelled wait for it.
#[derive(Default)]
pub(crate) struct Blocking(AtomicU8);

const IN_LINE: u8 = 0;
const BEGUN: u8 = 1;
const WITHDRAWN: u8 = 2;

/// Keeps a call from beginning, unless it has begun.
///
/// # Safety
///
/// The caller has a reference to `task`, which is of the kind [`Blocking`].
unsafe fn withdraw(task: TaskPtr) {
    // SAFETY: handed on from the caller.
    let word = &unsafe { CellPrefix::<Blocking>::of(task) }.kind.0;
    let _ = word.compare_exchange(IN_LINE, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire);
}

// SAFETY: the right to run goes to `step`, or into the pool's queue, and nowhere else.
unsafe impl TaskKind for Blocking {
    const WITHDRAW: Option<unsafe fn(TaskPtr)> = Some(withdraw);

    unsafe fn run(
        task: TaskPtr,
        context: &ThreadContext,
        step: impl FnOnce(TaskPtr, &ThreadContext) -> StepOutcome,
    ) -> Option<TaskPtr> {
        // SAFETY: a task that is owned exists, and it is of this kind.
        let front = unsafe { CellPrefix::<Blocking>::of(task) };
        if front.kind.0.swap(BEGUN, Ordering::AcqRel) == WITHDRAWN {
            // SAFETY: as above.
            unsafe { task.as_ref() }.state.mark(ABORTED);
        }
        let after = step(task, context); // the caller gives away the right to run. ONE-OWNER
        debug_assert!(after == StepOutcome::Done, "a closure does not wait");
        None
    }

    unsafe fn enqueue(_task: TaskPtr, _place: QueuePosition) {
        unreachable!(
            "a blocking call is queued once, by its pool: it is owned until it is done, so no wake-up enqueues it"
        );
    }

    unsafe fn color(_task: TaskPtr) -> usize {
        0
    }
}
