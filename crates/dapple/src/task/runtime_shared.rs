//! The runtime as its tasks see it: their memory, the phase of shutdown, counts and panics.
//!
//! # Invariants
//!
//! * **WHOLE**: this is the first field of the scheduler, which is the first field of the runtime's core. The pointer that
//!   tasks have of it comes from the core's `Arc`, so it is valid for all of the core. [`WholeRuntime`] has the only cast.

use super::Task;
use super::header::TaskPtr;
use super::panics::{OnPanic, Panics};
use super::slab::{Chunk, LocalSlab, Slab};
use crate::prim::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

/// Phase of a runtime, from running to stopped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum RuntimePhase {
    Running,
    /// As `Running`, in a simulated world.
    Simulated,
    /// All tasks have been cancelled. A task that is spawned now is cancelled from the start.
    Cancelling,
    /// No task is made any more, and workers leave.
    Stopped,
}

/// The part of a runtime that its tasks use. Every task finds it by the address of its memory.
#[repr(C)]
pub(crate) struct RuntimeShared {
    pub(crate) slab: Slab,
    /// Pointer to the whole of which this is the first field; see [`RuntimeShared::settle`].
    whole: AtomicPtr<RuntimeShared>,
    phase: AtomicU8,
    pub(crate) is_simulated: bool,
    /// Tasks spawned and finished by threads that are not workers. Each worker counts its own.
    spawned: AtomicU64,
    finished: AtomicU64,
    /// Tasks that were refused before they began.
    refused: AtomicU64,
    pub(crate) panics: Panics,
    /// The only call to the layers above; see [`IsLeftAlone`].
    pub(super) is_left_alone: IsLeftAlone,
}

/// Whether a task that was cancelled, and rests, is to be dropped. The `bool`: something in the task has said that it
/// stays. The function may start a timekeeper, which is a task itself.
pub(crate) type IsLeftAlone = fn(&RuntimeShared, &Task, bool) -> bool;

/// The type of a whole runtime, or of a larger part of it, whose first field is the [`RuntimeShared`].
///
/// # Safety
///
/// The type is `repr(C)`, and its first field is `RuntimeShared` or a type with this trait. Every `RuntimeShared` that was
/// [settled](RuntimeShared::settle) lies in a value of this type. WHOLE
pub(crate) unsafe trait WholeRuntime: Sized {
    /// The whole around `shared`.
    #[inline]
    fn of(shared: &RuntimeShared) -> &Self {
        // SAFETY: `whole` is the pointer that `settle` was given, and the whole lives as long as its first field.
        unsafe { Self::from_settled(shared.whole()) }
    }

    /// The whole, by the pointer that its tasks have ([`RuntimeShared::of`]).
    ///
    /// # Safety
    ///
    /// `shared` is the pointer that [`RuntimeShared::settle`] was given, and the runtime exists for as long as the result
    /// is used.
    #[inline]
    unsafe fn from_settled<'a>(shared: *const RuntimeShared) -> &'a Self {
        // SAFETY: WHOLE: the pointer is valid for all of the whole, which begins here.
        unsafe { &*shared.cast::<Self>() }
    }
}

impl RuntimeShared {
    pub(crate) fn new(is_left_alone: IsLeftAlone, on_panic: OnPanic) -> RuntimeShared {
        let is_simulated = crate::world::is_simulated();
        let phase = if is_simulated { RuntimePhase::Simulated } else { RuntimePhase::Running };
        RuntimeShared {
            slab: Slab::default(),
            whole: AtomicPtr::default(),
            phase: AtomicU8::new(phase as u8),
            is_simulated,
            spawned: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            panics: Panics::new(on_panic),
            is_left_alone,
        }
    }

    /// Stores the final address of the whole runtime, from which `WholeRuntime` gets back to it. Call it before the
    /// first task is made.
    pub(crate) fn settle(whole: *const RuntimeShared) {
        // SAFETY: the caller has just moved the runtime to this address.
        unsafe { &*whole }.whole.store(whole.cast_mut(), Ordering::Release);
    }

    pub(crate) fn whole(&self) -> *const RuntimeShared {
        self.whole.load(Ordering::Acquire)
    }

    /// The runtime of a task or a lane: the pointer that `settle` was given.
    #[inline]
    pub(crate) fn of(ptr: TaskPtr) -> *const RuntimeShared {
        Chunk::of(ptr).runtime
    }

    #[inline]
    pub(crate) fn phase(&self) -> RuntimePhase {
        match self.phase.load(Ordering::Relaxed) {
            0 => RuntimePhase::Running,
            1 => RuntimePhase::Simulated,
            2 => RuntimePhase::Cancelling,
            _ => RuntimePhase::Stopped,
        }
    }

    /// Advances to `phase`. Never goes back.
    pub(crate) fn enter_phase(&self, phase: RuntimePhase) {
        self.phase.fetch_max(phase as u8, Ordering::SeqCst);
    }

    /// Counts a spawned task. `slab` comes from [`ThreadContext::slab_of`](super::context::ThreadContext::slab_of).
    #[inline]
    pub(crate) fn count_spawned(&self, slab: Option<&LocalSlab>) {
        match slab {
            Some(slab) => slab.spawned.add_one(),
            None => drop(self.spawned.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// Counts a finished task, as `count_spawned` does.
    #[inline]
    pub(crate) fn count_finished(&self, slab: Option<&LocalSlab>) {
        match slab {
            Some(slab) => slab.finished.add_one(),
            None => drop(self.finished.fetch_add(1, Ordering::Release)),
        }
    }

    pub(crate) fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Tasks that a limit has refused before they began.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Tasks spawned and finished by threads that are not workers.
    pub(crate) fn foreign_counts(&self) -> (u64, u64) {
        let finished = self.finished.load(Ordering::Acquire);
        (self.spawned.load(Ordering::Acquire), finished)
    }

    /// The task at an address, if one is there that is not done. Any address is allowed.
    pub(crate) fn task_at(&self, address: usize) -> Option<Task> {
        self.slab.task_at(address)
    }

    /// Calls `visit` with every task that is not done. It may miss tasks that are spawned meanwhile.
    pub(crate) fn each_task(&self, mut visit: impl FnMut(Task)) {
        if self.is_simulated {
            // In the order in which they were made: their addresses differ from run to run.
            let mut index = 0;
            let chunks = std::iter::from_fn(|| {
                index += 1;
                self.slab.tasks_in_chunk(index - 1)
            });
            let mut tasks: Vec<Task> = chunks.flatten().collect();
            tasks.sort_by_key(Task::number);
            return tasks.into_iter().for_each(visit);
        }
        let mut index = 0;
        while let Some(tasks) = self.slab.tasks_in_chunk(index) {
            tasks.into_iter().for_each(&mut visit);
            index += 1;
        }
    }
}

/// A counter that one thread writes and any thread may read.
#[derive(Default)]
pub(crate) struct OwnCount(AtomicU64);

impl OwnCount {
    #[inline]
    pub(crate) fn add_one(&self) {
        self.add(1);
    }

    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed) + n, Ordering::Release);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}
