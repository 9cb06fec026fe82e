//! One step of a task: poll it, then put it to rest, in line again, or to its end.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::cell::{Front, PanicPayload, TaskKind, discard};
use super::header::{Header, PollOutcome, Reason, Runnable, TaskKindTag, TaskPtr, field};
use super::join_slot::JoinSlot;
use super::runtime_shared::{RuntimePhase, RuntimeShared};
use super::slab::LocalSlab;
use super::state::{ABORTED, CANCELLED, ENDED, Finished, JOIN_INTEREST, PANICKED, RestOutcome, Snapshot};
use super::{QueuePosition, Task, panics, traced};
use crate::context::{SetAside, ThreadContext, with_context};
use crate::prim::{AtomicU8, Ordering};

/// What became of a task in one step.
#[derive(PartialEq, Eq)]
pub(crate) enum StepOutcome {
    /// It waits, and nobody owns it.
    Rest,
    /// It is to be put in line again; the caller still owns it.
    Again,
    /// It is done, and may be gone from memory.
    Done,
}

/// Whether a task that comes to its turn may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Passage {
    /// It may, or has.
    Begin,
    /// It never will.
    Refuse,
    /// Not yet: it is woken to try again.
    Hold,
}

/// What is known at compile time of a task that ends without ado.
#[derive(Clone, Copy)]
pub(crate) struct Plain {
    /// The class of its memory.
    pub(crate) class: u8,
    /// See [`VTable::left`](super::header::VTable::left).
    pub(crate) left: Option<unsafe fn(TaskPtr)>,
}

/// Polls a task once, or drops its future if it was aborted.
///
/// # Safety
///
/// The caller owns the task, and (but for `StepOutcome::Again`) gives it up.
pub(crate) unsafe fn step(task: TaskPtr, here: &ThreadContext) -> StepOutcome {
    // SAFETY: a task that is owned exists. EXISTS
    let step = unsafe { task.as_ref() }.vtable().step;
    // SAFETY: handed on from the caller.
    unsafe { step(task, here) }
}

/// As [`step`], for a type of future: `poll` polls it, and `plain` says how it ends if all goes well.
///
/// # Safety
///
/// As for [`step`].
#[inline(always)]
pub(super) unsafe fn step_with(
    task: TaskPtr,
    here: &ThreadContext,
    poll: impl FnOnce(TaskPtr) -> PollOutcome,
    plain: Option<Plain>,
) -> StepOutcome {
    // SAFETY: a task that is owned exists. EXISTS
    let header = unsafe { task.as_ref() };
    let before = header.state.before_poll();
    here.begin_poll(task.as_ptr());
    if before.has(ABORTED | CANCELLED) && is_aborted(here, before) {
        // SAFETY: handed on from the caller.
        return unsafe { abort(task, here) };
    }
    let polled = poll(task);
    if polled == PollOutcome::Pending {
        if here.is_woken() {
            here.clear_current();
            header.state.settle(here.unsettled());
            return StepOutcome::Again;
        }
        if before.has(CANCELLED) {
            // SAFETY: handed on from the caller, who has polled the task.
            return unsafe { rest_cancelled(task, here, before) };
        }
        return rest(header, here, before);
    }
    match plain {
        // SAFETY: handed on from the caller; the future is gone.
        Some(plain) if polled == PollOutcome::Ready && unsafe { finish_plain(task, here, plain) } => {}
        // SAFETY: as above, and nothing has been done about it yet.
        _ => unsafe { finish(task, here, polled) },
    }
    StepOutcome::Done
}

/// Whether a task that was aborted or cancelled was aborted. If not, it is going to be polled.
#[cold]
fn is_aborted(here: &ThreadContext, before: Snapshot) -> bool {
    here.forget_stays(); // for `is_left_alone`
    before.has(ABORTED)
}

/// Ends a task that was aborted.
///
/// # Safety
///
/// As for [`step`].
#[cold]
#[inline(never)]
unsafe fn abort(task: TaskPtr, here: &ThreadContext) -> StepOutcome {
    // SAFETY: the caller owns the task. TASK-STAGE
    let polled = unsafe { end(task) };
    // SAFETY: handed on from the caller; the future is gone.
    unsafe { finish(task, here, polled) };
    StepOutcome::Done
}

/// A task that was polled and has not woken itself comes to rest, unless it was woken by others.
#[inline(always)]
fn rest(header: &Header, here: &ThreadContext, before: Snapshot) -> StepOutcome {
    here.clear_current();
    match header.state.rest(before, here.unsettled()) {
        RestOutcome::Idle => StepOutcome::Rest,
        RestOutcome::Again => StepOutcome::Again,
    }
}

