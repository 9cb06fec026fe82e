//! Tasks of a simulation: each has a number, and the world is told of each of its polls.
//!
//! It is by their vtables that they differ from others, so those pay nothing for it. A poll is told
//! where the vtable is asked for it: by `run` for a task that is run by itself, by `step` for one that
//! its lane steps.

use super::cancel_points;
use crate::context::ThreadContext;
use super::header::{Extended, Header, TaskKindTag, TaskPtr, VTable};
use super::poll::StepOutcome;
use crate::world::{self, log};

/// What is kept of a task of a simulation.
#[derive(Clone, Copy)]
pub(crate) struct TracedVTable {
    pub(crate) number: u64,
    run: unsafe fn(TaskPtr, &ThreadContext) -> Option<TaskPtr>,
    step: unsafe fn(TaskPtr, &ThreadContext) -> StepOutcome,
}

impl TracedVTable {
    /// Has the polls of a task told that is about to be made, in a simulated world.
    pub(crate) fn over(vtable: &mut VTable) -> TracedVTable {
        let observed = TracedVTable { number: world::number(), run: vtable.run, step: vtable.step };
        vtable.run = run;
        vtable.step = step;
        observed
    }

    fn of(task: &Header) -> TracedVTable {
        Extended::of(task).and_then(|extended| extended.observed).expect("a task of a simulation")
    }

    fn poll<R>(
        self,
        task: TaskPtr,
        here: &ThreadContext,
        color: log::PolledColor,
        poll: impl FnOnce() -> R,
    ) -> R {
        let begun = world::with(|world| world.begin_poll(self.number, color));
        let result = cancel_points::around_poll(task, here, poll);
        // Not in the simulation that it is from, if that is over and it is dropped.
        begun.map(|begun| world::with(|world| world.end_poll(begun)));
        result
    }
}

/// # Safety
///
/// As for `VTable::run`.
unsafe fn run(task: TaskPtr, here: &ThreadContext) -> Option<TaskPtr> {
    // SAFETY: a task that is owned exists. EXISTS
    let header = unsafe { task.as_ref() };
    let observed = TracedVTable::of(header);
    let color = if header.vtable().kind == TaskKindTag::Blocking {
        log::PolledColor::None
    } else {
        log::PolledColor::Own
    };
    // SAFETY: handed on from the caller.
    observed.poll(task, here, color, || unsafe { (observed.run)(task, here) })
}

/// # Safety
///
/// As for `VTable::step`.
unsafe fn step(task: TaskPtr, here: &ThreadContext) -> StepOutcome {
    // SAFETY: a task that is owned exists. EXISTS
    let observed = TracedVTable::of(unsafe { task.as_ref() });
    // SAFETY: handed on from the caller.
    observed.poll(task, here, log::PolledColor::Lane(here.lane_address()), || unsafe {
        (observed.step)(task, here)
    })
}
