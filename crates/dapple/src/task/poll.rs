//! One step of a task, in order: run, step, poll, then rest, queue again, or end.

use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::cell::{PanicPayload, TaskCell, TaskKind, discard};
use super::header::{Header, PollOutcome, Reason, Runnable, TaskPtr, field};
use super::join_slot::JoinSlot;
use super::runtime_shared::{RuntimePhase, RuntimeShared};
use super::slab::LocalSlab;
use super::state::{ABORTED, CANCELLED, ENDED, Finished, JOIN_INTEREST, PANICKED, RestOutcome, Snapshot};
use super::waker::borrowed_waker;
use super::{Task, panics, traced};
use crate::context::{SetAside, ThreadContext, with_context};

/// Result of one step.
#[derive(PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// The task waits, and has no owner.
    Rest,
    /// The task is to be queued again. The caller still owns it.
    Again,
    /// The task is done, and its memory may be freed.
    Done,
}

/// Whether a task may be polled: the answer of `TaskKind::ADMIT`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passage {
    /// It may begin, or has begun.
    Begin,
    /// It never begins.
    Refuse,
    /// Not yet. It will be woken to try again.
    Hold,
}

/// Facts known at compile time about a task whose end needs no destructor.
#[derive(Clone, Copy)]
pub(crate) struct Plain {
    /// Size class of its memory.
    pub(crate) class: u8,
    /// See [`VTable::left`](super::header::VTable::left).
    pub(crate) left: Option<unsafe fn(TaskPtr)>,
}

impl Runnable {
    /// Runs it: one poll of a task, or one turn of a lane. The caller queues the returned runnable again, at the end.
    #[inline]
    pub(crate) fn run(self, context: &ThreadContext) -> Option<Runnable> {
        let run = self.header().vtable().run;
        // SAFETY: `self` is the right to run it. RUN-ONCE
        let again = unsafe { run(self.into_ptr(), context) };
        // SAFETY: `run` returns a right to run.
        again.map(|again| unsafe { Runnable::new(again) })
    }
}

/// Polls a task once, or drops its future if it was aborted.
///
/// # Safety
///
/// The caller owns the task and, except for `StepOutcome::Again`, gives it up.
pub(crate) unsafe fn step(task: TaskPtr, context: &ThreadContext) -> StepOutcome {
    // SAFETY: a task that is owned exists. EXISTS
    let step = unsafe { task.as_ref() }.vtable().step;
    // SAFETY: handed on from the caller.
    unsafe { step(task, context) }
}

/// How a task of one kind and type is run, stepped and polled, in this order.
impl<K: TaskKind, F: Future> TaskCell<K, F> {
    pub(super) unsafe fn run(task: TaskPtr, context: &ThreadContext) -> Option<TaskPtr> {
        // SAFETY: `K::run` calls it for the task that it is given, and owns that task then.
        let step = |task, context: &ThreadContext| unsafe { Self::step_inline(task, context) };
        // SAFETY: handed on from the caller.
        unsafe { K::run(task, context, step) }
    }

    pub(super) unsafe fn step(task: TaskPtr, context: &ThreadContext) -> StepOutcome {
        if let Some(admit) = K::ADMIT
            // SAFETY: handed on from the caller; the function is of the task's kind.
            && let Some(after) = unsafe { pass(task, context, admit) }
        {
            return after;
        }
        // SAFETY: handed on from the caller.
        unsafe { Self::step_inline(task, context) }
    }

    #[inline(always)]
    unsafe fn step_inline(task: TaskPtr, context: &ThreadContext) -> StepOutcome {
        // SAFETY: it is called for this task, which the caller owns, and whose stage holds the future. TASK-STAGE
        let poll = |task| unsafe { Self::poll_inline(task) };
        // SAFETY: handed on from the caller.
        unsafe { step_with(task, context, poll, Self::PLAIN) }
    }

