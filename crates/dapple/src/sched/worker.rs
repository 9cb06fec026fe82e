//! A worker: picks the next runnable from its own queues, the shared queue, or other workers.
//!
//! A worker is a value, and a thread *drives* it. It owns a run queue, a *next slot* (`next`) for the runnable that
//! goes first, and a slab cache. It sleeps in the driver of its worker slot (`worker_slot`). It picks in this order:
//!
//! 1. Now and then it *looks around*: at events, at timers that are due, and at the shared queue, so that none of
//!    them starves. A thread that queues a lane by priority (`ranks`) makes it look at every pick while such lanes
//!    are queued.
//! 2. The next slot, a bounded number of times in a row: a task that the last task woke finds its data in the cache.
//! 3. The run queue.
//! 4. The shared queue, a batch at a time.
//! 5. Half of another worker's run queue, or its next slot if that worker seems stuck.
//!
//! A worker of a runtime with a policy picks as the policy says (`policy_queues`). Its next slot and its run queue
//! are closed.
//!
//! ```text
//! drive  the loop: pick, run, sleep; queue: the next slot and the run queue
//! pick   from its own queues and the shared queue; steal: from other workers
//! pace   how long a runnable takes, and which work is worth moving
//! sleep  in the driver of its worker slot
//! ```

pub(super) mod drive;
mod pace;
mod pick;
mod queue;
mod sleep;
mod steal;

use std::cell::Cell;
use std::ops::ControlFlow;
use std::ptr::null_mut;
use std::sync::Arc;

use super::Sched;
use super::ranks::Ranks;
use super::run_queue::{CAPACITY, RunQueue};
use super::stall_reports::CurrentTaskView;
use crate::context::{Fills, OfWorker};
use crate::driver::Driver;
use crate::driver::clock::Time;
use crate::prim::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::task::Priority;
use crate::task::header::{Header, Runnable};
use crate::task::runtime_shared::OwnCount;
use crate::task::slab::LocalSlab;
use crate::world;

/// The worker looks around after this many picks, or after this time in nanoseconds if picks take long.
const LOOK_EVERY: u32 = 64;
const LOOK_AFTER: u64 = 50_000;
/// From this length on the shared queue goes first: its head is older than the runnables in the run queues.
const SHARED_FIRST: usize = 2 * CAPACITY;
/// How long, in nanoseconds, a busy worker does not ask the kernel for events, by the priority of events. Events that
/// are not asked for are delivered no later than with the lowest priority.
const EVENTS_AFTER: [u64; Priority::ALL.len()] = [1_000_000, 100_000, 25_000, 0];
/// How often a searching worker looks for new work before it falls asleep, and how long it pauses between looks.
/// Together this takes about as long as falling asleep.
const PATIENCE: u32 = if cfg!(miri) { 1 } else { 32 };
const PAUSE: u32 = 4;
/// How long the work in a run queue must take, in nanoseconds, before another worker is woken for it: a few times as
/// long as waking takes. The bound grows if woken workers go back to sleep soon, up to `NO_WAITING`, which no task
/// should have to wait.
pub(super) const WORTH_WAKING: u64 = 20_000;
const SOON: u64 = 300_000;
const NO_WAITING: u64 = 1_000_000;
/// How long a runnable must take, in nanoseconds, to be worth moving to another core: as long as the cache misses of
/// the move. Runnables that do not fit into the run queue are moved all the same.
const WORTH_MOVING: u64 = 100;
/// Value of the next slot of a worker with a policy: the slot is never free.
const CLOSED_SLOT: *mut Header = std::ptr::without_provenance_mut(1);

