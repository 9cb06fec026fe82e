//! The head of everything that can be run: 24 bytes in front of a task's future, or of a lane.
//!
//! # Invariants
//!
//! * **RUN-ONCE**: a [`Runnable`] is the right to run something once. There is at most one for
//!   each task (ONE-OWNER). For a lane it is an entry, the right to try: there may be several, of which one
//!   gets the turn (ONE-TURN, ENTRY-LIVES).
//! * **LINK-OWNED**: `link` belongs to the queue that holds the runnable, or to the free list that
//!   holds the memory.
//! * **VTABLE-BY-OWNER**: only the one who is running a task changes its vtable (it is promoted to
//!   a lane of its own then). Others read it after an acquire that follows that run, or read a
//!   part of it that no change touches.

use std::borrow::Cow;
use std::panic::Location;
use std::ptr::NonNull;

use super::poll::StepOutcome;
use super::priority::Priority;
use super::state::StateWord;
use super::traced::TracedVTable;
use crate::context::ThreadContext;
use crate::prim::{AtomicPtr, Ordering};

/// The address of something that can be run. Carries no right of its own.
pub(crate) type TaskPtr = NonNull<Header>;

/// Where something lies that comes `offset` bytes after a header.
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
    /// Makes a header out of what the memory was left with (ZEROED). The state is written last:
    /// until then it counts no references.
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

    /// Only for the one who is running the task. VTABLE-BY-OWNER
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

// SAFETY: a right passes between threads; what runs is `Send`, or is kept on its thread by the
// lane of the main color.
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
        // SAFETY: what is to be run exists: its owner holds a reference (EXISTS).
        unsafe { self.0.as_ref() }
    }

    /// Runs it: one poll of a task, one turn of a lane. What comes back is to be put in line again,
    /// at the end.
    #[inline]
    pub(crate) fn run(self, here: &ThreadContext) -> Option<Runnable> {
        let run = self.header().vtable().run;
        // SAFETY: `self` is the right to run it. RUN-ONCE
        unsafe { run(self.0, here) }.map(Runnable)
    }
}

/// Where in line a runnable goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum QueuePosition {
    /// Ahead of everything: somebody gave way to it.
    First,
    /// Ahead of the line, if nothing else is: its data is warm in this worker's cache.
    Next,
    /// As `Next` if nothing else waits, otherwise at the end: it is new, and others came first.
    New,
    /// At the end: it has had its turn.
    Back,
}

/// How one poll ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum PollOutcome {
    Pending,
    /// The output is in place of the future.
    Ready,
    /// The payload of a panic is in place of the future.
    Panicked,
    /// The [`Reason`] for having no output is in place of the future.
    Ended,
}

/// Why a task has no output although it did not panic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    Aborted,
    Refused,
    Gone,
}

/// Who runs it, and by what rules it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TaskKindTag {
    /// A task with a color of its own: the header is its lane.
    Own,
    /// A task in the line of a lane.
    Laned,
    /// The same, with a priority of its own.
    Ranked,
    /// The same, in a color with a limit.
    Limited,
    /// As `Own`, and knows since when it has been in line.
    Clocked,
    /// A task of the main color: only that color's thread may touch its future, until it has left. HOME-THREAD
    Local,
    /// A closure for the pool of blocking calls.
    Blocking,
    /// Not a task: a lane.
    Lane,
}

/// What differs between kinds of tasks and types of futures.
#[repr(C)]
#[derive(Clone)]
pub(crate) struct VTable {
    /// Runs it once; the caller gives up the right to. The right to run what is returned is the
    /// caller's, to be put in line again, at the end.
    pub(crate) run: unsafe fn(TaskPtr, &ThreadContext) -> Option<TaskPtr>,
    /// Puts it in line; the caller gives up the right to run it.
    pub(crate) enqueue: unsafe fn(TaskPtr, QueuePosition),
    /// Polls the future once and sees to what follows; see [`step_with`](super::poll::step_with). Of a lane: ends the turn
    /// that a running task got together with it.
    pub(crate) step: unsafe fn(TaskPtr, &ThreadContext) -> StepOutcome,
    /// Drops the future and leaves `Reason` in its place. For the owner.
    pub(crate) end: unsafe fn(TaskPtr, Reason) -> PollOutcome,
    /// Called by the owner once the future is gone, before DONE; for kinds that care.
    pub(crate) left: Option<unsafe fn(TaskPtr)>,
    /// Moves the output to the second argument. For whom the output belongs to (HANDLE-OUTPUT).
    pub(crate) take: unsafe fn(TaskPtr, *mut ()),
    /// Drops the output. For whom the output belongs to.
    pub(crate) drop_output: unsafe fn(TaskPtr),
    /// Frees the memory. For whoever gave up the last reference.
    pub(crate) free: unsafe fn(TaskPtr),
    /// The identity of its color.
    pub(crate) color: unsafe fn(TaskPtr) -> usize,
    pub(crate) type_name: fn() -> &'static str,
    /// Where the join slot lies, in bytes from the header.
    pub(crate) join_offset: usize,
    /// Where future, output, payload and reason lie.
    pub(crate) stage_offset: usize,
    pub(crate) kind: TaskKindTag,
    /// Of a lane: for policies.
    pub(crate) lane: Option<&'static LaneAccess>,
    /// Whether the output has a destructor.
    pub(crate) drops_output: bool,
    /// Whether this is the head of an [`Extended`].
    pub(crate) is_extended: bool,
}