/// As [`rest`], for a task that was cancelled before its last poll: it is ended if it [is left alone](is_left_alone).
/// One call at the end of [`step_with`], so that nothing has to be kept for what comes after it.
///
/// # Safety
///
/// As for `is_left_alone`; and the caller gives the task up, but for `StepOutcome::Again`.
#[cold]
#[inline(never)]
unsafe fn rest_cancelled(task: TaskPtr, here: &ThreadContext, before: Snapshot) -> StepOutcome {
    // SAFETY: handed on from the caller.
    if unsafe { is_left_alone(task, here, before) } {
        // SAFETY: as above.
        return unsafe { abort(task, here) };
    }
    // SAFETY: a task that is owned exists. EXISTS
    rest(unsafe { task.as_ref() }, here, before)
}

/// Whether a task that was cancelled before its last poll waits in nothing that could answer. LEFT-ALONE in `cancel`
///
/// # Safety
///
/// The caller owns the task, and has just polled it, and it has not woken itself.
#[cold]
unsafe fn is_left_alone(task: TaskPtr, here: &ThreadContext, before: Snapshot) -> bool {
    // SAFETY: a task that is owned exists. EXISTS
    let header = unsafe { task.as_ref() };
    // SAFETY: a task's home outlives it.
    let home = unsafe { &*RuntimeShared::of(task) };
    if !matches!(home.phase(), RuntimePhase::Running | RuntimePhase::Simulated) {
        return false; // a runtime that ends has cancelled all its tasks, and gives them time
    }
    header.state.add_ref();
    // SAFETY: the reference was just counted.
    let task = unsafe { Task::from_counted(task) };
    // SAFETY: it is the pointer to the whole of this home.
    let is_left_alone = unsafe { (home.hooks.is_left_alone)(home.whole(), &task, here.stays() != 0) };
    is_left_alone && !header.state.was_woken_since(before)
}

/// What becomes of a task of a kind that asks before it begins; `None`: it is to be polled.
///
/// # Safety
///
/// As for [`step`]; but with `None` the task is still the caller's.
pub(super) unsafe fn pass(
    task: TaskPtr,
    here: &ThreadContext,
    gate: unsafe fn(TaskPtr) -> Passage,
) -> Option<StepOutcome> {
    // SAFETY: a task that is owned exists. EXISTS
    let header = unsafe { task.as_ref() };
    let before = header.state.before_poll();
    if before.has(ABORTED) {
        return None;
    }
    // SAFETY: the caller owns the task, whose kind's it is.
    match unsafe { gate(task) } {
        Passage::Begin => None,
        Passage::Hold => Some(match header.state.rest(before, 0) {
            RestOutcome::Idle => StepOutcome::Rest,
            RestOutcome::Again => StepOutcome::Again,
        }),
        Passage::Refuse => {
            // SAFETY: a task's home outlives it.
            unsafe { &*RuntimeShared::of(task) }.count_refused();
            here.begin_last_poll(task.as_ptr());
            // SAFETY: the right to run is ours. TASK-STAGE
            let polled = unsafe { (header.vtable().end)(task, Reason::Refused) };
            // SAFETY: as above, and we give it up; the future is gone.
            unsafe { finish(task, here, polled) };
            Some(StepOutcome::Done)
        }
    }
}

/// As [`finish`], for the most common case: an output without a destructor, and memory that goes
/// back to this worker. `false`: it is not that case after all, and nothing has been done.
///
/// # Safety
///
/// As for [`finish`]; `plain` is true of the task.
#[inline(always)]
unsafe fn finish_plain(task: TaskPtr, here: &ThreadContext, plain: Plain) -> bool {
    let home = RuntimeShared::of(task);
    let Some(slab) = here.slab_of::<_, LocalSlab>(home) else { return false };
    // SAFETY: a task that is owned exists. EXISTS
    let header = unsafe { task.as_ref() };
    if header.vtable().is_extended {
        return false;
    }
    if let Some(left) = plain.left {
        // SAFETY: we are the owner, and the future is gone.
        unsafe { left(task) };
    }
    slab.finished.add_one();
    here.clear_current();
    match header.state.finish(0, here.unsettled(), false) {
        // SAFETY: no reference is left.
        Finished::Last => unsafe { slab.put(home, plain.class, task) },
        // SAFETY: we have declared the task done, and it says so.
        Finished::WakeJoiner => unsafe { wake_joiner(task) },
        Finished::Shared | Finished::Unwanted => {}
    }
    true
}

