//! The monitor: a thread that notices a stuck worker, frees the work that waits with it, and gives its slot to a
//! spare.
//!
//! A searching worker can steal from any run queue. The runnable in a worker's next slot is left to that worker,
//! which is about to run it. But a task that blocks or computes for long would hide it there. The monitor looks every
//! few milliseconds. A runnable that it finds there for the second time it moves to the shared queue, and it hands
//! out the events and timers of that worker's driver. It also wakes a worker if there is work that others could take
//! and that the last searching worker missed.
//!
//! A worker that has been in one runnable for longer than `stall_after` is *stalled*. Then the runnable in its next
//! slot is moved at once. If any work could need the worker's slot, a spare gets the slot (`worker_slot`), at the
//! last look before that time.
//!
//! # Invariants
//!
//! * **SLEEPS-WITH-ALL**: the monitor sleeps without a timeout once all workers have slept for a while, stuck workers
//!   and spares included. A worker that wakes up wakes the monitor. So an idle process makes no wake-ups.

use std::io;
use std::time::Duration;

use super::Sched;
use super::stall_reports::Stalls;
use super::worker::Worker;
use super::worker_slot::Relief;
use crate::driver::clock::Time;
use crate::prim::{AtomicBool, Ordering, Parker, fence_seq_cst};
use crate::task::header::Header;

/// Longest and shortest time between two looks. It looks four times while a worker stalls.
const SELDOM: Duration = Duration::from_millis(5);
const OFTEN: Duration = Duration::from_micros(500);
/// A worker that ran fewer runnables than this in 5 ms takes long for each, and may not have looked around.
const FEW: u64 = 64;
/// Factor for the time after which a worker outside of a task counts as stalled. Such a worker waits for a processor,
/// where another thread would make matters worse, or a foreign waker blocks.
const OUTSIDE: u32 = 10;
/// How long all workers must have slept before the monitor sleeps without a timeout.
const PATIENCE: Duration = Duration::from_millis(200);

pub(crate) struct Monitor {
    parker: Parker,
    asleep: AtomicBool,
    stall_after: Duration,
    pub(super) stalls: Stalls,
}

impl Monitor {
    pub(super) fn new(stall_after: Duration) -> Monitor {
        Monitor {
            parker: Parker::default(),
            asleep: AtomicBool::new(false),
            stall_after,
            stalls: Stalls::default(),
        }
    }

    /// Wakes the monitor. For a worker that has woken up and no longer counts as sleeping.
    pub(super) fn wake(&self) {
        fence_seq_cst();
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::SeqCst) {
            self.parker.unpark();
        }
    }

    pub(super) fn stop(&self) {
        self.parker.unpark();
    }

    fn period(&self) -> Duration {
        (self.stall_after / 4).clamp(OFTEN, SELDOM)
    }
}

/// The monitor's record of a worker.
struct StallWatch {
    progress: (u64, *const Header),
    /// When it was last seen to make progress.
    since: Time,
    is_stalled: bool,
    /// Its stall was reported; the lack of a spare for it was counted.
    is_told: bool,
    is_unrelieved: bool,
}

impl StallWatch {
    fn new(worker: &Worker, now: Time) -> StallWatch {
        let progress = worker.progress();
        StallWatch { progress, since: now, is_stalled: false, is_told: false, is_unrelieved: false }
    }
}

