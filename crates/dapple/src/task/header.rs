//! The header of everything that can be run: 24 bytes in front of a task's future, or of a lane.
//!
//! # Invariants
//!
//! * **RUN-ONCE**: a [`Runnable`] is the right to run something once. A task has at most one (ONE-OWNER). For a lane
//!   it is an entry, the right to try: a lane may have several, of which one gets the turn (ONE-TURN, ENTRY-LIVES).
//! * **LINK-OWNED**: `link` belongs to the queue that holds the runnable, or to the free list that holds the memory.
//! * **VTABLE-BY-OWNER**: only the thread that runs a task changes its vtable (when the task is promoted to a lane of
//!   its own). Other threads read the vtable after an acquire that follows that run, or read a field that no change
//!   touches.

use std::borrow::Cow;
use std::panic::Location;
use std::ptr::NonNull;

use super::poll::StepOutcome;
use super::priority::Priority;
use super::state::StateWord;
use super::traced::TracedVTable;
use crate::context::ThreadContext;
use crate::prim::{AtomicPtr, Ordering};

/// The address of a task or a lane. Gives no right to it.
pub(crate) type TaskPtr = NonNull<Header>;

/// The address `offset` bytes after a header.
pub(crate) fn field<T>(ptr: TaskPtr, offset: usize) -> *mut T {
    ptr.as_ptr().wrapping_byte_add(offset).cast()
}

#[repr(C)]
pub(crate) struct Header {
    pub(crate) state: StateWord,
    vtable: AtomicPtr<VTable>,
    link: AtomicPtr<Header>,
}

impl Header {
    /// Makes a header in memory that held another one or zeros (ZEROED). The state is written last: until then it
    /// counts no references.
    #[inline]
    pub(crate) fn install(&self, vtable: *const VTable, state: StateWord) {
        self.set_vtable(vtable.cast_mut());
        self.set_link(std::ptr::null_mut());
        self.state.reset(state);
    }

    #[inline]
    pub(crate) fn vtable(&self) -> &VTable {
        // SAFETY: a vtable is a constant, or an `Extended` one that lives as long as its task.
        unsafe { &*self.vtable.load(Ordering::Acquire) }
    }

    pub(crate) fn vtable_ptr(&self) -> *mut VTable {
        self.vtable.load(Ordering::Acquire)
    }

    /// For the thread that runs the task. VTABLE-BY-OWNER
    pub(crate) fn set_vtable(&self, vtable: *mut VTable) {
        self.vtable.store(vtable, Ordering::Release);
    }

    #[inline]
    pub(crate) fn next_link(&self) -> *mut Header {
        self.link.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_link(&self, next: *mut Header) {
        self.link.store(next, Ordering::Relaxed);
    }
}

/// The right to run a task or a lane once. RUN-ONCE
#[must_use = "a runnable that is not run is lost"]
pub(crate) struct Runnable(TaskPtr);

// SAFETY: a right passes between threads. A future is `Send`, or the lane of the main color keeps it on its thread
// (HOME-THREAD).
unsafe impl Send for Runnable {}

impl Runnable {
    /// # Safety
    ///
    /// The caller has the right to run `ptr` and gives it away. RUN-ONCE
    pub(crate) unsafe fn new(ptr: TaskPtr) -> Runnable {
        Runnable(ptr)
    }

    #[inline]
    pub(crate) fn into_ptr(self) -> TaskPtr {
        self.0
    }

    pub(crate) fn ptr(&self) -> TaskPtr {
        self.0
    }

    pub(crate) fn header(&self) -> &Header {
        // SAFETY: the owner of a runnable holds a reference, so it exists (EXISTS).
        unsafe { self.0.as_ref() }
    }
}

/// Position in the queue for a runnable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueuePosition {
    /// Ahead of all others: the running task gave way to it.
    First,
    /// In the next slot, if that is free: its data is warm in this worker's cache.
    Next,
    /// As `Next` if nothing else is queued, otherwise at the end: it is new.
    New,
    /// At the end: it has been run.
    Back,
}

/// Result of one poll.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PollOutcome {
    Pending,
    /// The output has replaced the future.
    Ready,
    /// The payload of a panic has replaced the future.
    Panicked,
    /// The [`Reason`] for having no output has replaced the future.
    Ended,
}