    #[inline(always)]
    unsafe fn poll_inline(task: TaskPtr) -> PollOutcome {
        // SAFETY: the caller is the owner. TASK-STAGE
        let stage = unsafe { Self::stage(task) };
        let mut future_is_there = true;
        let polled = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the stage holds the future (TASK-STAGE). The future is pinned: it stays in its cell until it is
            // dropped there.
            let future = unsafe { Pin::new_unchecked(&mut *stage.future) };
            match future.poll(&mut Context::from_waker(&borrowed_waker(task))) {
                Poll::Pending => PollOutcome::Pending,
                Poll::Ready(output) => {
                    future_is_there = false;
                    // SAFETY: the stage holds the future, which is not touched again.
                    unsafe { ManuallyDrop::drop(&mut stage.future) };
                    stage.output = ManuallyDrop::new(output);
                    PollOutcome::Ready
                }
            }
        }));
        // SAFETY: handed on from the caller.
        polled.unwrap_or_else(|payload| unsafe { Self::panicked(task, payload, future_is_there) })
    }

    /// Replaces the future by the payload of a panic.
    #[cold]
    unsafe fn panicked(task: TaskPtr, payload: PanicPayload, future_is_there: bool) -> PollOutcome {
        // SAFETY: the caller is the owner. TASK-STAGE
        let stage = unsafe { Self::stage(task) };
        if future_is_there {
            // SAFETY: the stage still holds the future, which is not touched again.
            let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { ManuallyDrop::drop(&mut stage.future) }));
            if dropped.is_err() {
                // SAFETY: a task's runtime outlives it. LIVE-UNTIL-EMPTY
                unsafe { &(*RuntimeShared::of(task)).panics }.count_one();
            }
            discard(dropped); // a second panic has no receiver
        }
        traced::note_panic(&payload);
        stage.payload = ManuallyDrop::new(Box::new(payload));
        PollOutcome::Panicked
    }

    pub(super) unsafe fn end(task: TaskPtr, reason: Reason) -> PollOutcome {
        // SAFETY: the caller is the owner. TASK-STAGE
        let stage = unsafe { Self::stage(task) };
        // SAFETY: the stage holds the future, which is not touched again.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { ManuallyDrop::drop(&mut stage.future) }));
        match dropped {
            Ok(()) => {
                stage.reason = reason;
                PollOutcome::Ended
            }
            Err(payload) => {
                traced::note_panic(&payload);
                stage.payload = ManuallyDrop::new(Box::new(payload));
                PollOutcome::Panicked
            }
        }
    }
}

/// As [`step`], for one type of future: `poll` polls it, and `plain` describes its end if that needs no destructor.
///
/// # Safety
///
/// As for [`step`].
#[inline(always)]
pub(super) unsafe fn step_with(
    task: TaskPtr,
    context: &ThreadContext,
    poll: impl FnOnce(TaskPtr) -> PollOutcome,
    plain: Option<Plain>,
) -> StepOutcome {
    // SAFETY: a task that is owned exists. EXISTS
    let header = unsafe { task.as_ref() };
    let before = header.state.before_poll();
    context.begin_poll(task.as_ptr());
    if before.has(ABORTED | CANCELLED) && is_aborted(context, before) {
        // SAFETY: handed on from the caller.
        return unsafe { abort(task, context) };
    }
    let polled = poll(task);
    if polled == PollOutcome::Pending {
        if context.is_woken() {
            context.clear_current();
            header.state.settle(context.unsettled());
            return StepOutcome::Again;
        }
        if before.has(CANCELLED) {
            // SAFETY: handed on from the caller; the task was just polled.
            return unsafe { rest_cancelled(task, context, before) };
        }
        return rest(header, context, before);
    }
    match plain {
        // SAFETY: handed on from the caller; the future is gone.
        Some(plain) if polled == PollOutcome::Ready && unsafe { finish_plain(task, context, plain) } => {}
        // SAFETY: as above, and `finish_plain` has done nothing.
        _ => unsafe { finish(task, context, polled) },
    }
    StepOutcome::Done
}

/// Whether a task that was aborted or cancelled was aborted. If not, it will be polled.
#[cold]
fn is_aborted(context: &ThreadContext, before: Snapshot) -> bool {
    context.forget_stays(); // for `is_left_alone`
    before.has(ABORTED)
}

