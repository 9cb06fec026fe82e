//! The queues of a worker: its slot and its ring, and what does not fit in there.
//!
//! # Invariants
//!
//! * **OWNER-PUTS**: only the owner puts something into `next`, and only when it is empty; anybody
//!   takes from it, by a swap.

use std::ptr::{NonNull, null_mut};

use super::{SHARED_FIRST, WORTH_WAKING, Worker};
use crate::prim::Ordering;
use crate::sched::Sched;
use crate::sched::run_queue::CAPACITY;
use crate::task::header::{QueuePosition, Runnable};

impl Worker {
    /// Puts a runnable in line. For the owner.
    #[inline]
    pub(in crate::sched) fn enqueue(&self, sched: &Sched, runnable: Runnable, place: QueuePosition) {
        let next_is_free = self.next.load(Ordering::Relaxed).is_null();
        if next_is_free
            && (place == QueuePosition::Next
                || (place == QueuePosition::New && self.ring.is_empty_for_owner()))
        {
            self.next.store(runnable.into_ptr().as_ptr(), Ordering::Release); // OWNER-PUTS
            return;
        }
        if place == QueuePosition::First {
            return self.enqueue_first(sched, runnable);
        }
        self.enqueue_back(sched, runnable, next_is_free);
    }

    /// Puts a runnable into the slot, and what is there behind the others.
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
        match self.ring.push(runnable.into_ptr()) {
            // One alone is for this worker, which is about to look.
            Ok(was_empty) if was_empty && next_is_free => return,
            Ok(_) => {}
            // SAFETY: the ring gave the right to run back.
            Err(full) => self.overflow(sched, unsafe { Runnable::new(full) }),
        }
        if sched.idle.could_wake() {
            self.announce(sched);
        }
    }

    /// Wakes somebody for what is in the ring, if that is worth it.
    #[cold]
    pub(super) fn announce(&self, sched: &Sched) {
        if sched.managed.is_some() {
            return; // what it has is not in its ring
        }
        // At its own pace this worker might be done with it before another has woken up. If it turns
        // out not to be, the next look at the pace, or the monitor, wakes somebody after all.
        let takes_long = self.pace.load(Ordering::Relaxed) >= 2 * WORTH_WAKING;
        let worth = if takes_long { 0 } else { sched.worth_waking.load(Ordering::Relaxed) };
        if self.has_spare(worth)
            && let Some(worker) = sched.idle.whom_to_wake()
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
        if sched.injector.line_len() >= SHARED_FIRST {
            return sched.injector.push_one(runnable); // what is in the ring is older
        }
        let mut older = Vec::with_capacity(CAPACITY / 2 + 1);
        // SAFETY: what a ring gives out is the right to run.
        self.ring.pop_half(|node| older.push(unsafe { Runnable::new(node) }));
        older.push(runnable);
        self.counts.overflows.add_one();
        sched.injector.push(older);
        if let Some(worker) = sched.idle.whom_to_wake() {
            sched.unpark(worker);
        }
    }

    /// Whether there is something in its slot, in its ring, or in the shared line.
    pub(super) fn has_ordinary(&self, sched: &Sched) -> bool {
        !self.next.load(Ordering::Relaxed).is_null()
            || !self.ring.is_empty_for_owner()
            || !sched.injector.is_empty()
    }

    /// Takes what is in the slot. For anybody.
    #[inline]
    pub(in crate::sched) fn take_next(&self) -> Option<Runnable> {
        if self.next.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let node = NonNull::new(self.next.swap(null_mut(), Ordering::AcqRel))?;
        // SAFETY: what is in the slot is the right to run, and the swap took it. OWNER-PUTS
        Some(unsafe { Runnable::new(node) })
    }

    /// Whether there is something in its slot or in its ring.
    pub(in crate::sched) fn has_own(&self) -> bool {
        !self.next.load(Ordering::Relaxed).is_null() || self.ring.len() > 0
    }

    /// Puts what it has into the shared line. For the owner.
    pub(in crate::sched) fn hand_over(&self, sched: &Sched) {
        if sched.managed.is_some() {
            return; // what is in line is not here
        }
        let mut left: Vec<Runnable> = self.take_next().into_iter().collect();
        while let Some(node) = self.ring.pop() {
            // SAFETY: what a ring gives out is the right to run.
            left.push(unsafe { Runnable::new(node) });
        }
        sched.injector.push(left);
    }

    pub(in crate::sched) fn queued(&self, sched: &Sched) -> usize {
        if let Some(managed) = &sched.managed {
            return if self.number < sched.slots.len() { managed.queued(self.number) } else { 0 };
        }
        self.ring.len() + usize::from(!self.next.load(Ordering::Relaxed).is_null())
    }
}