/// Wakes whoever waits for a task that is done, and lets go of it.
///
/// # Safety
///
/// The caller has just declared it done, and was told [`Finished::WakeJoiner`].
unsafe fn wake_joiner(task: TaskPtr) {
    // SAFETY: the scheduler's references are there until `drop_existence`. EXISTS
    let header = unsafe { task.as_ref() };
    // SAFETY: as above.
    let slot = unsafe { JoinSlot::of(task) };
    // SAFETY: the slot holds a waker, and is ours. SLOT
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
    // SAFETY: a task's home outlives it.
    let home = unsafe { &*RuntimeShared::of(task) };
    let reason = if home.phase() == RuntimePhase::Stopped { Reason::Gone } else { Reason::Aborted };
    // SAFETY: the caller owns the task, so it exists.
    let end = unsafe { task.as_ref() }.vtable().end;
    // SAFETY: handed on from the caller.
    unsafe { end(task, reason) }
}

/// Declares a task done, and sees to its output, its joiner and its memory.
///
/// # Safety
///
/// The caller owns the task and gives it up; the stage holds what `polled` says.
unsafe fn finish(task: TaskPtr, here: &ThreadContext, polled: PollOutcome) {
    // SAFETY: a task that is owned exists. EXISTS
    let header = unsafe { task.as_ref() };
    let home = RuntimeShared::of(task);
    if polled == PollOutcome::Panicked {
        // SAFETY: the stage holds a payload, which is the owner's until the task is done. TASK-STAGE
        let payload = unsafe { &*field::<Box<PanicPayload>>(task, header.vtable().stage_offset) };
        // SAFETY: handed on from the caller.
        unsafe { panics::report(task, here, payload) };
    }
    // SAFETY: a task's home outlives it.
    unsafe { &*home }.count_finished(here.slab_of(home));
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
            // SAFETY: without a handle the output is the owner's. HANDLE-OUTPUT
            unsafe { drop_result(task, here, polled) };
        }
        // Read anew: a destructor may have asked for the color, which gives the task a lane.
        if !has_left && let Some(left) = header.vtable().left {
            has_left = true;
            // SAFETY: we are the owner, and the future is gone.
            unsafe { left(task) };
        }
        here.clear_current();
        match header.state.finish(how, here.unsettled(), !unwanted) {
            // The handle went between the two readings. The destructor may use our waker.
            Finished::Unwanted => here.set_current(task.as_ptr()),
            Finished::Shared => return,
            // SAFETY: no reference is left.
            Finished::Last => return unsafe { (header.vtable().free)(task) },
            // SAFETY: we have declared the task done, and it says so.
            Finished::WakeJoiner => return unsafe { wake_joiner(task) },
        }
    }
}

