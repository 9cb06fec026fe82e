//! How a worker searches: stealing from other workers, and how long it looks for new work before it sleeps.

use super::{PATIENCE, PAUSE, Worker};
use crate::sched::Sched;
use crate::task::header::Runnable;
use crate::world;

/// How long a searching worker watches a next slot before it takes the runnable of a worker that seems stuck.
const WATCH: u32 = if cfg!(miri) { 2 } else { 100 };
/// Upper bound of `greed`.
const GREED: usize = 64;

impl Worker {
    /// Searches the other workers' queues. The worker counts as searching from then on, unless enough others do.
    pub(in crate::sched) fn search(&self, sched: &Sched) -> Option<Runnable> {
        let may_search = self.own.searching.get() || sched.idle.begin_search();
        if may_search {
            self.own.searching.set(true);
            world::pause();
        }
        if let Some(managed) = &sched.managed {
            // Looks in any case: work that is queued for a worker that is just waking up would keep this one from
            // sleeping.
            let (this, slots) = (self.slot(), sched.slots.len());
            let first = self.random() as usize % slots;
            return (first..first + slots).find_map(|of| managed.pick(sched, this, of % slots));
        }
        if !may_search {
            return None;
        }
        let found = self.pick_shared(sched).or_else(|| self.steal(sched, self.own.greed.get()));
        found
            .or_else(|| self.linger(sched))
            .or_else(|| self.steal(sched, 1))
            .or_else(|| self.take_from_stalled(sched))
    }

    /// The other workers, from a random one on.
    fn others<'a>(&self, sched: &'a Sched) -> impl Iterator<Item = &'a Worker> + use<'a> {
        let (first, number) = (self.random() as usize % sched.workers.len(), self.number);
        let (before, after) = sched.workers.split_at(first);
        let others = after.iter().chain(before).chain(sched.spares.made());
        others.filter(move |other| other.number != number)
    }

    /// Takes half of another worker's run queue, if it has at least `at_least` runnables, from a random worker on.
    /// Stealing few is expensive, so a worker that got few wants more the next time.
    pub(super) fn steal(&self, sched: &Sched, at_least: usize) -> Option<Runnable> {
        let mut worth_it =
            self.others(sched).filter(|other| other.run_queue.len() >= at_least && other.has_spare(0));
        let node = worth_it.find_map(|other| other.run_queue.steal_into(&self.run_queue))?;
        self.own.older_end.set(self.run_queue.end()); // the stolen runnables have waited
        let stolen = self.run_queue.len() + 1;
        let greed = self.own.greed.get();
        self.own.greed.set(if stolen < GREED / 2 { (2 * greed).min(GREED) } else { greed.div_ceil(2) });
        self.counts.steals.add_one();
        self.counts.stolen.add(stolen as u64);
        // SAFETY: a run queue gives out rights to run.
        Some(unsafe { Runnable::new(node) })
    }

    /// Takes the runnable in the next slot of a worker that seems stuck.
    fn take_from_stalled(&self, sched: &Sched) -> Option<Runnable> {
        let mut others = sched.all_workers().filter(|other| other.number != self.number);
        let runnable = others.find(|other| other.seems_stuck())?.take_next()?;
        self.counts.steals.add_one();
        self.counts.stolen.add_one();
        Some(runnable)
    }

    /// Looks for new work for a moment, which is cheaper than falling asleep and being woken. It looks less often if
    /// that has no success.
    fn linger(&self, sched: &Sched) -> Option<Runnable> {
        // With descriptors registered, events come to workers that sleep in a driver.
        if sched.slots.iter().any(|slot| slot.driver.sources() > 0) {
            return None;
        }
        let looks = self.own.patience.get();
        for left in (0..looks).rev() {
            for _ in 0..PAUSE {
                world::spin();
            }
            let at_least = self.own.greed.get() * left as usize / PATIENCE as usize;
            let found = self.pick_shared(sched).or_else(|| self.steal(sched, at_least.max(1)));
            if found.is_some() {
                self.own.patience.set(PATIENCE);
                return found;
            }
        }
        // Every 32nd time it looks as often as at first.
        let tried = self.own.tried.get().wrapping_add(1);
        self.own.tried.set(tried);
        self.own.patience.set(if tried.is_multiple_of(32) { PATIENCE } else { looks / 2 });
        None
    }

    /// Whether its next slot has been full for a while in which it has run nothing else.
    fn seems_stuck(&self) -> bool {
        let before = self.progress();
        let is_the_same = |_| {
            world::spin();
            self.progress() == before
        };
        !before.1.is_null() && (0..WATCH).all(is_the_same)
    }

    fn random(&self) -> u64 {
        let mut x = self.own.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.own.random.set(x);
        x
    }
}
