//! A task in memory: header, fields of its kind, join slot, and the stage with the future or its result.
//!
//! # Invariants
//!
//! * **TASK-STAGE**: until the owner has seen the future end, the stage holds the future, afterwards the result that
//!   `PollOutcome` names. Before DONE only the owner touches it, and after DONE only the owner of the output
//!   (HANDLE-OUTPUT).
//! * **CANCEL-OR-SEE**: a thread that cancels all tasks changes the phase, fences, and walks over the memory. A
//!   thread that makes a task writes it to memory, fences, and reads the phase again. So no task is missed.

use std::alloc::Layout;
use std::any::Any;
use std::mem::{ManuallyDrop, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::header::{Extended, Header, Meta, QueuedAccess, Reason, TaskPtr, VTable, field};
use super::join_slot::JoinSlot;
use super::poll::{Passage, Plain, StepOutcome};
use super::runtime_shared::{RuntimePhase, RuntimeShared};
use super::slab::{LARGE, MAX_ALIGN, class_of, put_cell};
use super::state::{CANCELLED, StateWord};
use super::traced::TracedVTable;
use super::type_name::name_of;
use super::{QueuePosition, Task};
use crate::context::{ThreadContext, with_context};
use crate::prim::light_fence;
use crate::world;

/// A kind of task: the fields that it adds to the header, and how it is run and queued. The destructor of a kind is
/// called only if no task was made of it; a task that ends calls `LEFT`.
///
/// # Safety
///
/// `run` and `enqueue` keep RUN-ONCE; `LEFT` is called once, by the owner.
pub(crate) unsafe trait TaskKind: Sized {
    /// See [`VTable::run`]; `step` is [`VTable::step`], known at compile time, but without `ADMIT`. A kind that has
    /// that function and is not run by a lane calls [`step`](super::poll::step) in its place.
    unsafe fn run(
        task: TaskPtr,
        context: &ThreadContext,
        step: impl FnOnce(TaskPtr, &ThreadContext) -> StepOutcome,
    ) -> Option<TaskPtr>;
    /// See [`VTable::enqueue`].
    unsafe fn enqueue(task: TaskPtr, place: QueuePosition);
    /// Asked by the owner before each poll, by [`VTable::step`]. For kinds that may be held back or refused; one that
    /// decides once returns `Begin` from then on.
    const ADMIT: Option<unsafe fn(TaskPtr) -> Passage> = None;
    /// See [`VTable::left`].
    const LEFT: Option<unsafe fn(TaskPtr)> = None;
    /// See [`VTable::queued`].
    const QUEUED: Option<&'static QueuedAccess> = None;
    /// See [`VTable::withdraw`].
    const WITHDRAW: Option<unsafe fn(TaskPtr)> = None;
    /// See [`VTable::color`].
    unsafe fn color(task: TaskPtr) -> usize;
}

/// A task in memory.
#[repr(C)]
pub(crate) struct TaskCell<K, F: Future> {
    header: Header,
    kind: K,
    join: JoinSlot,
    stage: TaskStage<F>,
}

/// `repr(C)`, so that all variants have the same address.
#[repr(C)]
pub(super) union TaskStage<F: Future> {
    pub(super) future: ManuallyDrop<F>,
    pub(super) output: ManuallyDrop<F::Output>,
    /// Boxed twice to be one word.
    pub(super) payload: ManuallyDrop<Box<PanicPayload>>,
    pub(super) reason: Reason,
}

pub(crate) type PanicPayload = Box<dyn Any + Send>;

/// The part of a cell in front of the join slot, which the code of a kind uses.
#[repr(C)]
pub(crate) struct CellPrefix<K> {
    header: Header,
    pub(crate) kind: K,
}

impl<K> CellPrefix<K> {
    /// # Safety
    ///
    /// `task` is of kind `K` and alive for as long as the result is used.
    #[inline]
    pub(crate) unsafe fn of<'a>(task: TaskPtr) -> &'a CellPrefix<K> {
        // SAFETY: `TaskCell` is `repr(C)` and starts with the same two fields.
        unsafe { task.cast::<CellPrefix<K>>().as_ref() }
    }
}

impl<K: TaskKind, F: Future> TaskCell<K, F> {
    const LAYOUT: Layout = Layout::new::<TaskCell<K, F>>();
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
        lane: None,
        queued: K::QUEUED,
        withdraw: K::WITHDRAW,
        drops_output: std::mem::needs_drop::<F::Output>(),
        is_extended: false,
    };

    /// Makes a task and the right to run it, with a reference for a handle. Returns kind and future if the runtime
    /// has ended.
    ///
    /// # Safety
    ///
    /// The task is run only where `F` may be polled and dropped, and only while everything that `F` borrows exists.
    /// Its output is taken only where `F::Output` may go.
    #[inline]
    pub(crate) unsafe fn make(
        shared: &RuntimeShared,
        kind: K,
        future: F,
        meta: Meta,
    ) -> Result<Task, (K, F)> {
        let phase = shared.phase();
        if phase != RuntimePhase::Running && phase == RuntimePhase::Stopped {
            return Err((kind, future));
        }
        let slab = with_context(|context| context.slab_of(shared));
        let Some(task) = shared.take_cell(slab, Self::CLASS, Self::LAYOUT) else {
            return Err((kind, future));
        };
        // SAFETY: the memory belongs to the caller and has the layout of a cell. The state is written last: until
        // then it counts no references, and walkers ignore the cell (ZEROED).
        unsafe { field::<K>(task, offset_of!(Self, kind)).write(kind) };
        // SAFETY: as above.
        unsafe { field::<JoinSlot>(task, offset_of!(Self, join)).write(JoinSlot::default()) };
        let stage = TaskStage { future: ManuallyDrop::new(future) };
        // SAFETY: as above.
        unsafe { field::<TaskStage<F>>(task, offset_of!(Self, stage)).write(stage) };
        // SAFETY: as above. A zeroed or reused header is a valid one.
        let header = unsafe { task.as_ref() };
        if phase != RuntimePhase::Running || meta.is_kept {
            install_unusual(shared, header, Self::VTABLE, meta, phase);
        } else {
            header.install(Self::VTABLE, StateWord::new(false));
        }
        light_fence();
        if shared.phase() != phase {
            // The thread that cancels all tasks may have walked over this cell before it was a task.
            header.state.mark(CANCELLED); // CANCEL-OR-SEE
        }
        shared.count_spawned(slab);
        // SAFETY: the state counts one reference for a handle.
        Ok(unsafe { Task::from_counted(task) })
    }

    #[inline]
    pub(super) unsafe fn stage<'a>(task: TaskPtr) -> &'a mut TaskStage<F> {
        let cell = task.cast::<Self>().as_ptr();
        // SAFETY: the caller may touch the stage, and no other thread does. TASK-STAGE
        unsafe { &mut (*cell).stage }
    }

    /// How a task of this type ends if its output has no destructor.
    pub(super) const PLAIN: Option<Plain> = match std::mem::needs_drop::<F::Output>() {
        false if Self::CLASS != LARGE => Some(Plain { class: Self::CLASS, left: K::LEFT }),
        _ => None,
    };

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

/// Makes the header of a task that is cancelled from the start, has facts to keep, or belongs to a simulation.
#[cold]
fn install_unusual(
    shared: &RuntimeShared,
    header: &Header,
    vtable: &'static VTable,
    meta: Meta,
    phase: RuntimePhase,
) {
    let state = StateWord::new(phase == RuntimePhase::Cancelling);
    if !meta.is_kept && !shared.is_simulated {
        return header.install(vtable, state);
    }
    header.set_vtable(std::ptr::from_ref(vtable).cast_mut());
    let mut extended = Extended::over(header, Some(meta), std::ptr::null());
    if shared.is_simulated {
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

/// Drops the payload of a panic that has no receiver. A panic of its destructor is caught.
pub(crate) fn discard(result: Result<(), PanicPayload>) {
    if let Err(payload) = result
        && let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        std::mem::forget(second);
    }
}
