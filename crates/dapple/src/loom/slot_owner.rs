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

struct Post {
    holder: SlotOwner,
    wakeup: Wakeup,
    /// The driver's claim. The thread that sleeps in the driver holds it.
    claim: Mutex<()>,
    /// Set before the slot's own worker is notified.
    ready: AtomicUsize,
    timers: Timers,
}

impl Post {
    /// A slot held by its own worker.
    fn own() -> Post {
        Post {
            holder: SlotOwner::new(OWN),
            wakeup: Wakeup::without_kernel(),
            claim: Mutex::new(()),
            ready: AtomicUsize::new(0),
            timers: Timers::new(),
        }
    }

    /// A slot held by the spare.
    fn new() -> Arc<Post> {
        let post = Post::own();
        assert!(post.holder.pass(OWN, SPARE));
        Arc::new(post)
    }

    /// `Driver::sleep`. Returns `true` if a timer is due soon, so that the thread does not sleep for ever.
    fn sleep(&self, worker: usize) -> bool {
        let _claim = lock(&self.claim);
        if self.timers.plan(0).is_some_and(|until| until <= between(0, SOON)) {
            return true;
        }
        if self.wakeup.prepare_sleep() && self.holder.get() == worker {
            self.wakeup.park(None);
        }
        self.wakeup.finish_sleep();
        if self.holder.get() != worker {
            self.wakeup.notify(); // PASSED-ON
        }
        false
    }

    /// `Sched::run_spare`
    fn stand_in(&self) {
        while self.holder.get() == SPARE {
            self.sleep(SPARE);
        }
    }

    /// `Sched::hand_off`
    fn relieve(&self) {
        if self.holder.pass(OWN, SPARE) {
            self.wakeup.notify(); // HOLDER-SLEEPS
        }
    }

    /// `Sleep::has_elapsed`
    fn enter_timer(&self, worker: usize) {
        match self.timers.insert(SOON, Waker::noop().clone().into()) {
            TimerInsert::At { is_first, .. } if is_first && self.holder.get() != worker => {
                self.wakeup.notify()
            }
            TimerInsert::At { .. } => {} // OWN-TIMERS
            TimerInsert::Due | TimerInsert::Gone => {
                panic!("the timers are open, and the tick is in the future")
            }
        }
    }

    /// `Sched::take_post_back`
    fn take_back(&self) {
        self.holder.take_back(OWN);
        self.wakeup.notify();
    }
}

#[test]
fn a_spare_leaves_when_its_slot_is_taken_back() {
    model(|| {
        let post = Post::new();
        let spare = spawn({
            let post = post.clone();
            move || post.stand_in()
        });
        post.take_back();
        spare.join().unwrap();
    });
}

#[test]
fn a_returned_worker_gets_a_notification_that_woke_its_spare() {
    model(|| {
        let post = Post::new();
        let spare = spawn({
            let post = post.clone();
            move || post.stand_in()
        });
        let other = spawn({
            let post = post.clone();
            move || {
                post.ready.store(1, Ordering::Relaxed);
                post.wakeup.notify();
            }
        });
        post.take_back();
        while post.ready.load(Ordering::Relaxed) == 0 {
            post.sleep(OWN);
        }
        spare.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_slot_is_taken_over_or_back_but_has_one_owner() {
    model(|| {
        let post = Post::new();
        let monitor = spawn({
            let post = post.clone();
            move || post.holder.pass(SPARE, 2) // the spare is stuck as well
        });
        post.take_back();
        let passed = monitor.join().unwrap();
        // Passed on before it was taken back, or not at all.
        assert_eq!(post.holder.get(), OWN, "{passed}");
    });
}

#[test]
fn a_returned_worker_does_not_sleep_when_its_slot_is_passed_on() {
    model(|| {
        let post = Arc::new(Post::own());
        let monitor = spawn({
            let post = post.clone();
            move || post.relieve() // it considered the worker stuck a moment ago
        });
        post.sleep(OWN);
        monitor.join().unwrap();
    });
}

#[test]
fn a_spare_gets_a_notification_that_woke_the_returned_worker() {
    model(|| {
        let post = Arc::new(Post::own());
        let spare = spawn({
            let post = post.clone();
            move || {
                post.relieve();
                while post.ready.load(Ordering::Relaxed) == 0 {
                    post.sleep(SPARE);
                }
            }
        });
        let other = spawn({
            let post = post.clone();
            move || {
                post.ready.store(1, Ordering::Relaxed);
                post.wakeup.notify();
            }
        });
        post.sleep(OWN); // after that, it is stuck
        spare.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_timer_that_the_new_owner_inserts_is_seen_by_the_sleeper() {
    model(|| {
        let post = Arc::new(Post::own());
        let spare = spawn({
            let post = post.clone();
            move || {
                post.relieve();
                post.enter_timer(SPARE); // after that, it is stuck
            }
        });
        while !post.sleep(OWN) {
            if post.holder.get() != OWN {
                post.take_back();
            }
        }
        spare.join().unwrap();
    });
}

/// `Sched::hand_off` and `Sched::run_spare`, for a spare whose thread is awake by an earlier token.
#[test]
fn a_spare_that_is_sent_while_it_goes_to_sleep_serves_its_slot() {
    model(|| {
        let (post, is_out, parker) = (Arc::new(Post::own()), Arc::new(AtomicUsize::new(0)), sleeper().0);
        parker.unpark();
        let spare = spawn({
            let (post, is_out, parker) = (post.clone(), is_out.clone(), parker.clone());
            move || {
                loop {
                    if is_out.load(Ordering::Acquire) == 0 {
                        parker.park(None);
                    } else if post.holder.get() == SPARE {
                        return; // serves the slot
                    } else {
                        is_out.store(0, Ordering::Release);
                    }
                }
            }
        });
        assert!(post.holder.pass(OWN, SPARE));
        is_out.store(1, Ordering::SeqCst); // OUT-AND-HOLDER
        parker.unpark();
        spare.join().unwrap();
    });
}
