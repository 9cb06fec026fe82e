//! Worker slots and spares: how a spare replaces a worker that is stuck in a runnable.
//!
//! A *worker slot* is the part of a worker that others depend on: its driver, with events and timers, and a thread
//! that serves it. Each configured worker has a slot and *owns* it at first. When the monitor finds the worker stuck
//! in a runnable while other work waits, it gives the slot to a *spare*: another worker with a run queue, a next slot
//! and a slab cache of its own. The spare sleeps in the slot's driver and steals from the stuck worker as any other
//! worker does. If the spare gets stuck too, the next spare gets the slot. A configured worker that is no longer
//! stuck takes its slot back by itself. The spare sees that, hands over its work and rests. So as many workers run as
//! were configured, besides those that are stuck. See docs/design/stalls.md.
//!
//! # Invariants
//!
//! * **ONE-SLOT-OWNER**, **OWNER-SLEEPS**, **PASSED-ON**: see `slot_owner`.
//! * **ONE-THREAD**: a spare has one thread, from when it first gets a slot until the runtime stops. Only the monitor
//!   changes its slot, and only while the spare rests.
//! * **OUT-AND-OWNER**: a spare becomes the owner of the slot before it is marked as out. In the other order its
//!   thread, which an old token may have woken, could find that it does not own its slot, and come to rest as the
//!   owner.

use std::io;
use std::sync::{Arc, OnceLock};

use super::Sched;
use super::slot_owner::SlotOwner;
use super::worker::Worker;
use crate::driver::Driver;
use crate::prim::{AtomicBool, AtomicUsize, Ordering, Parker, fence_seq_cst};
use crate::task::runtime_shared::RuntimePhase;

/// The part of a worker that others depend on.
pub(super) struct WorkerSlot {
    pub(super) driver: Arc<Driver>,
    /// The number of the worker that owns the slot. ONE-SLOT-OWNER
    owner: SlotOwner,
}

impl WorkerSlot {
    pub(super) fn new(worker: usize) -> io::Result<WorkerSlot> {
        Ok(WorkerSlot { driver: Arc::new(Driver::new()?), owner: SlotOwner::new(worker) })
    }

    /// Passes the slot from `from` to `to`, if `from` owns it. ONE-SLOT-OWNER
    fn pass(&self, from: &Worker, to: &Worker) -> bool {
        self.owner.pass(from.number(), to.number())
    }

    #[inline]
    pub(super) fn owner(&self) -> usize {
        self.owner.get()
    }
}

/// The spare workers of a runtime.
pub(super) struct Spares {
    list: Box<[Spare]>,
    /// How many of them have been made.
    made: AtomicUsize,
    /// Seed of the spares that are made later.
    seed: u64,
}

#[derive(Default)]
struct Spare {
    worker: OnceLock<Box<Worker>>,
    /// It has got a slot and has not come to rest since. Set by the monitor, cleared by its thread. OUT-AND-OWNER
    is_out: AtomicBool,
    /// Its thread was started. Used only by the monitor. ONE-THREAD
    has_thread: AtomicBool,
    /// Parks the thread of a spare that rests.
    parker: Parker,
}

/// Result of an attempt to replace a stuck worker.
#[derive(PartialEq, Eq)]
pub(super) enum Relief {
    /// A spare was sent.
    Sent,
    /// No spare is needed any more.
    Late,
    /// No spare is left, or no thread for one can be started.
    NoSpare,
}

impl Spares {
    pub(super) fn new(most: usize, seed: u64) -> Spares {
        Spares { list: (0..most).map(|_| Spare::default()).collect(), made: AtomicUsize::new(0), seed }
    }

    /// The spares that have been made, in the order of their numbers.
    pub(super) fn made(&self) -> impl Iterator<Item = &Worker> {
        let made = self.made.load(Ordering::Acquire);
        self.list[..made].iter().filter_map(|spare| spare.worker.get()).map(|worker| &**worker)
    }

    /// How many spares do not rest.
    pub(super) fn out(&self) -> usize {
        let made = self.made.load(Ordering::Acquire);
        self.list[..made].iter().filter(|spare| spare.is_out.load(Ordering::Acquire)).count()
    }

    pub(super) fn is_out(&self, spare: usize) -> bool {
        self.list[spare].is_out.load(Ordering::Acquire)
    }

    /// Most spares that may be made.
    pub(super) fn most(&self) -> usize {
        self.list.len()
    }

    /// Wakes all spares that rest, so that they see the end of the runtime.
    pub(super) fn stop(&self) {
        self.list.iter().for_each(|spare| spare.parker.unpark());
    }
}

