//! How a worker sleeps and wakes up.

use std::time::Duration;

use super::Worker;
use crate::driver::clock::Time;
use crate::prim::Ordering;
use crate::sched::Sched;
use crate::world;

/// Back-off while a spare leaves the driver of this worker.
const A_MOMENT: Duration = Duration::from_micros(20);

impl Worker {
    /// Whether it sleeps, or is about to.
    pub(in crate::sched) fn is_asleep(&self) -> bool {
        self.is_asleep.load(Ordering::Acquire)
    }

    /// Sleeps until there is work, `awake` returns true, or `limit` has passed.
    pub(in crate::sched) fn sleep(&self, sched: &Sched, limit: Option<Duration>, awake: impl Fn() -> bool) {
        world::pause(); // work may be queued after the last look
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
                world::sleep(A_MOMENT); // the spare in the driver is about to leave
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
        // A worker that another thread took off the list counts as searching. ONE-WAKER
        self.own.searching.set(!sched.idle.wake_up(self.number));
        sched.monitor.wake(); // SLEEPS-WITH-ALL
        if let Some(events) = events.flatten() {
            self.own.asked.set(now);
            events.hand_out(now, || self.found(sched)); // SEARCHES in `idle`
        }
    }
}