/// Reason for having no output, other than a panic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    Aborted,
    Refused,
    Gone,
}

/// The functions and facts that differ between kinds of tasks and types of futures.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct VTable {
    /// Runs it once. The caller gives up the right to run, and gets the right to run the returned one, to queue it at
    /// the end.
    pub(crate) run: unsafe fn(TaskPtr, &ThreadContext) -> Option<TaskPtr>,
    /// Queues it. The caller gives up the right to run it.
    pub(crate) enqueue: unsafe fn(TaskPtr, QueuePosition),
    /// Polls the future once, then rests, requeues or ends the task; see [`step_with`](super::poll::step_with). Of a
    /// lane: ends the turn that a running task got together with it.
    pub(crate) step: unsafe fn(TaskPtr, &ThreadContext) -> StepOutcome,
    /// Drops the future and leaves `Reason` in its place. For the owner.
    pub(crate) end: unsafe fn(TaskPtr, Reason) -> PollOutcome,
    /// Called by the owner once the future has been dropped, before DONE. For kinds that need it.
    pub(crate) left: Option<unsafe fn(TaskPtr)>,
    /// Moves the output to the second argument. For the owner of the output (HANDLE-OUTPUT).
    pub(crate) take: unsafe fn(TaskPtr, *mut ()),
    /// Drops the output. For the owner of the output.
    pub(crate) drop_output: unsafe fn(TaskPtr),
    /// Frees the memory. For the thread that dropped the last reference.
    pub(crate) free: unsafe fn(TaskPtr),
    /// The identity of its color.
    pub(crate) color: unsafe fn(TaskPtr) -> usize,
    pub(crate) type_name: fn() -> &'static str,
    /// Offset of the join slot from the header, in bytes.
    pub(crate) join_offset: usize,
    /// Offset of the stage, which holds the future, output, payload or reason.
    pub(crate) stage_offset: usize,
    /// Access to a lane for policies. `None` for a task.
    pub(crate) lane: Option<&'static LaneAccess>,
    /// Access to a task in the queue of a lane, for that lane.
    pub(crate) queued: Option<&'static QueuedAccess>,
    /// Keeps a blocking call from beginning, unless it has begun. For a caller with a reference. `None` for other
    /// tasks.
    pub(crate) withdraw: Option<unsafe fn(TaskPtr)>,
    /// Whether the output has a destructor.
    pub(crate) drops_output: bool,
    /// Whether this is the head of an [`Extended`].
    pub(crate) is_extended: bool,
}

impl VTable {
    /// Whether this is a lane, not a task.
    pub(crate) fn is_lane(&self) -> bool {
        self.lane.is_some()
    }

    /// Whether this is a call on the pool of blocking calls.
    pub(crate) fn is_blocking(&self) -> bool {
        self.withdraw.is_some()
    }
}

/// How a lane asks a queued task for facts that not all kinds have. The task must exist.
pub(crate) struct QueuedAccess {
    /// The task's own priority. `None`: it has the priority of its color.
    pub(crate) priority: unsafe fn(TaskPtr) -> Option<Priority>,
    /// Whether a limit has refused the task before its first poll. For the owner.
    pub(crate) is_refused: unsafe fn(TaskPtr) -> bool,
}

/// How the scheduler asks a lane for its facts, and notes the worker that runs it. Only a runtime with a policy does.
///
/// For a lane that lives: the caller has an entry of it (ENTRY-LIVES in `lane`).
pub(crate) struct LaneAccess {
    pub(crate) facts: unsafe fn(TaskPtr) -> LaneFacts,
    /// The worker with this number is about to take the turn.
    pub(crate) note_ran: unsafe fn(TaskPtr, usize),
}

/// Facts of a lane for a policy.
pub(crate) struct LaneFacts {
    pub(crate) priority: Priority,
    /// Number of queued tasks.
    pub(crate) len: usize,
    /// The number that the program sets for its policy.
    pub(crate) tag: u64,
    /// The worker that last had its turn.
    pub(crate) ran_on: Option<usize>,
}

/// Facts about a task from its spawn, which are kept only if `is_kept`.
#[derive(Clone, Default)]
pub(crate) struct Meta {
    pub(crate) name: Option<Cow<'static, str>>,
    pub(crate) spawned_at: Option<&'static Location<'static>>,
    pub(crate) is_kept: bool,
}

