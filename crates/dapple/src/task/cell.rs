//! A task in memory: header, what its kind adds, the join slot, and the future or what it left.
//!
//! # Invariants
//!
//! * **TASK-STAGE**: until the owner has seen the future end, the stage holds the future; afterwards
//!   what [`PollOutcome`] says. Only the owner touches it before DONE, and only the one whom the output
//!   belongs to (HANDLE-OUTPUT) after it.
//! * **CANCEL-OR-SEE**: who cancels all tasks changes the phase, fences, and walks over the memory;
//!   who makes a task puts it there, fences, and looks at the phase again. So no task is missed.

use std::alloc::Layout;
use std::any::Any;
use std::mem::{ManuallyDrop, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::header::{Extended, Header, Meta, PollOutcome, Reason, TaskKindTag, TaskPtr, VTable, field};
use super::join_slot::JoinSlot;
use super::poll::{Passage, Plain, StepOutcome, pass, step_with};
use super::runtime_shared::{RuntimePhase, RuntimeShared};
use super::slab::{LARGE, MAX_ALIGN, class_of, put_cell};
use super::state::{CANCELLED, StateWord};
use super::traced::{self, TracedVTable};
use super::type_name::name_of;
use super::waker::borrowed_waker;
use super::{QueuePosition, Task};
use crate::context::{ThreadContext, with_context};
use crate::prim::light_fence;
use crate::world;

/// What a kind of task adds to its header, and how it is run and put in line.
///
/// # Safety
///
/// `run` and `enqueue` keep RUN-ONCE; `LEFT` is called once, by the owner.
pub(crate) unsafe trait TaskKind: Sized {
    const KIND: TaskKindTag;
    /// See [`VTable::run`]; `step` is [`VTable::step`], known at compile time.
    unsafe fn run(
        task: TaskPtr,
        here: &ThreadContext,
        step: impl FnOnce(TaskPtr, &ThreadContext) -> StepOutcome,
    ) -> Option<TaskPtr>;
    /// See [`VTable::enqueue`].
    unsafe fn enqueue(task: TaskPtr, place: QueuePosition);
    /// What is asked, by the owner, before the first poll; for kinds that may not begin at once.
    const GATE: Option<unsafe fn(TaskPtr) -> Passage> = None;
    /// See [`VTable::left`].
    const LEFT: Option<unsafe fn(TaskPtr)> = None;
    /// See [`VTable::color`].
    unsafe fn color(task: TaskPtr) -> usize;
}

/// A task in memory.
#[repr(C)]
pub(crate) struct Cell<K, F: Future> {
    header: Header,
    kind: K,
    join: JoinSlot,
    stage: TaskStage<F>,
}

/// `repr(C)`, so that all of it lies at the same place.
#[repr(C)]
union TaskStage<F: Future> {
    future: ManuallyDrop<F>,
    output: ManuallyDrop<F::Output>,
    /// Boxed twice to be one word.
    payload: ManuallyDrop<Box<PanicPayload>>,
    reason: Reason,
}

pub(crate) type PanicPayload = Box<dyn Any + Send>;

/// The part of a cell that comes before the join slot: what the code of a kind may see.
#[repr(C)]
pub(crate) struct Front<K> {
    header: Header,
    pub(crate) kind: K,
}

impl<K> Front<K> {
    /// # Safety
    ///
    /// `task` is of kind `K` and alive for as long as the result is used.
    #[inline]
    pub(crate) unsafe fn of<'a>(task: TaskPtr) -> &'a Front<K> {
        // SAFETY: `Cell` is `repr(C)` and starts with the same two fields.
        unsafe { task.cast::<Front<K>>().as_ref() }
    }
}

impl<K: TaskKind, F: Future> Cell<K, F> {
    const LAYOUT: Layout = Layout::new::<Cell<K, F>>();
    const CLASS: u8 = {
        assert!(
            Self::LAYOUT.align() <= MAX_ALIGN,
            "a future aligned to more than 4096 bytes cannot be a task: box what is aligned in it"
        );
        class_of(Self::LAYOUT)
    };
    const VTABLE: &'static VTable = &VTable {
        run: Self::run,
        enqueue: K::enqueue,
        step: Self::step,
        end: Self::end,
        left: K::LEFT,
        take: Self::take,
        drop_output: Self::drop_output,
        free: put_cell,
        color: K::color,
        type_name: name_of::<F>,
        join_offset: offset_of!(Self, join),
        stage_offset: offset_of!(Self, stage),
        kind: K::KIND,
        lane: None,
        drops_output: std::mem::needs_drop::<F::Output>(),
        is_extended: false,
    };

    /// Makes a task and the right to run it, with a reference for a handle; gives kind and future back
    /// if the runtime is gone.
    ///
    /// # Safety
    ///
    /// The task is run only where `F` may be polled and dropped, and not after what `F` borrows is
    /// gone; its output is taken only where `F::Output` may go.
    #[inline]
    pub(crate) unsafe fn make(home: &RuntimeShared, kind: K, future: F, meta: Meta) -> Result<Task, (K, F)> {
        let phase = home.phase();
        if phase != RuntimePhase::Running && phase == RuntimePhase::Stopped {
            return Err((kind, future));
        }
        let slab = with_context(|here| here.slab_of(home));
        let Some(task) = home.take_cell(slab, Self::CLASS, Self::LAYOUT) else {
            return Err((kind, future));
        };
        // SAFETY: the memory is ours, and of the layout of a cell. The state is written below, as
        // the last: until then it counts no references, and walkers pass it by (ZEROED).
        unsafe { field::<K>(task, offset_of!(Self, kind)).write(kind) };
        // SAFETY: as above.
        unsafe { field::<JoinSlot>(task, offset_of!(Self, join)).write(JoinSlot::default()) };
        let stage = TaskStage { future: ManuallyDrop::new(future) };
        // SAFETY: as above.
        unsafe { field::<TaskStage<F>>(task, offset_of!(Self, stage)).write(stage) };
        // SAFETY: as above; a zeroed or left-behind header is a valid one.
        let header = unsafe { task.as_ref() };
        if phase != RuntimePhase::Running || meta.is_kept {
            install_unusual(home, header, Self::VTABLE, meta, phase);
        } else {
            header.install(Self::VTABLE, StateWord::new(false));
        }
        light_fence();
        if home.phase() != phase {
            // Whoever is cancelling everything may have looked at this cell before it was a task.
            header.state.mark(CANCELLED); // CANCEL-OR-SEE
        }
        home.count_spawned(slab);
        // SAFETY: the state counts one reference for a handle.
        Ok(unsafe { Task::from_counted(task) })
    }

    #[inline]
    unsafe fn stage<'a>(task: TaskPtr) -> &'a mut TaskStage<F> {
        let cell = task.cast::<Self>().as_ptr();
        // SAFETY: the caller may touch the stage, and nobody else does. TASK-STAGE
        unsafe { &mut (*cell).stage }
    }

    /// How a task of this type ends if all is plain: no destructor of its output need be run.
    const PLAIN: Option<Plain> = match std::mem::needs_drop::<F::Output>() {
        false if Self::CLASS != LARGE => Some(Plain { class: Self::CLASS, left: K::LEFT }),
        _ => None,
    };

    unsafe fn run(task: TaskPtr, here: &ThreadContext) -> Option<TaskPtr> {
        // SAFETY: `run` calls it for the task that it is given, whose owner it is then.
        let step = |task, here: &ThreadContext| unsafe { Self::step_inline(task, here) };
        // SAFETY: handed on from the caller.
        unsafe { K::run(task, here, step) }
    }

    unsafe fn step(task: TaskPtr, here: &ThreadContext) -> StepOutcome {
        if let Some(gate) = K::GATE
            // SAFETY: handed on from the caller; the gate is of the task's kind.
            && let Some(after) = unsafe { pass(task, here, gate) }
        {
            return after;
        }
        // SAFETY: handed on from the caller.
        unsafe { Self::step_inline(task, here) }
    }

    #[inline(always)]
    unsafe fn step_inline(task: TaskPtr, here: &ThreadContext) -> StepOutcome {
        // SAFETY: it is called for this task, whose owner we are, and whose future is there. TASK-STAGE
        let poll = |task| unsafe { Self::poll_inline(task) };
        // SAFETY: handed on from the caller.
        unsafe { step_with(task, here, poll, Self::PLAIN) }
    }

    #[inline(always)]
    unsafe fn poll_inline(task: TaskPtr) -> PollOutcome {
        // SAFETY: the caller is the owner. TASK-STAGE
        let stage = unsafe { Self::stage(task) };
        let mut future_is_there = true;
        let polled = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the stage holds the future (TASK-STAGE), which is pinned: it stays in its cell
            // until it is dropped there.
            let future = unsafe { Pin::new_unchecked(&mut *stage.future) };
            match future.poll(&mut Context::from_waker(&borrowed_waker(task))) {
                Poll::Pending => PollOutcome::Pending,
                Poll::Ready(output) => {
                    future_is_there = false;
                    // SAFETY: the stage holds the future; it is not touched again.
                    unsafe { ManuallyDrop::drop(&mut stage.future) };
                    stage.output = ManuallyDrop::new(output);
                    PollOutcome::Ready
                }
            }
        }));
        // SAFETY: handed on from the caller.
        polled.unwrap_or_else(|payload| unsafe { Self::panicked(task, payload, future_is_there) })
    }

    /// Puts the payload of a panic in place of the future.
    #[cold]
    unsafe fn panicked(task: TaskPtr, payload: PanicPayload, future_is_there: bool) -> PollOutcome {
        // SAFETY: the caller is the owner. TASK-STAGE
        let stage = unsafe { Self::stage(task) };
        if future_is_there {
            // SAFETY: the stage still holds the future; it is not touched again.
            let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { ManuallyDrop::drop(&mut stage.future) }));
            if dropped.is_err() {
                // SAFETY: a task's home outlives it.
                unsafe { &(*RuntimeShared::of(task)).panics }.count_one();
            }
            discard(dropped); // a second panic has nobody to go to
        }
        traced::note_panic(&payload);
        stage.payload = ManuallyDrop::new(Box::new(payload));
        PollOutcome::Panicked
    }

    unsafe fn end(task: TaskPtr, reason: Reason) -> PollOutcome {
        // SAFETY: the caller is the owner. TASK-STAGE
        let stage = unsafe { Self::stage(task) };
        // SAFETY: the stage holds the future; it is not touched again.
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

    unsafe fn take(task: TaskPtr, to: *mut ()) {
        // SAFETY: the output belongs to the caller. TASK-STAGE
        let stage = unsafe { Self::stage(task) };
        // SAFETY: the task ended with an output, which is not touched again.
        let output = unsafe { ManuallyDrop::take(&mut stage.output) };
        // SAFETY: the caller says that `to` has room for an output.
        unsafe { to.cast::<F::Output>().write(output) };
    }

    unsafe fn drop_output(task: TaskPtr) {
        // SAFETY: the output belongs to the caller. TASK-STAGE
        let stage = unsafe { Self::stage(task) };
        // SAFETY: the task ended with an output, which is not touched again.
        unsafe { ManuallyDrop::drop(&mut stage.output) };
    }
}

