//! Posts and spares: who stands in for a worker that is stuck in a runnable.
//!
//! A *post* is what others depend on of a worker: its driver, with its events and timers, and that somebody is
//! there to run what comes. Each configured worker has one, and *holds* it. When the monitor finds that it is
//! stuck in a runnable while others wait, it gives the post to a *spare*: another worker, with a ring, a slot and
//! a store of memory of its own, which sleeps in the post's driver and takes what it can get from the one that is
//! stuck, as any other worker does. If the spare gets stuck, too, the next one takes the post. When the configured
//! worker comes back it takes its post back by itself, and the spare, when it sees that, hands over what it has
//! and rests. So there are as many that run as were configured, and those that are stuck. See
//! docs/design/stalls.md.
//!
//! # Invariants
//!
//! * **ONE-HOLDER**, **HOLDER-SLEEPS**, **PASSED-ON**: see `slot_owner`.
//! * **ONE-THREAD**: a spare has one thread, from when it is first sent to a post until the runtime stops. Its post
//!   changes only while it rests, by the monitor.
//! * **OUT-AND-HOLDER**: a spare is sent out after it was made the holder. If it were the other way round, its thread,
//!   which may be awake for a token of last time, could find that it does not hold its post, and come to rest with it.

use std::io;
use std::sync::{Arc, OnceLock};

use super::Sched;
use super::slot_owner::SlotOwner;
use super::worker::Worker;
use crate::driver::Driver;
use crate::prim::{AtomicBool, AtomicUsize, Ordering, Parker, fence_seq_cst};
use crate::task::runtime_shared::RuntimePhase;

/// What a worker is there for.
pub(super) struct WorkerSlot {
    pub(super) driver: Arc<Driver>,
    /// Who holds it, by number. ONE-HOLDER
    owner: SlotOwner,
}

impl WorkerSlot {
    pub(super) fn new(worker: usize) -> io::Result<WorkerSlot> {
        Ok(WorkerSlot { driver: Arc::new(Driver::new()?), owner: SlotOwner::new(worker) })
    }

    /// Gives it from one to another, if it is that one's. ONE-HOLDER
    fn pass(&self, from: &Worker, to: &Worker) -> bool {
        self.owner.pass(from.number(), to.number())
    }

    #[inline]
    pub(super) fn owner(&self) -> usize {
        self.owner.get()
    }
}

/// Those that may stand in.
pub(super) struct Spares {
    list: Box<[Spare]>,
    /// So many of them have been made.
    made: AtomicUsize,
    /// What the others are made by.
    seed: u64,
}

#[derive(Default)]
struct Spare {
    worker: OnceLock<Box<Worker>>,
    /// It was sent to a post, and has not come to rest again. Set by the monitor, cleared by its thread. OUT-AND-HOLDER
    is_out: AtomicBool,
    /// Its thread was started. Only used by the monitor. ONE-THREAD
    has_thread: AtomicBool,
    /// Where it rests.
    parker: Parker,
}

/// What became of an attempt to relieve a worker.
#[derive(PartialEq, Eq)]
pub(super) enum Relief {
    /// A spare was sent.
    Sent,
    /// It is not needed any more.
    Late,
    /// No spare, or no thread for one, is to be had.
    Nobody,
}

impl Spares {
    pub(super) fn new(most: usize, seed: u64) -> Spares {
        Spares { list: (0..most).map(|_| Spare::default()).collect(), made: AtomicUsize::new(0), seed }
    }

    /// Those that have been made, in the order of their numbers.
    pub(super) fn made(&self) -> impl Iterator<Item = &Worker> {
        let made = self.made.load(Ordering::Acquire);
        self.list[..made].iter().filter_map(|spare| spare.worker.get()).map(|worker| &**worker)
    }

    /// How many do not rest.
    pub(super) fn out(&self) -> usize {
        let made = self.made.load(Ordering::Acquire);
        self.list[..made].iter().filter(|spare| spare.is_out.load(Ordering::Acquire)).count()
    }