/// Aligned so that fields that workers write often do not share a cache line.
#[repr(align(128))]
pub(crate) struct Worker {
    number: usize,
    /// The worker slot that it owns or owned last. Its own, unless it is a spare.
    slot: AtomicUsize,
    run_queue: RunQueue<Header>,
    next: AtomicPtr<Header>,
    /// It sleeps, or is about to.
    is_asleep: AtomicBool,
    /// It was woken for work in another worker's run queue.
    announced: AtomicBool,
    /// Picks until it looks around.
    until_look: AtomicU32,
    /// Average time of a runnable, in nanoseconds. At least `WORTH_MOVING` if most runnables come back: each would be
    /// moved once and run many times.
    pace: AtomicU64,
    /// Its tasks contend for the same state, so they would wait for each other elsewhere.
    stays_together: AtomicBool,
    /// How long a runnable must take to be worth moving: `WORTH_MOVING`, or the choice of a simulation.
    worth_moving: u64,
    /// One of `EVENTS_AFTER`.
    events_after: u64,
    pub(crate) slab: LocalSlab,
    pub(super) counts: WorkerCounts,
    pub(super) task_view: CurrentTaskView,
    own: WorkerPrivate,
}

// SAFETY: no other type fills it. ONE-TYPE
unsafe impl Fills<OfWorker> for Worker {}

/// Counters of a worker.
#[derive(Default)]
pub(super) struct WorkerCounts {
    pub(super) runs: OwnCount,
    /// Turns of the main color.
    pub(super) main_turns: OwnCount,
    pub(super) steals: OwnCount,
    pub(super) stolen: OwnCount,
    pub(super) sleeps: OwnCount,
    pub(super) overflows: OwnCount,
}

/// Fields that only the driving thread touches.
struct WorkerPrivate {
    streak: Cell<u32>,
    random: Cell<u64>,
    /// Runnables that came back since the pace was last computed.
    came_back: Cell<u64>,
    /// How often, since then, a task found a state in use, or other tasks waiting for it.
    contended: Cell<u64>,
    /// When the pace was last computed, and the number of runs at that time.
    paced: Cell<(Time, u64)>,
    /// When the kernel was last asked for events.
    asked: Cell<Time>,
    /// When it woke up, if it was woken for work in another worker's run queue.
    helps_since: Cell<Option<Time>>,
    /// When the shared queue last went first, and the number of runs at that time.
    shared: Cell<(Time, u64)>,
    /// Number of runs after which all runnables of the last trade with the shared queue have been picked, or more.
    older_until: Cell<u64>,
    /// Position in the run queue where the runnables from the shared queue or from another worker end.
    older_end: Cell<usize>,
    /// Length of another worker's run queue from which on it steals at once.
    greed: Cell<usize>,
    /// How often it looks for new work before it falls asleep.
    patience: Cell<u32>,
    /// How often it looked without success.
    tried: Cell<u32>,
    searching: Cell<bool>,
    /// Picks by priority or by policy until it looks around, and the number of such picks so far.
    until_around: Cell<u32>,
    picks: Cell<u32>,
}

// SAFETY: ONE-DRIVER: `own`, and the owner's side of the other fields, are used only by the one thread that drives
// the worker.
unsafe impl Sync for Worker {}

