//! The monitor: notices a worker that does not get on, frees what waits with it, and sends a spare to its post.
//!
//! What is in a worker's ring can be stolen by anybody who searches. What is in its slot is left
//! to it, since it is about to run it; but a task that blocks, or computes for long, would hide it
//! there. The monitor looks every few milliseconds, and moves what it finds for the second time to
//! the shared line, and hands out the events and timers of its driver in its place. It also wakes a
//! worker for what others could take, should that have escaped the last one who searched.
//!
//! A worker that has been in one runnable for longer than `stall_after` is *stalled*: what is in its slot goes
//! at once, and if there is anything that could need it, a spare takes its post (`post`), at the last look before.
//!
//! # Invariants
//!
//! * **SLEEPS-WITH-ALL**: the monitor sleeps for good when all workers have slept for a while, those that are
//!   stuck and those that stand in included, and a worker that wakes up wakes it. So an idle process makes no
//!   wake-ups.

use std::io;
use std::time::Duration;

use super::Sched;
use super::stall_reports::Stalls;
use super::worker::Worker;
use super::worker_slot::Relief;
use crate::driver::clock::Time;
use crate::prim::{AtomicBool, Ordering, Parker, fence_seq_cst};
use crate::task::header::Header;

/// How often it looks, at the least and at the most: four times while a worker stalls.
const SELDOM: Duration = Duration::from_millis(5);
const OFTEN: Duration = Duration::from_micros(500);
/// A worker that has run so few in 5 ms takes long for each, and may not have looked around.
const FEW: u64 = 64;
/// How many times as long it takes for a worker to count as stalled that is not in a task: it waits for a processor,
/// and to send another would make that worse; or a foreign waker blocks.
const OUTSIDE: u32 = 10;
/// How long it looks at workers that all sleep before it sleeps too.
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

    fn period(&self) -> Duration {
        (self.stall_after / 4).clamp(OFTEN, SELDOM)
    }
}

/// What the monitor knows of a worker.
struct Watch {
    progress: (u64, *const Header),
    /// When it was last seen to have got on.
    since: Time,
    is_stalled: bool,
    /// It was told what it is stuck in; that nobody can stand in for it was counted.
    is_told: bool,
    is_unrelieved: bool,
}

impl Watch {
    fn new(worker: &Worker, now: Time) -> Watch {
        let progress = worker.progress();
        Watch { progress, since: now, is_stalled: false, is_told: false, is_unrelieved: false }
    }
}

impl Sched {
    /// What the monitor's thread does until the workers are told to leave. `start` starts the thread of a spare.
    pub(crate) fn watch(&self, start: impl Fn(usize) -> io::Result<()>) {
        let period = self.monitor.period();
        let patience = PATIENCE.div_duration_f32(period) as u32;
        let few = (FEW * period.as_micros() as u64 / SELDOM.as_micros() as u64).max(1);
        let mut watches: Vec<Watch> = Vec::new();
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
                    watches.push(Watch::new(worker, now));
                }
                let spare = number.checked_sub(self.workers.len());
                if spare.is_none_or(|spare| self.spares.is_out(spare)) {
                    self.look_at(worker, &mut watches[number], now, few, &start);
                } else {
                    watches[number] = Watch::new(worker, now);
                }
            }
            self.wake_for_more(); // LAST-SEARCHER
        }
    }

    /// Whether all sleep who do not rest.
    fn all_sleep(&self) -> bool {
        self.idle.sleeping() == self.workers.len() + self.spares.out()
    }

    fn look_at(
        &self,
        worker: &Worker,
        watch: &mut Watch,
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
                worker.window.set_stalled(None);
            }
            *watch = Watch { progress, ..Watch::new(worker, now) };
            return;
        }
        let stuck_for = Duration::from_nanos(now.nanos_since(watch.since));
        let limit =
            self.monitor.stall_after.saturating_mul(if worker.window.shows_task() { 1 } else { OUTSIDE });
        if stuck_for >= limit {
            self.note_stall(worker, watch, stuck_for);
        }
        // It may have been stuck for longer than since it was last seen to get on, by as long as looks are apart. So
        // nobody waits for longer than was said.
        if stuck_for + self.monitor.period() >= limit && worker.owns_slot(self) && self.needs_relief(worker)
        {
            match self.hand_off(worker, start) {
                Relief::Sent => self.monitor.stalls.note_relief(),
                Relief::Late => {}
                Relief::Nobody if std::mem::replace(&mut watch.is_unrelieved, true) => {}
                Relief::Nobody => self.monitor.stalls.note_nobody(),
            }
        }
        if stuck_for >= limit {
            self.tell_of_stall(worker, watch, stuck_for);
        }
    }

    /// Counts that a worker is stalled.
    fn note_stall(&self, worker: &Worker, watch: &mut Watch, stuck_for: Duration) {
        let is_new = !std::mem::replace(&mut watch.is_stalled, true);
        self.monitor.stalls.note(is_new, stuck_for);
        if is_new {
            worker.window.set_stalled(Some(watch.since));
        }
    }

    /// Tells that a worker is stalled, once all is counted and a spare is sent: a subscriber may take its time.
    fn tell_of_stall(&self, worker: &Worker, watch: &mut Watch, stuck_for: Duration) {
        if watch.is_unrelieved {
            self.monitor.stalls.tell_nobody(self.spares.most());
        }
        if !watch.is_told
            && let Some(task) = self.task_of(worker)
        {
            watch.is_told = true;
            self.monitor.stalls.tell(&task, stuck_for);
        }
    }

    /// Whether there is anything that could need the post of a worker that is stuck. If everybody else is awake,
    /// there will be, from outside.
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
