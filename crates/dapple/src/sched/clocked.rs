//! Tasks that know when they were queued. `Limit::try_admit` uses that time where there is no color with a limit.
//!
//! # Invariants
//!
//! * **READY-STAMPED**: `ready` is written by the thread that queues the task, before it does, and read by the thread
//!   that runs the task. Each owns the task at that time (ONE-OWNER), so the accesses never overlap.

use std::cell::Cell;

use super::own_color::OwnColor;
use crate::context::{ThreadContext, with_context};
use crate::driver::clock::Time;
use crate::task::QueuePosition;
use crate::task::cell::{CellPrefix, TaskKind};
use crate::task::header::TaskPtr;
use crate::task::poll::StepOutcome;

/// The kind of a task that has a color of its own and knows when it was queued.
#[derive(Default)]
pub(crate) struct Clocked {
    /// In nanoseconds. READY-STAMPED
    ready: Cell<u64>,
}

impl Clocked {
    /// # Safety
    ///
    /// The caller owns the task, which is of this kind, and queues it next.
    unsafe fn stamp(task: TaskPtr, place: QueuePosition) {
        let ready = with_context(|context| match (context.ready_since(), context.event_time()) {
            // A task that is spawned in a turn counts as queued when that turn's task was.
            (since @ 1.., _) if place == QueuePosition::New => since,
            (_, 0) => Time::now().nanos(),
            (_, moment) => moment,
        });
        // SAFETY: handed on from the caller.
        unsafe { CellPrefix::<Clocked>::of(task) }.kind.ready.set(ready); // READY-STAMPED
    }
}

// SAFETY: as for `OwnColor`, from which it differs only by the stamp.
unsafe impl TaskKind for Clocked {
    #[inline(always)]
    unsafe fn run(
        task: TaskPtr,
        context: &ThreadContext,
        step: impl FnOnce(TaskPtr, &ThreadContext) -> StepOutcome,
    ) -> Option<TaskPtr> {
        // SAFETY: the caller gives away the right to run. READY-STAMPED
        context.set_ready_since(unsafe { CellPrefix::<Clocked>::of(task) }.kind.ready.get());
        // SAFETY: handed on from the caller.
        let again = unsafe { OwnColor::run(task, context, step) };
        context.set_ready_since(0);
        if again == Some(task) {
            // SAFETY: the task is owned here, and the caller queues it.
            unsafe { Clocked::stamp(task, QueuePosition::Back) };
        }
        again
    }

    unsafe fn enqueue(task: TaskPtr, place: QueuePosition) {
        // SAFETY: the caller owns the task.
        unsafe { Clocked::stamp(task, place) };
        // SAFETY: handed on from the caller.
        unsafe { OwnColor::enqueue(task, place) };
    }

    unsafe fn color(task: TaskPtr) -> usize {
        task.addr().get()
    }
}