/// Ends a task that was aborted.
///
/// # Safety
///
/// As for [`step`].
#[cold]
#[inline(never)]
unsafe fn abort(task: TaskPtr, context: &ThreadContext) -> StepOutcome {
    // SAFETY: the caller owns the task. TASK-STAGE
    let polled = unsafe { end(task) };
    // SAFETY: handed on from the caller; the future is gone.
    unsafe { finish(task, context, polled) };
    StepOutcome::Done
}

/// Puts a task to rest that was polled and has not woken itself, unless another thread has woken it.
#[inline(always)]
fn rest(header: &Header, context: &ThreadContext, before: Snapshot) -> StepOutcome {
    context.clear_current();
    match header.state.rest(before, context.unsettled()) {
        RestOutcome::Idle => StepOutcome::Rest,
        RestOutcome::Again => StepOutcome::Again,
    }
}

/// As [`rest`], for a task that was cancelled before its last poll: it is ended if it [is left alone](is_left_alone).
/// It is one call at the end of [`step_with`], so that no registers are kept for code after it.
///
/// # Safety
///
/// As for `is_left_alone`; and the caller, except for `StepOutcome::Again`, gives the task up.
#[cold]
#[inline(never)]
unsafe fn rest_cancelled(task: TaskPtr, context: &ThreadContext, before: Snapshot) -> StepOutcome {
    // SAFETY: handed on from the caller.
    if unsafe { is_left_alone(task, context, before) } {
        // SAFETY: as above.
        return unsafe { abort(task, context) };
    }
    // SAFETY: a task that is owned exists. EXISTS
    rest(unsafe { task.as_ref() }, context, before)
}

/// Whether a task that was cancelled before its last poll has no wait that could end by the cancel. LEFT-ALONE in
/// `cancel::grace`
///
/// # Safety
///
/// The caller owns the task and has just polled it, and the task has not woken itself.
#[cold]
unsafe fn is_left_alone(task: TaskPtr, context: &ThreadContext, before: Snapshot) -> bool {
    // SAFETY: a task that is owned exists. EXISTS
    let header = unsafe { task.as_ref() };
    // SAFETY: a task's runtime outlives it. LIVE-UNTIL-EMPTY
    let shared = unsafe { &*RuntimeShared::of(task) };
    if !matches!(shared.phase(), RuntimePhase::Running | RuntimePhase::Simulated) {
        return false; // a runtime that ends has cancelled all its tasks, and has a deadline for them
    }
    header.state.add_ref();
    // SAFETY: the reference was just counted.
    let task = unsafe { Task::from_counted(task) };
    let is_left_alone = (shared.is_left_alone)(shared, &task, context.stays() != 0);
    is_left_alone && !header.state.was_woken_since(before)
}

/// Asks `TaskKind::ADMIT` before a poll. `None`: the task may be polled.
///
/// # Safety
///
/// As for [`step`]. With `None` the caller still owns the task.
pub(super) unsafe fn pass(
    task: TaskPtr,
    context: &ThreadContext,
    admit: unsafe fn(TaskPtr) -> Passage,
) -> Option<StepOutcome> {
    // SAFETY: a task that is owned exists. EXISTS
    let header = unsafe { task.as_ref() };
    let before = header.state.before_poll();
    if before.has(ABORTED) {
        return None;
    }
    // SAFETY: the caller owns the task, and the function belongs to the task's kind.
    match unsafe { admit(task) } {
        Passage::Begin => None,
        Passage::Hold => Some(match header.state.rest(before, 0) {
            RestOutcome::Idle => StepOutcome::Rest,
            RestOutcome::Again => StepOutcome::Again,
        }),
        Passage::Refuse => {
            // SAFETY: a task's runtime outlives it. LIVE-UNTIL-EMPTY
            unsafe { &*RuntimeShared::of(task) }.count_refused();
            context.begin_last_poll(task.as_ptr());
            // SAFETY: the caller owns the task. TASK-STAGE
            let polled = unsafe { (header.vtable().end)(task, Reason::Refused) };
            // SAFETY: as above, and the task is given up. The future has been dropped.
            unsafe { finish(task, context, polled) };
            Some(StepOutcome::Done)
        }
    }
}