impl Worker {
    pub(super) fn new(number: usize, seed: u64, is_managed: bool, events: Priority) -> Worker {
        let seed = seed ^ (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Worker {
            number,
            slot: AtomicUsize::new(number),
            run_queue: if is_managed { RunQueue::closed() } else { RunQueue::new() },
            next: AtomicPtr::new(if is_managed { CLOSED_SLOT } else { null_mut() }),
            is_asleep: AtomicBool::new(false),
            announced: AtomicBool::new(false),
            until_look: AtomicU32::new(0),
            pace: AtomicU64::new(WORTH_WAKING),
            stays_together: AtomicBool::new(false),
            worth_moving: world::with(|world| world.rng.threshold(WORTH_MOVING)).unwrap_or(WORTH_MOVING),
            events_after: EVENTS_AFTER[events as usize],
            slab: LocalSlab::default(),
            counts: WorkerCounts::default(),
            task_view: CurrentTaskView::default(),
            own: WorkerPrivate {
                streak: Cell::new(0),
                random: Cell::new(seed | 1),
                came_back: Cell::new(0),
                contended: Cell::new(0),
                paced: Cell::new((Time::now(), 0)),
                asked: Cell::new(Time::now()),
                helps_since: Cell::new(None),
                shared: Cell::new((Time::now(), 0)),
                older_until: Cell::new(0),
                older_end: Cell::new(0),
                greed: Cell::new(1),
                patience: Cell::new(PATIENCE),
                tried: Cell::new(0),
                searching: Cell::new(false),
                until_around: Cell::new(0),
                picks: Cell::new(0),
            },
        }
    }

    pub(super) fn number(&self) -> usize {
        self.number
    }

    #[inline]
    pub(super) fn slot(&self) -> usize {
        self.slot.load(Ordering::Relaxed)
    }

    /// For a spare that rests. ONE-THREAD in `worker_slot`
    pub(super) fn set_slot(&self, slot: usize) {
        self.slot.store(slot, Ordering::Relaxed);
    }

    /// The driver of its worker slot.
    #[inline]
    pub(super) fn driver<'a>(&self, sched: &'a Sched) -> &'a Arc<Driver> {
        &sched.slots[self.slot()].driver
    }

    /// Takes its worker slot back if a spare has it. For the driving thread.
    fn keep_slot(&self, sched: &Sched) {
        if self.number < sched.slots.len() && !self.owns_slot(sched) {
            sched.take_slot_back(self);
        }
    }

    /// Looks around if it is time to, then at lanes that are queued by priority or policy. `Continue`: nothing was
    /// picked, and the worker goes on with its own queues.
    ///
    /// How often it looks around depends on the clock. `versus/instructions` excludes this function by its name, so
    /// it stays in the file of the type.
    #[cold]
    #[inline(never)]
    fn look(&self, sched: &Sched) -> ControlFlow<Option<Runnable>> {
        if sched.managed.is_none() && !sched.has_ranks() {
            return match self.look_around(sched) {
                None => ControlFlow::Continue(()),
                shared => ControlFlow::Break(shared),
            };
        }
        match self.own.until_around.get() {
            0 => {
                let shared = self.look_around(sched);
                self.own.until_around.set(self.until_look.load(Ordering::Relaxed));
                self.until_look.store(0, Ordering::Relaxed); // look again at the next pick
                if shared.is_some() {
                    return ControlFlow::Break(shared);
                }
            }
            left => self.own.until_around.set(left - 1),
        }
        let managed = sched.managed.as_ref();
        if let Some(managed) = managed.filter(|managed| managed.weighs()) {
            return ControlFlow::Break(managed.pick(sched, self.slot(), self.slot()));
        }
        let picks = self.own.picks.get().wrapping_add(1);
        self.own.picks.set(picks);
        for priority in Ranks::order(picks) {
            if priority != Priority::Normal {
                if let Some(runnable) = sched.ranks.pop(sched, priority) {
                    return ControlFlow::Break(Some(runnable));
                }
                continue;
            }
            // Normal lanes that are queued by priority, and ordinary runnables, alternate.
            let ranked = || sched.ranks.pop(sched, Priority::Normal);
            if picks.is_multiple_of(2)
                && let Some(runnable) = ranked()
            {
                return ControlFlow::Break(Some(runnable));
            }
            let ordinary = match managed {
                None if self.has_ordinary(sched) => return ControlFlow::Continue(()),
                // While urgent lanes are always queued no worker searches, so this one steals now and then.
                None => Ranks::is_aged(picks).then(|| self.steal(sched, 1)).flatten(),
                Some(managed) => managed.pick(sched, self.slot(), self.slot()),
            };
            if let Some(runnable) = ordinary.or_else(ranked) {
                return ControlFlow::Break(Some(runnable));
            }
        }
        if managed.is_some() { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
    }

    /// Measure of progress: the number of runs so far, and the content of the next slot.
    pub(super) fn progress(&self) -> (u64, *const Header) {
        (self.counts.runs.get() + self.counts.main_turns.get(), self.next.load(Ordering::Relaxed))
    }

    /// Stops counting as a searching worker. SEARCHES in `idle`
    #[inline]
    pub(super) fn found(&self, sched: &Sched) {
        if self.own.searching.get() {
            self.own.searching.set(false);
            if sched.idle.end_search() {
                sched.wake_for_more();
            }
        }
    }

    /// Gives up its queued work. For the driving thread, when it leaves.
    pub(super) fn retire(&self, sched: &Sched) {
        if self.own.searching.replace(false) {
            sched.idle.end_search();
        }
        self.hand_over(sched);
    }
}