impl Sched {
    /// All workers in the order of their numbers: configured workers, then spares.
    pub(super) fn all_workers(&self) -> impl Iterator<Item = &Worker> {
        self.workers.iter().chain(self.spares.made())
    }

    /// A worker, by its number.
    pub(super) fn worker(&self, number: usize) -> &Worker {
        match number.checked_sub(self.workers.len()) {
            None => &self.workers[number],
            Some(spare) => self.spares.list[spare].worker.get().expect("a spare that has a number was made"),
        }
    }

    /// Gives the slot of a stuck worker to a spare. `start` starts the spare's thread. For the monitor.
    pub(super) fn hand_off(&self, stuck: &Worker, start: &impl Fn(usize) -> io::Result<()>) -> Relief {
        let Some((index, spare)) = self.free_spare() else { return Relief::NoSpare };
        let worker = spare.worker.get_or_init(|| Box::new(self.make_spare(index)));
        self.spares.made.fetch_max(index + 1, Ordering::Release);
        // The thread is started before the slot is passed on. Passing it back would not be possible: the stuck worker
        // may be a spare that has left meanwhile.
        if !spare.has_thread.load(Ordering::Relaxed) {
            if !self.count_driver() || start(index).inspect_err(|_| self.forgo(1)).is_err() {
                return Relief::NoSpare;
            }
            spare.has_thread.store(true, Ordering::Relaxed);
        }
        worker.set_slot(stuck.slot());
        let slot = &self.slots[stuck.slot()];
        if !slot.pass(stuck, worker) {
            return Relief::Late;
        }
        slot.driver.wake(); // OWNER-SLEEPS: the stuck worker may have come back, and sleep
        spare.is_out.store(true, Ordering::SeqCst); // OUT-AND-OWNER
        spare.parker.unpark();
        Relief::Sent
    }

    /// Whether a spare could be sent now.
    pub(super) fn can_hand_off(&self) -> bool {
        self.free_spare().is_some()
    }

    /// A spare that rests, or the next to be made.
    fn free_spare(&self) -> Option<(usize, &Spare)> {
        let is_free = |(_, spare): &(usize, &Spare)| !spare.is_out.load(Ordering::Acquire);
        self.spares.list.iter().enumerate().find(is_free)
    }

    fn make_spare(&self, index: usize) -> Worker {
        Worker::new(self.workers.len() + index, self.spares.seed, self.managed.is_some(), self.events)
    }

    /// Runs the thread of a spare until the runtime stops. ONE-THREAD
    pub(crate) fn run_spare(&self, spare: usize) {
        let guard = self.enter_worker(self.workers.len() + spare);
        let Spare { worker, is_out, parker, .. } = &self.spares.list[spare];
        let worker = worker.get().expect("a spare is made before its thread");
        while !guard.is_stopped() {
            if is_out.load(Ordering::Acquire) {
                guard.drive_alone(|| guard.is_stopped() || !worker.owns_slot(self));
                if !guard.is_stopped() {
                    worker.leave(self);
                    is_out.store(false, Ordering::Release);
                }
            } else {
                parker.park(None);
            }
        }
    }

    /// Takes the slot of a configured worker back. For its thread, which is no longer stuck.
    #[cold]
    pub(super) fn take_slot_back(&self, worker: &Worker) {
        let slot = &self.slots[worker.number()];
        slot.owner.take_back(worker.number());
        slot.driver.wake(); // OWNER-SLEEPS
    }

    /// Whether this thread drives a worker that owns its slot: it looks at the driver before it sleeps, and no other
    /// thread sleeps there. OWN-TIMERS
    pub(crate) fn owns_slot_here() -> bool {
        Sched::current(|sched| sched.with_worker_here(|worker| worker.owns_slot(sched)))
            .flatten()
            .unwrap_or(false)
    }

    /// Whether stuck workers may be replaced.
    pub(crate) fn has_spares(&self) -> bool {
        self.spares.most() > 0
    }

    /// Whether the runtime has stopped, so that workers leave.
    pub(super) fn is_stopped(&self) -> bool {
        self.shared.phase() == RuntimePhase::Stopped
    }
}

impl Worker {
    /// Whether it owns its slot, and so may sleep in the slot's driver.
    #[inline]
    pub(super) fn owns_slot(&self, sched: &Sched) -> bool {
        sched.slots[self.slot()].owner() == self.number()
    }

    /// Hands its work over to the other workers. For a spare that has lost its slot.
    fn leave(&self, sched: &Sched) {
        self.found(sched);
        self.hand_over(sched);
        fence_seq_cst(); // SLEEP-OR-SEE: it will not run the runnables that it has pushed
        sched.wake_for_more();
    }
}
