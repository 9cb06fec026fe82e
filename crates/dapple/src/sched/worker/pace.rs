//! How long a runnable takes on a worker, and what follows: what is worth moving, and waking another for.

use super::{LOOK_AFTER, NO_WAITING, SOON, WORTH_WAKING, Worker};
use crate::driver::clock::Time;
use crate::prim::Ordering;
use crate::sched::Sched;

/// Of how many workers at the most what contends for a state stays together on one.
const MOST_TOGETHER: usize = 4;

impl Worker {
    pub(super) fn look_at_pace(&self, sched: &Sched, now: Time, runs: u64) {
        let (since, runs_then) = self.own.paced.replace((now, runs));
        let (runs, nanos) = (runs - runs_then, now.nanos_since(since));
        let most_come_back = 2 * self.own.came_back.replace(0) >= runs;
        let many_contend = 8 * self.own.contended.replace(0) >= runs && runs > 0;
        // Elsewhere they would wait for those here. Where there are many workers, those have something else to do
        // meanwhile, more often than not.
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

    /// How many picks it takes until somebody else has waited long, but no more than `most`.
    pub(in crate::sched) fn picks_in_a_while(&self, most: u64) -> u32 {
        let pace = self.pace.load(Ordering::Relaxed);
        LOOK_AFTER.checked_div(pace).unwrap_or(most).clamp(1, most) as u32
    }

    /// What runs here found a state in use, or others in line for it. For the owner.
    pub(in crate::sched) fn contended(&self) {
        self.own.contended.set(self.own.contended.get() + 1);
    }

    /// Sets how much there must be for the next to be woken, by how long this one was of use.
    #[cold]
    pub(super) fn has_helped(&self, sched: &Sched, since: Time) {
        let worth = sched.worth_waking.load(Ordering::Relaxed);
        let soon = Time::now().nanos_since(since) < SOON;
        let worth = if soon { worth + worth / 2 } else { worth / 2 };
        sched.worth_waking.store(worth.clamp(sched.least_worth_waking, NO_WAITING), Ordering::Relaxed);
    }

    /// It runs little, for what takes long or for want of anything: so it has not looked around either.
    /// Hands out what happened in its place, and makes whatever is in its ring worth moving, until it is
    /// known again how long a runnable takes. For the monitor.
    pub(in crate::sched) fn look_after(&self, sched: &Sched) {
        self.pace.store(WORTH_WAKING, Ordering::Relaxed);
        self.stays_together.store(false, Ordering::Relaxed);
        self.until_look.store(0, Ordering::Relaxed);
        if let Some(events) = self.driver(sched).claim() {
            if sched.can_hand_off() {
                events.hand_out_ours(Time::now());
            } else {
                events.hand_out(Time::now(), || {}); // no other thread can
            }
        }
    }

    /// Whether there is something in its ring for others to take: it will take the worker so long,
    /// and is worth moving.
    pub(in crate::sched) fn has_spare(&self, nanos: u64) -> bool {
        let (len, pace) = (self.ring.len() as u64, self.pace.load(Ordering::Relaxed));
        len > 0
            && pace >= self.worth_moving
            && !self.stays_together.load(Ordering::Relaxed)
            && len * pace >= nanos
    }
}
