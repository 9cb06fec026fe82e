//! Tasks that know since when they have been in line: what `Limit::admit_now` goes by where
//! there is no color with a limit.
//!
//! # Invariants
//!
//! * **READY-STAMPED**: `ready` is written by who puts the task in line, before, and read by who runs it. Both own the
//!   task then (ONE-OWNER), so they never meet.

use std::cell::Cell;

use crate::context::{ThreadContext, with_context};
use crate::driver::clock::Time;
use crate::task::QueuePosition;
use crate::task::cell::{Front, TaskKind};
use crate::task::header::{TaskKindTag, TaskPtr};
use crate::task::poll::{OwnColor, StepOutcome};

/// The kind of a task that has a color of its own and knows since when it has been in line.
#[derive(Default)]
pub(crate) struct Clocked {
    /// In nanoseconds. READY-STAMPED
    ready: Cell<u64>,
}

impl Clocked {
    /// # Safety
    ///
    /// The caller owns the task, which is of this kind, and puts it in line next.
    unsafe fn stamp(task: TaskPtr, place: QueuePosition) {
        let ready = with_context(|here| match (here.ready_since(), here.event_time()) {
            // What a turn spawns is what that turn was waited for.
            (since @ 1.., _) if place == QueuePosition::New => since,
            (_, 0) => Time::now().nanos(),
            (_, moment) => moment,
        });
        // SAFETY: handed on from the caller.
        unsafe { Front::<Clocked>::of(task) }.kind.ready.set(ready); // READY-STAMPED
    }
}

// SAFETY: as for `OwnColor`, which it is but for the stamp.
unsafe impl TaskKind for Clocked {
    const KIND: TaskKindTag = TaskKindTag::Clocked;

    #[inline(always)]
    unsafe fn run(
        task: TaskPtr,
        here: &ThreadContext,
        step: impl FnOnce(TaskPtr, &ThreadContext) -> StepOutcome,
    ) -> Option<TaskPtr> {
        // SAFETY: the caller gives us the right to run. READY-STAMPED
        here.set_ready_since(unsafe { Front::<Clocked>::of(task) }.kind.ready.get());
        // SAFETY: handed on from the caller.
        let again = unsafe { OwnColor::run(task, here, step) };
        here.set_ready_since(0);
        if again == Some(task) {
            // SAFETY: we own it, and the caller puts it in line.
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