/// As [`finish`], for the most common case: an output without a destructor, and memory that returns to this worker.
/// `false`: another case, and nothing has been done.
///
/// # Safety
///
/// As for [`finish`]; `plain` describes the task.
#[inline(always)]
unsafe fn finish_plain(task: TaskPtr, context: &ThreadContext, plain: Plain) -> bool {
    let shared = RuntimeShared::of(task);
    let Some(slab) = context.slab_of::<_, LocalSlab>(shared) else { return false };
    // SAFETY: a task that is owned exists. EXISTS
    let header = unsafe { task.as_ref() };
    if header.vtable().is_extended {
        return false;
    }
    if let Some(left) = plain.left {
        // SAFETY: the caller owns the task, and the future has been dropped.
        unsafe { left(task) };
    }
    slab.finished.add_one();
    context.clear_current();
    match header.state.finish(0, context.unsettled(), false) {
        // SAFETY: no reference is left.
        Finished::Last => unsafe { slab.put(shared, plain.class, task) },
        // SAFETY: the task was just declared done, with this result.
        Finished::WakeJoiner => unsafe { wake_joiner(task) },
        Finished::Shared | Finished::Unwanted => {}
    }
    true
}

/// Wakes the joiner of a task that is done, and drops the scheduler's references.
///
/// # Safety
///
/// The caller has just declared the task done, with the result [`Finished::WakeJoiner`].
unsafe fn wake_joiner(task: TaskPtr) {
    // SAFETY: the scheduler's references exist until `drop_existence`. EXISTS
    let header = unsafe { task.as_ref() };
    // SAFETY: as above.
    let slot = unsafe { JoinSlot::of(task) };
    // SAFETY: the slot holds a waker, and belongs to the thread that declared the task done. SLOT
    let waker = unsafe { slot.take() };
    waker.wake();
    if header.state.drop_existence() {
        // SAFETY: no reference is left.
        unsafe { (header.vtable().free)(task) };
    }
}

/// Drops the future of an aborted task.
///
/// # Safety
///
/// As for [`VTable::end`](super::header::VTable::end).
#[cold]
unsafe fn end(task: TaskPtr) -> PollOutcome {
    // SAFETY: a task's runtime outlives it. LIVE-UNTIL-EMPTY
    let shared = unsafe { &*RuntimeShared::of(task) };
    let reason = if shared.phase() == RuntimePhase::Stopped { Reason::Gone } else { Reason::Aborted };
    // SAFETY: the caller owns the task, so it exists.
    let end = unsafe { task.as_ref() }.vtable().end;
    // SAFETY: handed on from the caller.
    unsafe { end(task, reason) }
}

/// Declares a task done: reports a panic, drops an unwanted output, wakes the joiner, and frees the memory.
///
/// # Safety
///
/// The caller owns the task and gives it up. The stage is as `polled` says.
unsafe fn finish(task: TaskPtr, context: &ThreadContext, polled: PollOutcome) {
    // SAFETY: a task that is owned exists. EXISTS
    let header = unsafe { task.as_ref() };
    let shared = RuntimeShared::of(task);
    if polled == PollOutcome::Panicked {
        // SAFETY: the stage holds a payload, which belongs to the owner until the task is done. TASK-STAGE
        let payload = unsafe { &*field::<Box<PanicPayload>>(task, header.vtable().stage_offset) };
        // SAFETY: handed on from the caller.
        unsafe { panics::report(task, context, payload) };
    }
    // SAFETY: a task's runtime outlives it. LIVE-UNTIL-EMPTY
    unsafe { &*shared }.count_finished(context.slab_of::<_, LocalSlab>(shared));
    let how = match polled {
        PollOutcome::Panicked => PANICKED,
        PollOutcome::Ended => ENDED,
        _ => 0,
    };
    let drops_output = header.vtable().drops_output;
    let has_result = (polled == PollOutcome::Ready && drops_output) || polled == PollOutcome::Panicked;
    let (mut unwanted, mut has_left) = (!has_result, false);
    loop {
        if !unwanted && !header.state.load().has(JOIN_INTEREST) {
            unwanted = true;
            // SAFETY: without a handle the output belongs to the owner. HANDLE-OUTPUT
            unsafe { drop_result(task, context, polled) };
        }
        // Read again: a destructor may have asked for the color, which gives the task a lane.
        if !has_left && let Some(left) = header.vtable().left {
            has_left = true;
            // SAFETY: the caller owns the task, and the future has been dropped.
            unsafe { left(task) };
        }
        context.clear_current();
        match header.state.finish(how, context.unsettled(), !unwanted) {
            // The handle was dropped between the two reads. The destructor of the output may use the task's waker.
            Finished::Unwanted => context.set_current(task.as_ptr()),
            Finished::Shared => return,
            // SAFETY: no reference is left.
            Finished::Last => return unsafe { (header.vtable().free)(task) },
            // SAFETY: the task was just declared done, with this result.
            Finished::WakeJoiner => return unsafe { wake_joiner(task) },
        }
    }
}

