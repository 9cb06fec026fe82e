//! Models of a worker slot: a stuck worker that comes back, and the spare that replaced it meanwhile.
//!
//! A thread that sleeps for ever, with no notifier left, is a deadlock to loom.

use std::sync::Arc;
use std::task::Waker;

use loom::model;
use loom::thread::spawn;

use super::sleeper;
use crate::driver::clock::{TickCount, between};
use crate::driver::timers::{TimerInsert, Timers};
use crate::driver::wakeup::Wakeup;
use crate::prim::{AtomicUsize, Mutex, Ordering, lock};
use crate::sched::slot_owner::SlotOwner;

/// Tick at which a timer is due.
const SOON: TickCount = 5;
/// The slot's own worker, and the spare that replaces it.
const OWN: usize = 0;
const SPARE: usize = 1;

struct ModelSlot {
    owner: SlotOwner,
    wakeup: Wakeup,
    /// The driver's claim. The thread that sleeps in the driver holds it.
    claim: Mutex<()>,
    /// Set before the slot's own worker is notified.
    ready: AtomicUsize,
    timers: Timers,
}

impl ModelSlot {
    /// A slot held by its own worker.
    fn own() -> ModelSlot {
        ModelSlot {
            owner: SlotOwner::new(OWN),
            wakeup: Wakeup::without_kernel(),
            claim: Mutex::new(()),
            ready: AtomicUsize::new(0),
            timers: Timers::new(),
        }
    }

    /// A slot held by the spare.
    fn new() -> Arc<ModelSlot> {
        let slot = ModelSlot::own();
        assert!(slot.owner.pass(OWN, SPARE));
        Arc::new(slot)
    }

    /// `Driver::sleep`. Returns `true` if a timer is due soon, so that the thread does not sleep for ever.
    fn sleep(&self, worker: usize) -> bool {
        let _claim = lock(&self.claim);
        if self.timers.plan(0).is_some_and(|until| until <= between(0, SOON)) {
            return true;
        }
        if self.wakeup.prepare_sleep() && self.owner.get() == worker {
            self.wakeup.park(None);
        }
        self.wakeup.finish_sleep();
        if self.owner.get() != worker {
            self.wakeup.notify(); // PASSED-ON
        }
        false
    }

    /// `Sched::run_spare`
    fn run_spare(&self) {
        while self.owner.get() == SPARE {
            self.sleep(SPARE);
        }
    }

    /// `Sched::hand_off`
    fn hand_off(&self) {
        if self.owner.pass(OWN, SPARE) {
            self.wakeup.notify(); // OWNER-SLEEPS
        }
    }

    /// `Sleep::has_elapsed`
    fn enter_timer(&self, worker: usize) {
        match self.timers.insert(SOON, Waker::noop().clone().into()) {
            TimerInsert::At { is_first, .. } if is_first && self.owner.get() != worker => {
                self.wakeup.notify()
            }
            TimerInsert::At { .. } => {} // OWN-TIMERS
            TimerInsert::Due | TimerInsert::Gone => {
                panic!("the timers are open, and the tick is in the future")
            }
        }
    }

    /// `Sched::take_slot_back`
    fn take_back(&self) {
        self.owner.take_back(OWN);
        self.wakeup.notify();
    }
}

#[test]
fn a_spare_leaves_when_its_slot_is_taken_back() {
    model(|| {
        let slot = ModelSlot::new();
        let spare = spawn({
            let slot = slot.clone();
            move || slot.run_spare()
        });
        slot.take_back();
        spare.join().unwrap();
    });
}

#[test]
fn a_returned_worker_gets_a_notification_that_woke_its_spare() {
    model(|| {
        let slot = ModelSlot::new();
        let spare = spawn({
            let slot = slot.clone();
            move || slot.run_spare()
        });
        let other = spawn({
            let slot = slot.clone();
            move || {
                slot.ready.store(1, Ordering::Relaxed);
                slot.wakeup.notify();
            }
        });
        slot.take_back();
        while slot.ready.load(Ordering::Relaxed) == 0 {
            slot.sleep(OWN);
        }
        spare.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_slot_is_taken_over_or_back_but_has_one_owner() {
    model(|| {
        let slot = ModelSlot::new();
        let monitor = spawn({
            let slot = slot.clone();
            move || slot.owner.pass(SPARE, 2) // the spare is stuck as well
        });
        slot.take_back();
        let passed = monitor.join().unwrap();
        // Passed on before it was taken back, or not at all.
        assert_eq!(slot.owner.get(), OWN, "{passed}");
    });
}

#[test]
fn a_returned_worker_does_not_sleep_when_its_slot_is_passed_on() {
    model(|| {
        let slot = Arc::new(ModelSlot::own());
        let monitor = spawn({
            let slot = slot.clone();
            move || slot.hand_off() // it considered the worker stuck a moment ago
        });
        slot.sleep(OWN);
        monitor.join().unwrap();
    });
}

#[test]
fn a_spare_gets_a_notification_that_woke_the_returned_worker() {
    model(|| {
        let slot = Arc::new(ModelSlot::own());
        let spare = spawn({
            let slot = slot.clone();
            move || {
                slot.hand_off();
                while slot.ready.load(Ordering::Relaxed) == 0 {
                    slot.sleep(SPARE);
                }
            }
        });
        let other = spawn({
            let slot = slot.clone();
            move || {
                slot.ready.store(1, Ordering::Relaxed);
                slot.wakeup.notify();
            }
        });
        slot.sleep(OWN); // after that, it is stuck
        spare.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_timer_that_the_new_owner_inserts_is_seen_by_the_sleeper() {
    model(|| {
        let slot = Arc::new(ModelSlot::own());
        let spare = spawn({
            let slot = slot.clone();
            move || {
                slot.hand_off();
                slot.enter_timer(SPARE); // after that, it is stuck
            }
        });
        while !slot.sleep(OWN) {
            if slot.owner.get() != OWN {
                slot.take_back();
            }
        }
        spare.join().unwrap();
    });
}

/// `Sched::hand_off` and `Sched::run_spare`, for a spare whose thread is awake by an earlier token.
#[test]
fn a_spare_that_is_sent_while_it_goes_to_sleep_serves_its_slot() {
    model(|| {
        let (slot, is_out, parker) = (Arc::new(ModelSlot::own()), Arc::new(AtomicUsize::new(0)), sleeper().0);
        parker.unpark();
        let spare = spawn({
            let (slot, is_out, parker) = (slot.clone(), is_out.clone(), parker.clone());
            move || {
                loop {
                    if is_out.load(Ordering::Acquire) == 0 {
                        parker.park(None);
                    } else if slot.owner.get() == SPARE {
                        return; // serves the slot
                    } else {
                        is_out.store(0, Ordering::Release);
                    }
                }
            }
        });
        assert!(slot.owner.pass(OWN, SPARE));
        is_out.store(1, Ordering::SeqCst); // OUT-AND-OWNER
        parker.unpark();
        spare.join().unwrap();
    });
}