impl Sched {
    /// Runs the monitor's thread until the runtime stops. `start` starts the thread of a spare.
    pub(crate) fn watch(&self, start: impl Fn(usize) -> io::Result<()>) {
        let period = self.monitor.period();
        let patience = PATIENCE.div_duration_f32(period) as u32;
        let few = (FEW * period.as_micros() as u64 / SELDOM.as_micros() as u64).max(1);
        let mut watches: Vec<StallWatch> = Vec::new();
        let mut all_slept = 0;
        while !self.is_stopped() {
            all_slept = if self.all_sleep() { all_slept + 1 } else { 0 };
            if all_slept < patience {
                self.monitor.parker.park(Some(period));
            } else {
                self.monitor.asleep.store(true, Ordering::SeqCst);
                fence_seq_cst();
                if self.all_sleep() && !self.is_stopped() {
                    self.monitor.parker.park(None);
                }
                self.monitor.asleep.store(false, Ordering::SeqCst);
                all_slept = 0;
            }
            let now = Time::now();
            for (number, worker) in self.all_workers().enumerate() {
                if number == watches.len() {
                    watches.push(StallWatch::new(worker, now));
                }
                let spare = number.checked_sub(self.workers.len());
                if spare.is_none_or(|spare| self.spares.is_out(spare)) {
                    self.look_at(worker, &mut watches[number], now, few, &start);
                } else {
                    watches[number] = StallWatch::new(worker, now);
                }
            }
            self.wake_for_more(); // LAST-SEARCHER
        }
    }

    /// Whether all workers sleep that do not rest.
    fn all_sleep(&self) -> bool {
        self.idle.sleeping() == self.workers.len() + self.spares.out()
    }

    fn look_at(
        &self,
        worker: &Worker,
        watch: &mut StallWatch,
        now: Time,
        few: u64,
        start: &impl Fn(usize) -> io::Result<()>,
    ) {
        let progress = worker.progress();
        let before = std::mem::replace(&mut watch.progress, progress);
        if progress.0 - before.0 < few {
            worker.look_after(self);
        }
        let has_moved = progress.0 != before.0;
        if (progress == before || (watch.is_stalled && !has_moved))
            && !progress.1.is_null()
            && self.managed.is_none()
            && let Some(runnable) = worker.take_next()
        {
            self.inject(runnable);
        }
        if has_moved || worker.is_asleep() {
            if watch.is_stalled {
                worker.task_view.set_stalled(None);
            }
            *watch = StallWatch { progress, ..StallWatch::new(worker, now) };
            return;
        }
        let stuck_for = Duration::from_nanos(now.nanos_since(watch.since));
        let limit =
            self.monitor.stall_after.saturating_mul(if worker.task_view.shows_task() { 1 } else { OUTSIDE });
        if stuck_for >= limit {
            self.note_stall(worker, watch, stuck_for);
        }
        // It may have been stuck since just after the look before `since`, so one period is added: no work waits for
        // longer than the limit.
        if stuck_for + self.monitor.period() >= limit && worker.owns_slot(self) && self.needs_relief(worker) {
            match self.hand_off(worker, start) {
                Relief::Sent => self.monitor.stalls.note_relief(),
                Relief::Late => {}
                Relief::NoSpare if std::mem::replace(&mut watch.is_unrelieved, true) => {}
                Relief::NoSpare => self.monitor.stalls.note_no_spare(),
            }
        }
        if stuck_for >= limit {
            self.tell_of_stall(worker, watch, stuck_for);
        }
    }

    /// Counts a stalled worker.
    fn note_stall(&self, worker: &Worker, watch: &mut StallWatch, stuck_for: Duration) {
        let is_new = !std::mem::replace(&mut watch.is_stalled, true);
        self.monitor.stalls.note(is_new, stuck_for);
        if is_new {
            worker.task_view.set_stalled(Some(watch.since));
        }
    }

    /// Reports a stalled worker, after it was counted and a spare was sent: a subscriber may take its time.
    fn tell_of_stall(&self, worker: &Worker, watch: &mut StallWatch, stuck_for: Duration) {
        if watch.is_unrelieved {
            self.monitor.stalls.report_no_spare(self.spares.most());
        }
        if !watch.is_told
            && let Some(task) = self.task_of(worker)
        {
            watch.is_told = true;
            self.monitor.stalls.tell(&task, stuck_for);
        }
    }

    /// Whether any work could need the slot of a stuck worker. If all other workers are awake, work from outside
    /// could.
    fn needs_relief(&self, worker: &Worker) -> bool {
        let driver = worker.driver(self);
        worker.has_own()
            || self.has_work()
            || driver.sources() > 0
            || driver.timers.is_any()
            || driver.has_foreign()
            || self.idle.sleeping() == 0
    }
}