/// Drops what a task left behind, whatever its destructor does.
///
/// # Safety
///
/// The caller owns the task; what was left is the caller's, and is as `polled` says.
unsafe fn drop_result(task: TaskPtr, here: &ThreadContext, polled: PollOutcome) {
    // SAFETY: the caller has a reference, or owns the task.
    let vtable = unsafe { task.as_ref() }.vtable();
    match polled {
        PollOutcome::Ready => {
            // SAFETY: handed on from the caller.
            let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { (vtable.drop_output)(task) }));
            if let Err(payload) = &dropped {
                traced::note_panic(payload);
                // SAFETY: handed on from the caller.
                unsafe { panics::report(task, here, payload) };
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
/// The task panicked, and what it left is the caller's, who does not take it again.
pub(crate) unsafe fn take_payload(task: TaskPtr) -> PanicPayload {
    // SAFETY: the caller has a reference, or owns the task.
    let offset = unsafe { task.as_ref() }.vtable().stage_offset;
    // SAFETY: the stage lies there, and holds a payload.
    *unsafe { field::<Box<PanicPayload>>(task, offset).read() }
}

/// Why a task has no output.
///
/// # Safety
///
/// The task ended without one, and the caller has a reference.
pub(crate) unsafe fn read_reason(task: TaskPtr) -> Reason {
    // SAFETY: the caller has a reference.
    let offset = unsafe { task.as_ref() }.vtable().stage_offset;
    // SAFETY: the stage lies there, and holds a reason.
    unsafe { field::<Reason>(task, offset).read() }
}

/// The kind of an ordinary task: its color is its own, and its header is its lane.
pub(crate) struct OwnColor;

// SAFETY: the right to run goes to `step`, or into a run queue, and nowhere else.
unsafe impl TaskKind for OwnColor {
    const KIND: TaskKindTag = TaskKindTag::Own;

    #[inline(always)]
    unsafe fn run(
        task: TaskPtr,
        here: &ThreadContext,
        step: impl FnOnce(TaskPtr, &ThreadContext) -> StepOutcome,
    ) -> Option<TaskPtr> {
        here.set_color(task.addr().get());
        let after = step(task, here); // the caller gives us the right to run. ONE-OWNER
        here.set_color(0);
        if here.has_lane() {
            // SAFETY: as above, and the task has got a lane meanwhile, whose turn we have.
            return unsafe { leave_new_lane(task, after, here) };
        }
        (after == StepOutcome::Again).then_some(task)
    }

    #[inline]
    unsafe fn enqueue(task: TaskPtr, place: QueuePosition) {
        let home = RuntimeShared::of(task);
        // SAFETY: a task's home outlives it.
        let enqueue = unsafe { &*home }.hooks.enqueue;
        // SAFETY: the caller has the right to run, and gives it away.
        let runnable = unsafe { Runnable::new(task) };
        // SAFETY: `home` is the runnable's.
        unsafe { enqueue(home, runnable, place) };
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
    let lane = TaskPtr::new(here.lane::<Header>().cast_mut()).expect("the lane of this turn");
    // SAFETY: this thread has the turn, and gives it away.
    (unsafe { step(lane, here) } == StepOutcome::Again).then_some(lane)
}

/// The kind of a closure for the pool of blocking calls.
///
/// Whether it begins or is withdrawn is decided in one step, by its thread or by a wait for it that is cancelled.
#[derive(Default)]
pub(crate) struct Blocking(AtomicU8);

const IN_LINE: u8 = 0;
const BEGUN: u8 = 1;
const WITHDRAWN: u8 = 2;

impl Blocking {
    /// Sees to it that a call does not begin, unless it has.
    pub(crate) fn withdraw(task: &Task) {
        debug_assert!(task.kind() == TaskKindTag::Blocking);
        // SAFETY: we have a reference, and the task is of this kind.
        let word = &unsafe { Front::<Blocking>::of(task.ptr()) }.kind.0;
        let _ = word.compare_exchange(IN_LINE, WITHDRAWN, Ordering::AcqRel, Ordering::Acquire);
    }
}

// SAFETY: the right to run goes to `step`, or into the pool's queue, and nowhere else.
unsafe impl TaskKind for Blocking {
    const KIND: TaskKindTag = TaskKindTag::Blocking;

    unsafe fn run(
        task: TaskPtr,
        here: &ThreadContext,
        step: impl FnOnce(TaskPtr, &ThreadContext) -> StepOutcome,
    ) -> Option<TaskPtr> {
        // SAFETY: a task that is owned exists, and it is of this kind.
        let front = unsafe { Front::<Blocking>::of(task) };
        if front.kind.0.swap(BEGUN, Ordering::AcqRel) == WITHDRAWN {
            // SAFETY: as above.
            unsafe { task.as_ref() }.state.mark(ABORTED);
        }
        let after = step(task, here); // the caller gives us the right to run. ONE-OWNER
        debug_assert!(after == StepOutcome::Done, "a closure does not wait");
        None
    }

    unsafe fn enqueue(task: TaskPtr, _place: QueuePosition) {
        let home = RuntimeShared::of(task);
        // SAFETY: a task's home outlives it.
        let enqueue = unsafe { &*home }.hooks.enqueue_blocking;
        // SAFETY: the caller has the right to run, and gives it away.
        let runnable = unsafe { Runnable::new(task) };
        // SAFETY: `home` is the runnable's.
        unsafe { enqueue(home, runnable) };
    }

    unsafe fn color(_task: TaskPtr) -> usize {
        0
    }
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

/// Ends a task that has not begun, for want of the means to run it.
pub(crate) fn refuse(runnable: Runnable) {
    let task = runnable.into_ptr();
    // SAFETY: a task that is owned exists.
    let end = unsafe { task.as_ref() }.vtable().end;
    let _aside = SetAside::new();
    with_context(|here| {
        here.set_current(task.as_ptr());
        // SAFETY: the right to run is ours. TASK-STAGE
        let polled = unsafe { end(task, Reason::Refused) };
        // SAFETY: as above, and we give it up; the future is gone.
        unsafe { finish(task, here, polled) };
    });
}