impl Meta {
    /// The facts for the caller's position. They are kept only with the feature `trace`, and in a simulation.
    #[inline]
    #[track_caller]
    pub(crate) fn of_caller() -> Meta {
        Meta { name: None, spawned_at: Some(Location::caller()), is_kept: cfg!(feature = "trace") }
    }
}

/// A vtable for one task alone: a task that has a name, was promoted to a lane, or belongs to a simulation.
#[repr(C)]
pub(crate) struct Extended {
    pub(crate) vtable: VTable,
    pub(crate) meta: Meta,
    /// The lane that the task was promoted to, or null.
    pub(crate) lane: *const Header,
    /// `free` of the plain vtable.
    free: unsafe fn(TaskPtr),
    /// The extended vtable that this one replaced: other threads may still be reading it.
    replaced: *mut VTable,
    /// The operation that the task last waited for, or null.
    waits_for: AtomicPtr<&'static str>,
    pub(crate) observed: Option<TracedVTable>,
}

/// Name of the operation that a task waits for, or none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitNote(*mut &'static str);

impl WaitNote {
    pub(crate) fn of(what: &'static &'static str) -> WaitNote {
        WaitNote(std::ptr::from_ref(what).cast_mut())
    }

    pub(crate) fn text(self) -> Option<&'static str> {
        // SAFETY: it is null, or comes from a `'static` reference.
        unsafe { self.0.as_ref() }.copied()
    }
}

impl Extended {
    /// Copies the task's vtable and extends it. Install it with [`Header::set_vtable`].
    pub(crate) fn over(task: &Header, meta: Option<Meta>, lane: *const Header) -> Box<Extended> {
        let base = task.vtable();
        let old = Extended::of(task);
        let meta = meta.or_else(|| old.map(|e| e.meta.clone())).unwrap_or_default();
        let lane = if lane.is_null() { old.map_or(lane, |e| e.lane) } else { lane };
        let free = old.map_or(base.free, |e| e.free);
        let replaced = if old.is_some() { task.vtable_ptr() } else { std::ptr::null_mut() };
        let vtable = VTable { free: free_extended, is_extended: true, ..base.clone() };
        let observed = old.and_then(|e| e.observed);
        Box::new(Extended { vtable, meta, lane, free, replaced, waits_for: AtomicPtr::default(), observed })
    }

    /// Notes the operation that the task waits for.
    pub(crate) fn waits_for(&self, what: &'static &'static str) {
        self.waits_for.store(std::ptr::from_ref(what).cast_mut(), Ordering::Relaxed);
    }

    /// As [`waits_for`](Self::waits_for), and returns the previous note.
    pub(crate) fn replace_note(&self, what: WaitNote) -> WaitNote {
        WaitNote(self.waits_for.swap(what.0, Ordering::Relaxed))
    }

    /// The operation that the task last waited for.
    pub(crate) fn waited_for(&self) -> Option<&'static str> {
        // SAFETY: it is null, or was stored by `waits_for` from a `'static` reference.
        unsafe { self.waits_for.load(Ordering::Relaxed).as_ref() }.copied()
    }

    #[inline]
    pub(crate) fn of(task: &Header) -> Option<&Extended> {
        let vtable = task.vtable_ptr(); // read once: the task may be getting another one
        // SAFETY: as in `Header::vtable`.
        let is_extended = unsafe { &*vtable }.is_extended;
        // SAFETY: as above; the flag says that it is the head of an `Extended`.
        is_extended.then(|| unsafe { &*vtable.cast::<Extended>() })
    }
}

/// Frees a task with an extended vtable, and the vtable.
///
/// # Safety
///
/// As for [`VTable::free`].
unsafe fn free_extended(task: TaskPtr) {
    // SAFETY: the caller has the last reference, so the task exists.
    let mut vtable = unsafe { task.as_ref() }.vtable_ptr();
    // SAFETY: this function is only ever in the vtable of an `Extended`.
    let free = unsafe { (*vtable.cast::<Extended>()).free };
    // SAFETY: handed on from the caller.
    unsafe { free(task) };
    while !vtable.is_null() {
        // SAFETY: it came from `Box::into_raw`, and no reference to the task that owned it is left.
        let extended = unsafe { Box::from_raw(vtable.cast::<Extended>()) };
        vtable = extended.replaced;
    }
}