/// Drops the output or the payload of a task. A panic of the destructor is caught.
///
/// # Safety
///
/// The caller owns the task and its output or payload. The stage is as `polled` says.
unsafe fn drop_result(task: TaskPtr, context: &ThreadContext, polled: PollOutcome) {
    // SAFETY: the caller has a reference, or owns the task.
    let vtable = unsafe { task.as_ref() }.vtable();
    match polled {
        PollOutcome::Ready => {
            // SAFETY: handed on from the caller.
            let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { (vtable.drop_output)(task) }));
            if let Err(payload) = &dropped {
                traced::note_panic(payload);
                // SAFETY: handed on from the caller.
                unsafe { panics::report(task, context, payload) };
            }
            discard(dropped);
        }
        PollOutcome::Panicked => {
            // SAFETY: handed on from the caller.
            discard(Err(unsafe { take_payload(task) }));
        }
        PollOutcome::Ended | PollOutcome::Pending => {}
    }
}

/// Takes the payload of a panic.
///
/// # Safety
///
/// The task panicked, and the payload belongs to the caller, which does not take it again.
pub(crate) unsafe fn take_payload(task: TaskPtr) -> PanicPayload {
    // SAFETY: the caller has a reference, or owns the task.
    let offset = unsafe { task.as_ref() }.vtable().stage_offset;
    // SAFETY: the stage is at this offset, and holds a payload.
    *unsafe { field::<Box<PanicPayload>>(task, offset).read() }
}

/// The reason for having no output.
///
/// # Safety
///
/// The task ended without an output or a panic, and the caller has a reference.
pub(crate) unsafe fn read_reason(task: TaskPtr) -> Reason {
    // SAFETY: the caller has a reference.
    let offset = unsafe { task.as_ref() }.vtable().stage_offset;
    // SAFETY: the stage is at this offset, and holds a reason.
    unsafe { field::<Reason>(task, offset).read() }
}

/// A future that calls a closure at its first poll.
pub(crate) struct ClosureFuture<F>(Option<F>);

impl<F> ClosureFuture<F> {
    pub(crate) fn new(f: F) -> ClosureFuture<F> {
        ClosureFuture(Some(f))
    }
}

impl<F> Unpin for ClosureFuture<F> {}

impl<F: FnOnce() -> T, T> Future for ClosureFuture<F> {
    type Output = T;

    fn poll(mut self: std::pin::Pin<&mut Self>, _: &mut std::task::Context<'_>) -> std::task::Poll<T> {
        let f = self.0.take().expect("a call is polled once");
        std::task::Poll::Ready(f())
    }
}

/// Ends a task that has not begun, because no thread can run it.
pub(crate) fn refuse(runnable: Runnable) {
    let task = runnable.into_ptr();
    // SAFETY: a task that is owned exists.
    let end = unsafe { task.as_ref() }.vtable().end;
    let _aside = SetAside::new();
    with_context(|context| {
        context.set_current(task.as_ptr());
        // SAFETY: `runnable` was the right to run. TASK-STAGE
        let polled = unsafe { end(task, Reason::Refused) };
        // SAFETY: as above, and the task is given up. The future has been dropped.
        unsafe { finish(task, context, polled) };
    });
}
