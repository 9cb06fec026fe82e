//! Models of sleeping and waking: no task stays in a queue while all workers that could take it sleep.
//!
//! A lost wake-up shows as a thread that is parked for ever, which loom reports as a deadlock.

use std::sync::Arc;

use loom::model;
use loom::thread::spawn;

use crate::prim::{AtomicUsize, Ordering, Parker};
use crate::sched::idle::Idle;

/// Two workers. Number 0 is busy, or finds tasks that no model checks; number 1 sleeps.
struct Sched {
    idle: Idle,
    parkers: [Parker; 2],
    /// Number of tasks in a queue that all workers can take from.
    queue: AtomicUsize,
}

impl Sched {
    fn new() -> Arc<Sched> {
        let parkers = [Parker::default(), Parker::default()];
        Arc::new(Sched { idle: Idle::new(2), parkers, queue: AtomicUsize::new(0) })
    }

    /// A worker pushes a task, and is busy afterwards. `Worker::enqueue`
    fn push(&self) {
        self.queue.fetch_add(1, Ordering::Release);
        self.wake(self.idle.worker_to_wake());
    }

    /// `Sched::inject`
    fn push_from_outside(&self) {
        self.queue.fetch_add(1, Ordering::Release);
        self.wake(self.idle.worker_to_wake_from_outside());
    }

    fn wake(&self, worker: Option<usize>) {
        worker.into_iter().for_each(|worker| self.parkers[worker].unpark());
    }

    fn take(&self) -> bool {
        let one_less = |count: usize| count.checked_sub(1);
        self.queue.fetch_update(Ordering::AcqRel, Ordering::Relaxed, one_less).is_ok()
    }

    /// A worker found a task. `Worker::found`, `Sched::wake_for_more`
    fn found(&self, searching: bool) {
        if searching && self.idle.end_search() && self.has_work() {
            self.wake(self.idle.worker_to_wake());
        }
    }

    fn has_work(&self) -> bool {
        self.queue.load(Ordering::Relaxed) > 0
    }

    /// A worker without work sleeps until it has taken a task. `Worker::sleep`, `WorkerGuard::drive`
    fn sleep_until_taken(&self, worker: usize, mut searching: bool) {
        loop {
            self.idle.fall_asleep(worker, searching);
            if !self.has_work() {
                self.parkers[worker].park(None);
            }
            searching = !self.idle.wake_up(worker);
            if self.take() {
                return self.found(searching);
            }
        }
    }

    /// All workers are awake, and none counts as searching.
    fn assert_none_idle(&self) {
        assert_eq!(self.idle.sleeping(), 0);
        assert!(self.idle.begin_search(), "one of two workers may search, if none does");
    }
}

#[test]
fn a_worker_does_not_sleep_through_a_push() {
    model(|| {
        let sched = Sched::new();
        let sleeper = spawn({
            let sched = sched.clone();
            move || sched.sleep_until_taken(1, false)
        });
        sched.push();
        sleeper.join().unwrap();
        sched.assert_none_idle();
    });
}

#[test]
fn a_worker_does_not_sleep_through_a_push_from_outside() {
    model(|| {
        let sched = Sched::new();
        let sleeper = spawn({
            let sched = sched.clone();
            move || sched.sleep_until_taken(1, false)
        });
        sched.push_from_outside();
        sleeper.join().unwrap();
        sched.assert_none_idle();
    });
}

#[test]
fn a_searcher_does_not_sleep_through_a_push_that_relied_on_it() {
    model(|| {
        let sched = Sched::new();
        assert!(sched.idle.begin_search());
        let searcher = spawn({
            let sched = sched.clone();
            move || sched.sleep_until_taken(1, true)
        });
        sched.push();
        searcher.join().unwrap();
        sched.assert_none_idle();
    });
}

#[test]
fn the_last_searcher_to_find_something_wakes_another() {
    model(|| {
        let sched = Sched::new();
        assert!(sched.idle.begin_search());
        let sleeper = spawn({
            let sched = sched.clone();
            move || sched.sleep_until_taken(1, false)
        });
        let pusher = spawn({
            let sched = sched.clone();
            move || sched.push_from_outside()
        });
        sched.found(true); // it found a task elsewhere, and is busy from here on
        pusher.join().unwrap();
        sleeper.join().unwrap();
        sched.assert_none_idle();
    });
}

#[test]
fn two_pushes_wake_two_sleepers() {
    model(|| {
        let sched = Sched::new();
        let sleepers = [0, 1].map(|worker| {
            let sched = sched.clone();
            spawn(move || sched.sleep_until_taken(worker, false))
        });
        sched.push_from_outside();
        sched.push_from_outside();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        sched.assert_none_idle();
    });
}
