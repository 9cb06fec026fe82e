//! How a worker picks the next runnable from its own queues and the shared queue, and when it looks around.

use std::ops::ControlFlow;

use super::{LOOK_AFTER, LOOK_EVERY, SHARED_FIRST, Worker};
use crate::driver::clock::Time;
use crate::prim::Ordering;
use crate::sched::Sched;
use crate::sched::run_queue::CAPACITY;
use crate::task::header::Runnable;

/// The shared queue goes first after this many picks, or after this time in nanoseconds.
const SHARED_EVERY: u64 = 64;
const SHARED_AFTER: u64 = 1_000_000;
/// Up to this length one runnable at a time is enough.
const SHARED_SHORT: usize = 64;
/// How many times in a row the next slot goes ahead of the run queue.
const STREAK: u32 = 24;

impl Worker {
    /// Looks around: computes the pace, serves the driver, and returns a runnable of the shared queue if it is that
    /// queue's turn.
    #[cold]
    pub(super) fn look_around(&self, sched: &Sched) -> Option<Runnable> {
        self.keep_slot(sched);
        let (now, runs) = (Time::now(), self.counts.runs.get());
        self.look_at_pace(sched, now, runs);
        let mut more = false;
        let is_time = now.nanos_since(self.own.asked.get()) >= self.events_after;
        if is_time || self.driver(sched).timers.may_be_due(now.tick()) {
            self.own.asked.set(now);
            more = self.take_in(sched, now);
        }
        if sched.idle.could_wake() {
            self.announce(sched);
        }
        let looks = LOOK_AFTER
            .min(self.events_after)
            .checked_div(self.pace.load(Ordering::Relaxed))
            .unwrap_or(u64::MAX);
        let looks = if more { LOOK_EVERY } else { looks.clamp(1, LOOK_EVERY.into()) as u32 };
        self.until_look.store(looks, Ordering::Relaxed);
        let shared_len = sched.injector.queue_len();
        if shared_len >= SHARED_SHORT && runs >= self.own.older_until.get() && sched.managed.is_none() {
            return self.trade(sched, shared_len, runs);
        }
        let (since, runs_then) = self.own.shared.get();
        if runs - runs_then < SHARED_EVERY && now.nanos_since(since) < SHARED_AFTER {
            return None;
        }
        self.own.shared.set((now, runs));
        sched.injector.pop_one()
    }

    /// Exchanges the runnables in the run queue for a share of the shared queue, whose runnables have waited longer,
    /// and returns the first. The shorter the shared queue (`shared_len`), the rarer the trade. So all runnables wait for
    /// about as long, however many there are.
    #[cold]
    fn trade(&self, sched: &Sched, shared_len: usize, runs: u64) -> Option<Runnable> {
        // The rest of the last share is older than all others and stays ahead. At the end of the shared queue it
        // would wait as long once more.
        let older_end = self.own.older_end.get();
        let is_older = || self.run_queue.begins_before(older_end);
        let older: Vec<_> =
            std::iter::from_fn(|| is_older().then(|| self.run_queue.pop()).flatten()).collect();
        let mut newer = Vec::with_capacity(CAPACITY);
        // SAFETY: a run queue gives out rights to run.
        newer.extend(std::iter::from_fn(|| self.run_queue.pop()).map(|node| unsafe { Runnable::new(node) }));
        let share = (CAPACITY / 2).saturating_sub(older.len());
        let mut taken = 0;
        let mut put = |node| {
            let pushed = self.run_queue.push(node);
            debug_assert!(pushed.is_ok(), "the run queue was emptied");
            taken += 1;
        };
        older.into_iter().for_each(&mut put);
        sched.injector.push(newer);
        let first = sched.injector.pop(
            |len| (len / sched.workers.len()).min(share),
            share,
            |runnable| put(runnable.into_ptr()),
        );
        self.own.older_end.set(self.run_queue.end());
        let every = (SHARED_FIRST / shared_len).max(1) as u64;
        self.own.older_until.set(runs + taken * every);
        first
    }

    /// Delivers events and timers. Tasks that this wakes go behind those in the run queue. `true`: there may be more
    /// events.
    fn take_in(&self, sched: &Sched, now: Time) -> bool {
        let was_busy = !self.run_queue.is_empty_for_owner() && self.next.load(Ordering::Relaxed).is_null();
        let Some(claim) = self.driver(sched).claim() else { return false };
        let more = claim.hand_out(now, || self.found(sched)); // SEARCHES in `idle`
        if was_busy
            && sched.managed.is_none()
            && let Some(first) = self.take_next()
        {
            self.enqueue_back(sched, first, false);
        }
        more
    }

    /// Makes the worker look around at its next pick. For any thread. The worker may miss it, and then looks a little
    /// later.
    pub(in crate::sched) fn look_soon(&self) {
        self.until_look.store(0, Ordering::Relaxed);
    }

    /// Picks the next runnable without looking at other workers.
    #[inline]
    pub(in crate::sched) fn pick(&self, sched: &Sched) -> Option<Runnable> {
        match self.until_look.load(Ordering::Relaxed) {
            0 => {
                if let ControlFlow::Break(picked) = self.look(sched) {
                    return picked;
                }
            }
            left => self.until_look.store(left - 1, Ordering::Relaxed),
        }
        let streak = self.own.streak.get();
        if streak < STREAK
            && let Some(runnable) = self.take_next()
        {
            self.own.streak.set(streak + 1);
            return Some(runnable);
        }
        self.own.streak.set(0);
        if let Some(node) = self.run_queue.pop() {
            // SAFETY: a run queue gives out rights to run.
            return Some(unsafe { Runnable::new(node) });
        }
        self.take_next().or_else(|| self.pick_shared(sched)).or_else(|| sched.ranks.pop_any(sched))
    }

    /// Takes a fair share of the shared queue: one runnable to run now, the rest for the run queue, which is empty.
    pub(super) fn pick_shared(&self, sched: &Sched) -> Option<Runnable> {
        let share = |len: usize| (len / sched.workers.len()).min(CAPACITY / 2);
        let first = sched.injector.pop(share, CAPACITY / 2, |runnable| {
            let pushed = self.run_queue.push(runnable.into_ptr());
            debug_assert!(pushed.is_ok(), "the run queue was empty");
        });
        if first.is_some() {
            self.own.older_end.set(self.run_queue.end());
        }
        first
    }
}
