//! The runtime as tasks see it: where their memory lies and who puts them in line.

use super::header::{Runnable, TaskPtr};
use super::panics::{OnPanic, Panics};
use super::slab::{Chunk, LocalSlab, Slab};
use super::{Priority, QueuePosition, Task};
use crate::prim::{AtomicPtr, AtomicU8, AtomicU64, Ordering};

/// How far a runtime is on its way out.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub(crate) enum RuntimePhase {
    Running,
    /// The same, in a simulated world.
    Simulated,
    /// Everything has been cancelled; what is spawned now is born cancelled.
    Cancelling,
    /// Nothing new is taken, and workers leave.
    Stopped,
}

/// The part of a runtime that its tasks know of. Every task finds it through its memory.
#[repr(C)]
pub(crate) struct RuntimeShared {
    pub(crate) slab: Slab,
    /// A pointer to the whole of which this is the first part; see [`RuntimeShared::settle`].
    whole: AtomicPtr<RuntimeShared>,
    phase: AtomicU8,
    pub(crate) is_simulated: bool,
    /// The priorities above and below the ordinary of which something is in line, a bit for each.
    pub(crate) ranks: AtomicU8,
    pub(crate) rules: Rules,
    /// Tasks spawned and finished by threads that are not workers; each worker counts its own.
    spawned: AtomicU64,
    finished: AtomicU64,
    /// Tasks that were refused before they began.
    refused: AtomicU64,
    pub(crate) panics: Panics,
    pub(crate) hooks: &'static Hooks,
}

/// What a policy asks of lanes.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    /// How many tasks a turn steps at the most, before others of the worker get theirs.
    pub(crate) turn: usize,
    /// Whether lanes count what is in line.
    pub(crate) counts_lines: bool,
    /// Whether a lane that has become more urgent gets another entry.
    pub(crate) raises: bool,
}

impl Default for Rules {
    fn default() -> Rules {
        Rules { turn: 64, counts_lines: false, raises: true }
    }
}

/// What the layers above do for tasks.
pub(crate) struct Hooks {
    /// Puts a runnable in line.
    pub(crate) enqueue: unsafe fn(*const RuntimeShared, Runnable, QueuePosition),
    /// Puts a closure in line for the pool of blocking calls.
    pub(crate) enqueue_blocking: unsafe fn(*const RuntimeShared, Runnable),
    /// Whether a task that was cancelled, and rests, is to be dropped; see `cancel::grace::is_left_alone`.
    pub(crate) is_left_alone: unsafe fn(*const RuntimeShared, &Task, bool) -> bool,
    /// Called once, when the workers have left: keeps the whole for the memory that is in use.
    pub(crate) keep: unsafe fn(*const RuntimeShared),
    /// Called once, after `keep`, when the last of it is back: gives the whole up.
    pub(crate) retire: unsafe fn(*const RuntimeShared),
}

impl RuntimeShared {
    pub(crate) fn new(hooks: &'static Hooks, rules: Rules, on_panic: OnPanic) -> RuntimeShared {
        let is_simulated = crate::world::is_simulated();
        let phase = if is_simulated { RuntimePhase::Simulated } else { RuntimePhase::Running };
        RuntimeShared {
            slab: Slab::default(),
            whole: AtomicPtr::default(),
            phase: AtomicU8::new(phase as u8),
            is_simulated,
            ranks: AtomicU8::new(0),
            rules,
            spawned: AtomicU64::new(0),
            finished: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            panics: Panics::new(on_panic),
            hooks,
        }
    }

    /// Tells the home where it lies for good, by a pointer from which the layers above can get back
    /// to the whole. Before the first task.
    pub(crate) fn settle(whole: *const RuntimeShared) {
        // SAFETY: the caller has just put it there.
        unsafe { &*whole }.whole.store(whole.cast_mut(), Ordering::Release);
    }

    pub(crate) fn whole(&self) -> *const RuntimeShared {
        self.whole.load(Ordering::Acquire)
    }

    /// The home of a task or a lane.
    #[inline]
    pub(crate) fn of(ptr: TaskPtr) -> *const RuntimeShared {
        Chunk::of(ptr).home
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

    /// Whether anything is in line by its priority.
    #[inline]
    pub(crate) fn has_ranks(&self) -> bool {
        self.ranks.load(Ordering::Relaxed) != 0
    }

    /// Whether something more urgent is in line, by its priority.
    #[inline]
    pub(crate) fn has_above(&self, priority: Priority) -> bool {
        self.ranks.load(Ordering::Relaxed) >> (priority as u8 + 1) != 0
    }

    /// Moves on to `phase`, never back.
    pub(crate) fn enter_phase(&self, phase: RuntimePhase) {
        self.phase.fetch_max(phase as u8, Ordering::SeqCst);
    }

    /// Counts a task, with `slab` from [`Here::slab_of`](crate::context::ThreadContext::slab_of).
    #[inline]
    pub(crate) fn count_spawned(&self, slab: Option<&LocalSlab>) {
        match slab {
            Some(slab) => slab.spawned.add_one(),
            None => drop(self.spawned.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// As `count_spawned`.
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

    /// The task at an address, if there is one that is not done. Whatever the address.
    pub(crate) fn task_at(&self, address: usize) -> Option<Task> {
        self.slab.task_at(address)
    }

    /// Calls `visit` with every task that is not done, and may miss those spawned meanwhile.
    pub(crate) fn each_task(&self, mut visit: impl FnMut(Task)) {
        if self.is_simulated {
            // In the order in which they were made: where they lie is not the same in every run.
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

/// A counter that one thread writes and any may read.
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
