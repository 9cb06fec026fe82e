//! The queues of a worker: its next slot, its run queue, and where runnables go that do not fit.
//!
//! # Invariants
//!
//! * **OWNER-PUTS**: only the driving thread writes to `next`, and only while it is empty. Any thread takes from it,
//!   by a swap.

use std::ptr::{NonNull, null_mut};

use super::{SHARED_FIRST, WORTH_WAKING, Worker};
use crate::prim::Ordering;
use crate::sched::Sched;
use crate::sched::run_queue::CAPACITY;
use crate::task::header::{QueuePosition, Runnable};

impl Worker {
    /// Queues a runnable. For the driving thread.
    #[inline]
    pub(in crate::sched) fn enqueue(&self, sched: &Sched, runnable: Runnable, place: QueuePosition) {
        let next_is_free = self.next.load(Ordering::Relaxed).is_null();
        if next_is_free
            && (place == QueuePosition::Next
                || (place == QueuePosition::New && self.run_queue.is_empty_for_owner()))
        {
            self.next.store(runnable.into_ptr().as_ptr(), Ordering::Release); // OWNER-PUTS
            return;
        }
        if place == QueuePosition::First {
            return self.enqueue_first(sched, runnable);
        }
        self.enqueue_back(sched, runnable, next_is_free);
    }

    /// Puts a runnable into the next slot, and the runnable that was there at the end.
    #[cold]
    fn enqueue_first(&self, sched: &Sched, runnable: Runnable) {
        if let Some(managed) = &sched.managed {
            return managed.enqueue_first(sched, self.slot(), runnable);
        }
        let other = self.take_next();
        self.next.store(runnable.into_ptr().as_ptr(), Ordering::Release); // OWNER-PUTS
        self.own.streak.set(0);
        if let Some(other) = other {
            self.enqueue_back(sched, other, false);
        }
    }

    #[inline]
    pub(super) fn enqueue_back(&self, sched: &Sched, runnable: Runnable, next_is_free: bool) {
        match self.run_queue.push(runnable.into_ptr()) {
            // A single runnable is for this worker, which picks soon.
            Ok(was_empty) if was_empty && next_is_free => return,
            Ok(_) => {}
            // SAFETY: the run queue gave the right to run back.
            Err(full) => self.overflow(sched, unsafe { Runnable::new(full) }),
        }
        if sched.idle.could_wake() {
            self.announce(sched);
        }
    }

    /// Wakes another worker for the work in the run queue, if that is worth it.
    #[cold]
    pub(super) fn announce(&self, sched: &Sched) {
        if sched.managed.is_some() {
            return; // its work is in the policy's queues
        }
        // At its own pace this worker might be done before another has woken up. Otherwise the next look at the pace,
        // or the monitor, wakes a worker.
        let takes_long = self.pace.load(Ordering::Relaxed) >= 2 * WORTH_WAKING;
        let worth = if takes_long { 0 } else { sched.worth_waking.load(Ordering::Relaxed) };
        if self.has_spare(worth)
            && let Some(worker) = sched.idle.worker_to_wake()
        {
            sched.worker(worker).announced.store(true, Ordering::Relaxed);
            sched.unpark(worker);
        }
    }

    #[cold]
    fn overflow(&self, sched: &Sched, runnable: Runnable) {
        if let Some(managed) = &sched.managed {
            return managed.enqueue(sched, runnable);
        }
        if sched.injector.queue_len() >= SHARED_FIRST {
            return sched.injector.push_one(runnable); // the runnables in the run queue are older
        }
        let mut older = Vec::with_capacity(CAPACITY / 2 + 1);
        // SAFETY: a run queue gives out rights to run.
        self.run_queue.pop_half(|node| older.push(unsafe { Runnable::new(node) }));
        older.push(runnable);
        self.counts.overflows.add_one();
        sched.injector.push(older);
        if let Some(worker) = sched.idle.worker_to_wake() {
            sched.unpark(worker);
        }
    }

    /// Whether its next slot, its run queue or the shared queue has work.
    pub(super) fn has_ordinary(&self, sched: &Sched) -> bool {
        !self.next.load(Ordering::Relaxed).is_null()
            || !self.run_queue.is_empty_for_owner()
            || !sched.injector.is_empty()
    }

    /// Takes the runnable in the next slot. For any thread.
    #[inline]
    pub(in crate::sched) fn take_next(&self) -> Option<Runnable> {
        if self.next.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let node = NonNull::new(self.next.swap(null_mut(), Ordering::AcqRel))?;
        // SAFETY: the next slot holds a right to run, and the swap took it. OWNER-PUTS
        Some(unsafe { Runnable::new(node) })
    }

    /// Whether its next slot or its run queue has work.
    pub(in crate::sched) fn has_own(&self) -> bool {
        !self.next.load(Ordering::Relaxed).is_null() || self.run_queue.len() > 0
    }

    /// Moves all its runnables to the shared queue. For the driving thread.
    pub(in crate::sched) fn hand_over(&self, sched: &Sched) {
        if sched.managed.is_some() {
            return; // its work is in the policy's queues
        }
        let mut left: Vec<Runnable> = self.take_next().into_iter().collect();
        while let Some(node) = self.run_queue.pop() {
            // SAFETY: a run queue gives out rights to run.
            left.push(unsafe { Runnable::new(node) });
        }
        sched.injector.push(left);
    }

    pub(in crate::sched) fn queued(&self, sched: &Sched) -> usize {
        if let Some(managed) = &sched.managed {
            return if self.number < sched.slots.len() { managed.queued(self.number) } else { 0 };
        }
        self.run_queue.len() + usize::from(!self.next.load(Ordering::Relaxed).is_null())
    }
}
