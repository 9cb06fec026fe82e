//! The context of a thread: the runtime that it works for, the task that it polls, and the scopes around that.
//!
//! There is one thread-local, so that code which needs several parts of it pays for one access. It needs no
//! initialization and has no destructor, so it can be used from anywhere, also from the destructors of other
//! thread-locals. Layers above use it by its verbs alone; the fields of a part are private to its file.
//!
//! ```text
//! task      the current task, references and wake-ups of its own, task-locals
//! worker    the runtime, the worker that this thread drives, its store of memory
//! turn      the running color, the lane whose turn this thread has, the main color
//! cancel    the cancellation stack, the child that is polled, the budget of a poll
//! clock     times that were read already
//! states    closures of states, maps
//! slot      pointers to values of the layers above
//! closure   code that must not wait;  runtime: errors where there is no runtime
//! ```
//!
//! # Invariants
//!
//! * **ONE-CONTEXT**: all that a thread knows of the code that it runs is in its [`ThreadContext`], and is exchanged as a
//!   whole: where a nested `block_on` begins and ends ([`SetAside`]), and where a virtual thread of a simulation gives way
//!   ([`for_virtual_thread`]). A second thread-local would be shared by polls that are nested, or that alternate. A pointer
//!   to a stack in a `ThreadContext` is to the stack of the thread, or virtual thread, whose context it is.

mod cancel;
mod clock;
pub(crate) mod closure;
mod runtime;
mod slot;
mod states;
mod task;
mod turn;
mod worker;

pub(crate) use runtime::{HANDLE, no_runtime, no_runtime_error, require};
pub(crate) use slot::{Fills, OfChild, OfFrame};
pub(crate) use {
    cancel::BUDGET,
    slot::{OfComputation, OfDrops, OfLocal, OfRuntime, OfSlab, OfTask, OfWorker},
    states::InMap,
};

pub(crate) struct ThreadContext {
    task: task::TaskPart,
    worker: worker::WorkerPart,
    turn: turn::TurnPart,
    cancel: cancel::CancelPart,
    clock: clock::ClockPart,
    states: states::StatesPart,
}

impl ThreadContext {
    /// The context of a thread that is in no runtime, task or scope.
    const fn new() -> ThreadContext {
        ThreadContext {
            task: task::TaskPart::new(),
            worker: worker::WorkerPart::new(),
            turn: turn::TurnPart::new(),
            cancel: cancel::CancelPart::new(),
            clock: clock::ClockPart::new(),
            states: states::StatesPart::new(),
        }
    }

    fn swap(&self, other: &ThreadContext) {
        self.task.swap(&other.task);
        self.worker.swap(&other.worker);
        self.turn.swap(&other.turn);
        self.cancel.swap(&other.cancel);
        self.clock.swap(&other.clock);
        self.states.swap(&other.states);
    }
}

crate::prim::thread_locals! {
    static CONTEXT: ThreadContext = const { ThreadContext::new() };
}

/// Calls `f` with this thread's context.
#[inline(always)]
pub(crate) fn with_context<R>(f: impl FnOnce(&ThreadContext) -> R) -> R {
    // Not by `CONTEXT.with(f)`: that is a function for each `f`, which is not always inlined.
    let context = CONTEXT.with(std::ptr::from_ref);
    // SAFETY: it belongs to this thread and has no destructor, so it exists until the thread has ended.
    f(unsafe { &*context })
}

/// This thread's context, without a closure. It is not `Send`, so it stays on this thread.
pub(crate) struct ThisThread(*const ThreadContext);

/// See [`ThisThread`].
#[inline(always)]
pub(crate) fn this_thread() -> ThisThread {
    ThisThread(CONTEXT.with(std::ptr::from_ref))
}

impl std::ops::Deref for ThisThread {
    type Target = ThreadContext;

    #[inline(always)]
    fn deref(&self) -> &ThreadContext {
        // SAFETY: it belongs to this thread and has no destructor, so it exists until the thread has ended.
        unsafe { &*self.0 }
    }
}

/// Sets this thread's context aside until the guard is dropped: for a nested `block_on`. ONE-CONTEXT
pub(crate) struct SetAside(ThreadContext);

impl SetAside {
    pub(crate) fn new() -> SetAside {
        let outer = ThreadContext::new();
        with_context(|context| {
            outer.states.nest_in(&context.states);
            context.swap(&outer);
        });
        SetAside(outer)
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        with_context(|context| context.swap(&self.0));
    }
}

/// The context of a new virtual thread, as a function that exchanges it for this thread's. ONE-CONTEXT
pub(crate) fn for_virtual_thread() -> Box<dyn Fn()> {
    let own = ThreadContext::new();
    Box::new(move || with_context(|context| context.swap(&own)))
}
