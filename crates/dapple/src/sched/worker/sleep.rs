//! How a worker sleeps, and what it does when it wakes up.

use std::time::Duration;

use super::Worker;
use crate::driver::clock::Time;
use crate::prim::Ordering;
use crate::sched::Sched;
use crate::world;

/// How long a worker waits for who stood in for it to leave its driver.
const A_MOMENT: Duration = Duration::from_micros(20);

impl Worker {
    /// Whether it sleeps, or is about to.
    pub(in crate::sched) fn is_asleep(&self) -> bool {
        self.is_asleep.load(Ordering::Acquire)
    }

    /// Sleeps until there is something to do, `awake` says that there is, or `limit` has passed.
    pub(in crate::sched) fn sleep(&self, sched: &Sched, limit: Option<Duration>, awake: impl Fn() -> bool) {
        world::pause(); // something may come in after the last look
        self.keep_slot(sched);
        self.is_asleep.store(true, Ordering::Release);
        sched.idle.fall_asleep(self.number, self.own.searching.replace(false));
        world::pause();
        let events = (!awake() && !sched.has_work()).then(|| {
            self.counts.sleeps.add_one();
            if let Some(since) = self.own.helps_since.take() {
                self.has_helped(sched, since);
            }
            let events = self.driver(sched).sleep(limit, || self.owns_slot(sched));
            if events.is_none() {
                world::sleep(A_MOMENT); // who stood in is about to leave
            }
            events
        });
        self.is_asleep.store(false, Ordering::Release);
        let now = Time::now();
        if self.announced.load(Ordering::Relaxed) {
            self.announced.store(false, Ordering::Relaxed);
            self.own.helps_since.set(Some(now));
        }
        self.own.paced.set((now, self.counts.runs.get()));
        // Taken off the list by another, we count as searching. ONE-WAKER
        self.own.searching.set(!sched.idle.wake_up(self.number));
        sched.monitor.wake(); // SLEEPS-WITH-ALL
        if let Some(events) = events.flatten() {
            self.own.asked.set(now);
            events.hand_out(now, || self.found(sched)); // SEARCHES in `idle`
        }
    }
}
