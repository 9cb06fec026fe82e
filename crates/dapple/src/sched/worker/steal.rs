//! How a worker searches: what it takes from others, and how long it looks out before it sleeps.

use super::{PATIENCE, PAUSE, Worker};
use crate::sched::Sched;
use crate::task::header::Runnable;
use crate::world;

/// How long a searcher watches a slot before it takes it from a worker that seems stuck.
const WATCH: u32 = if cfg!(miri) { 2 } else { 100 };
/// The most that a worker wants to find in a ring before it steals from it at once.
const GREED: usize = 64;

impl Worker {
    /// Looks at the other workers. Counts as searching from here on, unless enough others are.
    pub(in crate::sched) fn search(&self, sched: &Sched) -> Option<Runnable> {
        let may_search = self.own.searching.get() || sched.idle.begin_search();
        if may_search {
            self.own.searching.set(true);
            world::pause();
        }
        if let Some(managed) = &sched.managed {
            // Looks in any case: what is in line for one that is just waking up would keep this one from sleeping.
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

    /// The other workers, beginning with any of them.
    fn others<'a>(&self, sched: &'a Sched) -> impl Iterator<Item = &'a Worker> + use<'a> {
        let (first, number) = (self.random() as usize % sched.workers.len(), self.number);
        let (before, after) = sched.workers.split_at(first);
        let others = after.iter().chain(before).chain(sched.spares.made());
        others.filter(move |other| other.number != number)
    }

    /// Takes half of what another worker has in its ring, if that is at least so much, beginning with
    /// any of them. To steal little is dear, so who got little wants more the next time.
    pub(super) fn steal(&self, sched: &Sched, at_least: usize) -> Option<Runnable> {
        let mut worth_it =
            self.others(sched).filter(|other| other.ring.len() >= at_least && other.has_spare(0));
        let node = worth_it.find_map(|other| other.ring.steal_into(&self.ring))?;
        self.own.older_end.set(self.ring.end()); // they have waited there
        let stolen = self.ring.len() + 1;
        let greed = self.own.greed.get();
        self.own.greed.set(if stolen < GREED / 2 { (2 * greed).min(GREED) } else { greed.div_ceil(2) });
        self.counts.steals.add_one();
        self.counts.stolen.add(stolen as u64);
        // SAFETY: what a ring gives out is the right to run.
        Some(unsafe { Runnable::new(node) })
    }

    /// Takes what waits in the slot of a worker that seems stuck.
    fn take_from_stalled(&self, sched: &Sched) -> Option<Runnable> {
        let mut others = sched.all_workers().filter(|other| other.number != self.number);
        let runnable = others.find(|other| other.seems_stuck())?.take_next()?;
        self.counts.steals.add_one();
        self.counts.stolen.add_one();
        Some(runnable)
    }

    /// Looks out for a moment for something to come in, which is cheaper than to fall asleep and be
    /// woken; less and less if it turns out to be in vain.
    fn linger(&self, sched: &Sched) -> Option<Runnable> {
        // Where events come from outside, they come to those who sleep.
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
        // Now and then it tries again.
        let tried = self.own.tried.get().wrapping_add(1);
        self.own.tried.set(tried);
        self.own.patience.set(if tried.is_multiple_of(32) { PATIENCE } else { looks / 2 });
        None
    }

    /// Whether its slot has been full for a while in which it has not run anything else.
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