/// How the scheduler asks a lane for its facts, and tells it where it ran. Only a runtime with a policy does.
///
/// Both take a pointer to a lane that lives: the caller has an entry of it (ENTRY-LIVES in `lane`).
pub(crate) struct LaneAccess {
    pub(crate) facts: unsafe fn(TaskPtr) -> LaneFacts,
    /// A worker, by its number, is about to take the turn.
    pub(crate) note_ran: unsafe fn(TaskPtr, usize),
}

/// The facts of a lane that a policy goes by.
pub(crate) struct LaneFacts {
    pub(crate) priority: Priority,
    /// How many are in line.
    pub(crate) len: usize,
    /// What the program tells its policy.
    pub(crate) tag: u64,
    /// The worker that last had its turn.
    pub(crate) ran_on: Option<usize>,
}

/// What is known of a task when it is made, and later on only if it is kept.
#[derive(Clone, Default)]
pub(crate) struct Meta {
    pub(crate) name: Option<Cow<'static, str>>,
    pub(crate) spawned_at: Option<&'static Location<'static>>,
    pub(crate) is_kept: bool,
}

impl Meta {
    /// Of a task that is spawned here: not kept but with the feature `trace`, and in a simulation.
    #[inline]
    #[track_caller]
    pub(crate) fn of_caller() -> Meta {
        Meta { name: None, spawned_at: Some(Location::caller()), is_kept: cfg!(feature = "trace") }
    }
}

/// A vtable of one task alone, for the few that have a name, that were promoted to a lane, or that are
/// of a simulation.
#[repr(C)]
pub(crate) struct Extended {
    pub(crate) vtable: VTable,
    pub(crate) meta: Meta,
    /// The lane that the task was promoted to, or null.
    pub(crate) lane: *const Header,
    /// How the plain vtable frees the memory.
    free: unsafe fn(TaskPtr),
    /// The one that this replaced: others may still be reading it.
    replaced: *mut VTable,
    /// What the task waited for when it last had to, or null.
    waits_for: AtomicPtr<&'static str>,
    pub(crate) observed: Option<TracedVTable>,
}

/// A note of what a task waits for, or that it has not waited.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaitNote(*mut &'static str);

impl WaitNote {
    pub(crate) fn of(what: &'static &'static str) -> WaitNote {
        WaitNote(std::ptr::from_ref(what).cast_mut())
    }

    pub(crate) fn text(self) -> Option<&'static str> {
        // SAFETY: it is null, or from a reference for ever.
        unsafe { self.0.as_ref() }.copied()
    }
}

impl Extended {
    /// A copy of the task's vtable with more in it. Install it with [`Header::set_vtable`].
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

    /// Notes what the task waits for.
    pub(crate) fn waits_for(&self, what: &'static &'static str) {
        self.waits_for.store(std::ptr::from_ref(what).cast_mut(), Ordering::Relaxed);
    }

    /// As [`waits_for`](Self::waits_for), and returns the note that was there.
    pub(crate) fn replace_note(&self, what: WaitNote) -> WaitNote {
        WaitNote(self.waits_for.swap(what.0, Ordering::Relaxed))
    }

    /// What the task waited for when it last had to.
    pub(crate) fn waited_for(&self) -> Option<&'static str> {
        // SAFETY: it is null, or from `waits_for`, and so from a reference for ever.
        unsafe { self.waits_for.load(Ordering::Relaxed).as_ref() }.copied()
    }

    #[inline]
    pub(crate) fn of(task: &Header) -> Option<&Extended> {
        let vtable = task.vtable_ptr(); // once: the task may be getting another one
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
    // SAFETY: the caller has the last reference, so the task is there.
    let mut vtable = unsafe { task.as_ref() }.vtable_ptr();
    // SAFETY: this function is only ever in the vtable of an `Extended`.
    let free = unsafe { (*vtable.cast::<Extended>()).free };
    // SAFETY: handed on from the caller.
    unsafe { free(task) };
    while !vtable.is_null() {
        // SAFETY: it came from `Box::into_raw`, and nobody refers to the task that owned it.
        let extended = unsafe { Box::from_raw(vtable.cast::<Extended>()) };
        vtable = extended.replaced;
    }
}
