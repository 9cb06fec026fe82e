//! Tasks of a simulation: each has a number, and the world records each of its polls.
//!
//! They differ from other tasks by their vtables, so other tasks pay nothing. The vtable's functions record the poll: `run`
//! of a task that is run by itself, `step` of a task that its lane steps.

use std::cell::RefCell;
use std::rc::Rc;

use super::cell::{PanicPayload, message};
use super::header::{Extended, Header, TaskPtr, VTable};
use super::poll::StepOutcome;
use crate::context::ThreadContext;
use crate::world::{self, log};

/// The number of a task of a simulation, and the functions that poll it.
#[derive(Clone, Copy)]
pub(crate) struct TracedVTable {
    pub(crate) number: u64,
    run: unsafe fn(TaskPtr, &ThreadContext) -> Option<TaskPtr>,
    step: unsafe fn(TaskPtr, &ThreadContext) -> StepOutcome,
}

impl TracedVTable {
    /// Makes the vtable of a new task of a simulated world record its polls.
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
        context: &ThreadContext,
        color: log::PolledColor,
        poll: impl FnOnce() -> R,
    ) -> R {
        let begun = world::with(|world| world.begin_poll(self.number, color));
        let result = observe_poll(task, context, poll);
        // Not in the simulation that it is from, if that is over and it is dropped.
        begun.map(|begun| world::with(|world| world.end_poll(begun)));
        result
    }
}

/// Whether polls can be observed in this build. The checks cost a release build one or two percent at spawning and at timers
/// (`versus/instructions`), so they are in builds with debug assertions alone.
pub(crate) const OBSERVES: bool = cfg!(debug_assertions);

/// An observer of the tasks of one simulation.
pub(crate) trait PollObserver {
    /// Calls `poll`, which polls `task`, once.
    fn around_poll(&self, task: TaskPtr, context: &ThreadContext, poll: &mut dyn FnMut());

    /// A task has panicked.
    fn note_panic(&self, message: &str);
}

thread_local! {
    /// The observer of the simulation that this thread runs.
    static OBSERVER: RefCell<Option<Rc<dyn PollObserver>>> = const { RefCell::new(None) };
}

/// Makes `observer` the one of this thread, and returns the one before.
pub(crate) fn replace_observer(observer: Option<Rc<dyn PollObserver>>) -> Option<Rc<dyn PollObserver>> {
    OBSERVER.replace(observer)
}

fn observer() -> Option<Rc<dyn PollObserver>> {
    // Tasks may be dropped while a thread ends, after this was.
    OBSERVER.try_with(|observer| observer.borrow().clone()).ok().flatten()
}

/// A task has panicked.
pub(super) fn note_panic(payload: &PanicPayload) {
    if OBSERVES && let Some(observer) = observer() {
        observer.note_panic(message(payload));
    }
}

fn observe_poll<R>(task: TaskPtr, context: &ThreadContext, poll: impl FnOnce() -> R) -> R {
    let Some(observer) = observer() else { return poll() };
    let (mut poll, mut result) = (Some(poll), None);
    observer.around_poll(task, context, &mut || result = poll.take().map(|poll| poll()));
    result.expect("an observer polls")
}

/// # Safety
///
/// As for `VTable::run`.
unsafe fn run(task: TaskPtr, context: &ThreadContext) -> Option<TaskPtr> {
    // SAFETY: a task that is owned exists. EXISTS
    let header = unsafe { task.as_ref() };
    let observed = TracedVTable::of(header);
    let is_blocking = header.vtable().is_blocking();
    let color = if is_blocking { log::PolledColor::None } else { log::PolledColor::Own };
    // SAFETY: handed on from the caller.
    observed.poll(task, context, color, || unsafe { (observed.run)(task, context) })
}

/// # Safety
///
/// As for `VTable::step`.
unsafe fn step(task: TaskPtr, context: &ThreadContext) -> StepOutcome {
    // SAFETY: a task that is owned exists. EXISTS
    let observed = TracedVTable::of(unsafe { task.as_ref() });
    // SAFETY: handed on from the caller.
    observed.poll(task, context, log::PolledColor::Lane(context.lane_address()), || unsafe {
        (observed.step)(task, context)
    })
}