/// Makes the header of a task that is born cancelled, of which more is kept, or that is of a simulation.
#[cold]
fn install_unusual(
    home: &RuntimeShared,
    header: &Header,
    vtable: &'static VTable,
    meta: Meta,
    phase: RuntimePhase,
) {
    let state = StateWord::new(phase == RuntimePhase::Cancelling);
    if !meta.is_kept && !home.is_simulated {
        return header.install(vtable, state);
    }
    header.set_vtable(std::ptr::from_ref(vtable).cast_mut());
    let mut extended = Extended::over(header, Some(meta), std::ptr::null());
    if home.is_simulated {
        let observed = TracedVTable::over(&mut extended.vtable);
        extended.observed = Some(observed);
        let name = || extended.meta.name.clone().unwrap_or_else(|| (vtable.type_name)().into());
        world::with(|world| world.log.borrow_mut().name(observed.number, name));
    }
    header.install(Box::into_raw(extended).cast(), state);
}

/// The message of a panic.
pub(crate) fn message(payload: &PanicPayload) -> &str {
    let message = payload.downcast_ref::<&str>().copied();
    message.or_else(|| payload.downcast_ref::<String>().map(|s| &**s)).unwrap_or("(not a string)")
}

/// Drops the payload of a panic that nobody waits for, however it behaves.
pub(crate) fn discard(result: Result<(), PanicPayload>) {
    if let Err(payload) = result
        && let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        std::mem::forget(second);
    }
}