    pub(super) fn is_out(&self, spare: usize) -> bool {
        self.list[spare].is_out.load(Ordering::Acquire)
    }

    /// How many there may be.
    pub(super) fn most(&self) -> usize {
        self.list.len()
    }

    /// Wakes all who rest, to see that it is over.
    pub(super) fn stop(&self) {
        self.list.iter().for_each(|spare| spare.parker.unpark());
    }
}

impl Sched {
    /// All workers, those that were configured and then the spares, in the order of their numbers.
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

    /// Gives the post of a worker that is stuck to a spare. `start` starts its thread. For the monitor.
    pub(super) fn hand_off(&self, stuck: &Worker, start: &impl Fn(usize) -> io::Result<()>) -> Relief {
        let Some((index, spare)) = self.free_spare() else { return Relief::Nobody };
        let worker = spare.worker.get_or_init(|| Box::new(self.make_spare(index)));
        self.spares.made.fetch_max(index + 1, Ordering::Release);
        // Before the post is passed on: there is no way back if it cannot be had, since the stuck worker may be a
        // spare that has left meanwhile.
        if !spare.has_thread.load(Ordering::Relaxed) {
            if !self.count_driver() || start(index).inspect_err(|_| self.forgo(1)).is_err() {
                return Relief::Nobody;
            }
            spare.has_thread.store(true, Ordering::Relaxed);
        }
        worker.set_slot(stuck.slot());
        let slot = &self.slots[stuck.slot()];
        if !slot.pass(stuck, worker) {
            return Relief::Late;
        }
        slot.driver.ring(); // HOLDER-SLEEPS: it may have come back, and sleep
        spare.is_out.store(true, Ordering::SeqCst); // OUT-AND-HOLDER
        spare.parker.unpark();
        Relief::Sent
    }

    /// Whether a spare could be sent now.
    pub(super) fn can_hand_off(&self) -> bool {
        self.free_spare().is_some()
    }

    /// One that rests, or the next to be made.
    fn free_spare(&self) -> Option<(usize, &Spare)> {
        let is_free = |(_, spare): &(usize, &Spare)| !spare.is_out.load(Ordering::Acquire);
        self.spares.list.iter().enumerate().find(is_free)
    }

    fn make_spare(&self, index: usize) -> Worker {
        Worker::new(self.workers.len() + index, self.spares.seed, self.managed.is_some(), self.events)
    }

    /// What the thread of a spare does until the workers are told to leave. ONE-THREAD
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

    /// Takes the post of a configured worker back, which has come back from where it was stuck.
    #[cold]
    pub(super) fn take_slot_back(&self, worker: &Worker) {
        let slot = &self.slots[worker.number()];
        slot.owner.take_back(worker.number());
        slot.driver.ring(); // HOLDER-SLEEPS
    }

    /// Whether this thread drives a worker that holds its post: it looks at the driver before it sleeps, and nobody
    /// else does.
    pub(crate) fn owns_slot_here() -> bool {
        Sched::current(|sched| sched.with_worker_here(|worker| worker.owns_slot(sched)))
            .flatten()
            .unwrap_or(false)
    }

    /// Whether anybody may stand in for a worker.
    pub(crate) fn has_spares(&self) -> bool {
        self.spares.most() > 0
    }

    /// Whether the workers were told to leave.
    pub(super) fn is_stopped(&self) -> bool {
        self.shared.phase() == RuntimePhase::Stopped
    }
}

impl Worker {
    /// Whether it is the one that sleeps in the driver of its post.
    #[inline]
    pub(super) fn owns_slot(&self, sched: &Sched) -> bool {
        sched.slots[self.slot()].owner() == self.number()
    }

    /// Gives up what it has, to those that go on. For a spare that has lost its post.
    fn leave(&self, sched: &Sched) {
        self.found(sched);
        self.hand_over(sched);
        fence_seq_cst(); // SLEEP-OR-SEE: it does not run what it has pushed itself
        sched.wake_for_more();
    }
}
