//! The monitor: notices a worker that does not get on, and frees what waits in its slot.
//!
//! What is in a worker's ring can be stolen by anybody who searches. What is in its slot is left
//! to it, since it is about to run it; but a task that blocks, or computes for long, would hide it
//! there. The monitor looks every few milliseconds, and moves what it finds for the second time to
//! the shared line, and hands out the events and timers of its driver in its place. It also wakes a
//! worker for what others could take, should that have escaped the last one who searched.
//!
//! # Invariants
//!
//! * **SLEEPS-WITH-ALL**: the monitor sleeps for good when all workers have slept for a while, and
//!   a worker that wakes up wakes it. So an idle process makes no wake-ups.

use std::time::Duration;

use super::Sched;
use crate::prim::{AtomicBool, Ordering, Parker, fence_seq_cst};
use crate::task::home::Phase;

/// How often it looks.
const PERIOD: Duration = Duration::from_millis(5);
/// A worker that has run so few in that time takes long for each, and may not have looked around.
const FEW: u64 = 64;
/// How many times it looks at workers that all sleep before it sleeps too.
const PATIENCE: u32 = 40;

#[derive(Default)]
pub(crate) struct Monitor {
    parker: Parker,
    asleep: AtomicBool,
}

impl Monitor {
    /// Called by a worker that has woken up, and does not count as a sleeper any more.
    pub(super) fn wake(&self) {
        fence_seq_cst();
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::SeqCst) {
            self.parker.unpark();
        }
    }

    pub(super) fn stop(&self) {
        self.parker.unpark();
    }
}

impl Sched {
    /// What the monitor's thread does until the workers are told to leave.
    pub(crate) fn watch(&self) {
        let mut before: Vec<_> = self.workers.iter().map(|worker| worker.progress()).collect();
        let mut all_slept = 0;
        while self.home.phase() != Phase::Stopped {
            let all_sleep = self.idle.sleeping() == self.workers.len();
            all_slept = if all_sleep { all_slept + 1 } else { 0 };
            if all_slept < PATIENCE {
                self.monitor.parker.park(Some(PERIOD));
            } else {
                self.monitor.asleep.store(true, Ordering::SeqCst);
                fence_seq_cst();
                if self.idle.sleeping() == self.workers.len() && self.home.phase() != Phase::Stopped {
                    self.monitor.parker.park(None);
                }
                self.monitor.asleep.store(false, Ordering::SeqCst);
                all_slept = 0;
            }
            for (worker, before) in self.workers.iter().zip(&mut before) {
                let now = worker.progress();
                if now.0 - before.0 < FEW {
                    worker.look_after();
                }
                if now == *before
                    && !now.1.is_null()
                    && self.managed.is_none()
                    && let Some(runnable) = worker.take_next()
                {
                    self.inject(runnable);
                }
                *before = now;
            }
            self.wake_for_more(); // LAST-SEARCHER
        }
    }
}
