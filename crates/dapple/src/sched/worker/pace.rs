//! How long a runnable takes on a worker, and so which work is worth moving or worth waking another worker for.

use super::{LOOK_AFTER, NO_WAITING, SOON, WORTH_WAKING, Worker};
use crate::driver::clock::Time;
use crate::prim::Ordering;
use crate::sched::Sched;

/// With up to this many workers, tasks that contend for a state stay together on one worker.
const MOST_TOGETHER: usize = 4;

impl Worker {
    pub(super) fn look_at_pace(&self, sched: &Sched, now: Time, runs: u64) {
        let (since, runs_then) = self.own.paced.replace((now, runs));
        let (runs, nanos) = (runs - runs_then, now.nanos_since(since));
        let most_come_back = 2 * self.own.came_back.replace(0) >= runs;
        let many_contend = 8 * self.own.contended.replace(0) >= runs && runs > 0;
        // On another worker they would wait for the tasks on this one. With many workers the others mostly have other
        // work to do meanwhile.
        let stays_together = many_contend && sched.workers.len() <= MOST_TOGETHER;
        if stays_together != self.stays_together.load(Ordering::Relaxed) {
            self.stays_together.store(stays_together, Ordering::Relaxed);
        }
        if let Some(pace) = nanos.checked_div(runs) {
            let pace = match self.pace.load(Ordering::Relaxed).midpoint(pace) {
                pace if most_come_back => pace.max(self.worth_moving),
                pace => pace,
            };
            self.pace.store(pace, Ordering::Relaxed);
        }
    }

    /// Number of picks after which other work has waited long, but at most `most`.
    pub(in crate::sched) fn picks_in_a_while(&self, most: u64) -> u32 {
        let pace = self.pace.load(Ordering::Relaxed);
        LOOK_AFTER.checked_div(pace).unwrap_or(most).clamp(1, most) as u32
    }

    /// Notes that the running task found a state in use, or other tasks waiting for it. For the driving thread.
    pub(in crate::sched) fn contended(&self) {
        self.own.contended.set(self.own.contended.get() + 1);
    }

    /// Adapts `worth_waking` by how long this worker, woken at `since`, was of use.
    #[cold]
    pub(super) fn has_helped(&self, sched: &Sched, since: Time) {
        let worth = sched.worth_waking.load(Ordering::Relaxed);
        let soon = Time::now().nanos_since(since) < SOON;
        let worth = if soon { worth + worth / 2 } else { worth / 2 };
        sched.worth_waking.store(worth.clamp(sched.least_worth_waking, NO_WAITING), Ordering::Relaxed);
    }

    /// Serves the driver of a worker that runs few runnables, because each takes long or because there are none: it
    /// has not looked around either. Also makes all work in its run queue worth moving until its pace is known again.
    /// For the monitor.
    pub(in crate::sched) fn look_after(&self, sched: &Sched) {
        self.pace.store(WORTH_WAKING, Ordering::Relaxed);
        self.stays_together.store(false, Ordering::Relaxed);
        self.until_look.store(0, Ordering::Relaxed);
        if let Some(events) = self.driver(sched).claim() {
            if sched.can_hand_off() {
                events.hand_out_ours(Time::now());
            } else {
                events.hand_out(Time::now(), || {}); // no spare could
            }
        }
    }

    /// Whether its run queue has work for other workers: worth moving, and enough for at least `nanos` nanoseconds.
    pub(in crate::sched) fn has_spare(&self, nanos: u64) -> bool {
        let (len, pace) = (self.run_queue.len() as u64, self.pace.load(Ordering::Relaxed));
        len > 0
            && pace >= self.worth_moving
            && !self.stays_together.load(Ordering::Relaxed)
            && len * pace >= nanos
    }
}
