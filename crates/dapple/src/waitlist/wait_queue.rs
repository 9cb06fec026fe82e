//! Wait queue: the order of waiters, which of them have been woken, and how many permits each needs.
//!
//! Waiters in the queue own nothing: a resource stays free until a waiter is polled and takes it. The queue
//! only decides which waker is next. A waiter's place is a slot in a table, and only that waiter frees it. A
//! leaked waiter costs its slot and delays no other waiter.
//!
//! # Invariants
//!
//! * **OWN-PLACE**: only its waiter frees a slot, so the waiter's key is valid until then. A lock of the
//!   queue's owner guards the queue.
//! * **WOKEN**: a waiter that has been woken, and has not been polled since, has no waker in its slot. `next`
//!   is the first waiter that has not been woken; waiters behind it may have been.
//! * **LATE-WAITER**: a woken waiter that has not been polled for too long is marked `lost`. It keeps its
//!   slot, but none of the sums count it until it is polled again.

use std::task::Waker;

use super::wait::Wakers;
use crate::task::guarded::GuardedWaker;

const NONE: usize = usize::MAX;

/// A table of more slots than this is freed when the queue becomes empty.
const KEEP: usize = 64;

#[derive(Default)]
pub(crate) struct WaitQueue {
    slots: Vec<QueueSlot>,
    /// Freed slots, linked by `next`.
    free: Option<usize>,
    first: Option<usize>,
    last: Option<usize>,
    /// First waiter that has not been woken. WOKEN
    next: Option<usize>,
    len: usize,
    /// Permits needed by all waiters, and by the woken ones; lost waiters are not counted. LATE-WAITER. One
    /// waiter may need `usize::MAX`. The sums are wider because subtraction needs them exact.
    needs: u128,
    claims: u128,
    lost: usize,
    /// A woken waiter came too late to be served, and no waiter of the queue has been served since.
    pub(crate) is_hungry: bool,
}

struct QueueSlot {
    prev: usize,
    next: usize,
    need: usize,
    woken: bool,
    lost: bool,
    /// See [`WaitQueue::loosen`].
    loose: bool,
    waker: Option<GuardedWaker>,
}

/// Converts a sum to `usize`. A clamped sum is still more than can ever be free.
#[inline]
fn clamp(sum: u128) -> usize {
    usize::try_from(sum).unwrap_or(usize::MAX)
}

fn key(index: usize) -> Option<usize> {
    (index != NONE).then_some(index)
}

impl WaitQueue {
    /// Whether the queue has no waiters, not counting lost ones. LATE-WAITER
    pub(crate) fn is_empty(&self) -> bool {
        self.len == self.lost
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Permits that all waiters need together.
    #[inline]
    pub(crate) fn needs(&self) -> usize {
        clamp(self.needs)
    }

    /// Permits that the woken waiters need together.
    #[inline]
    pub(crate) fn claims(&self) -> usize {
        clamp(self.claims)
    }

    /// Whether the waiter at `key` may take from the `free` permits now. The first sleeper may. A woken
    /// waiter may too, unless the first sleeper is ahead of it and needs more than is free.
    pub(crate) fn may_take(&self, key: usize, free: usize) -> bool {
        let Some(next) = self.next else { return true };
        let slot = &self.slots[key];
        next == key || slot.woken && (self.slots[next].need <= free || self.is_ahead(key, next))
    }

    /// Whether the first sleeper, if any, needs no more than `free`.
    pub(crate) fn lets_through(&self, free: usize) -> bool {
        self.next_need().is_none_or(|need| need <= free)
    }

    pub(crate) fn is_woken(&self, key: usize) -> bool {
        self.slots[key].woken
    }

    /// Adds a waiter at the end. A waiter without a waker counts as woken.
    pub(crate) fn join(&mut self, need: usize, waker: Option<GuardedWaker>) -> usize {
        let slot = QueueSlot {
            prev: self.last.unwrap_or(NONE),
            next: NONE,
            need,
            woken: waker.is_none(),
            lost: false,
            loose: false,
            waker,
        };
        let woken = slot.woken;
        let index = match self.free {
            Some(index) => {
                self.free = key(self.slots[index].next);
                self.slots[index] = slot; // a free slot has no waker
                index
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        match self.last {
            Some(last) => self.slots[last].next = index,
            None => self.first = Some(index),
        }
        self.last = Some(index);
        self.len += 1;
        self.needs += need as u128;
        if woken {
            self.claims += need as u128;
        } else if self.next.is_none() {
            self.next = Some(index);
        }
        index
    }

    /// Marks a waiter that may never be polled again after its wake-up, such as a stream.
    pub(crate) fn loosen(&mut self, key: usize) {
        self.slots[key].loose = true;
    }

    /// Marks a waiter as asleep, at its old place. Returns the waker that the slot held.
    pub(crate) fn sleep(&mut self, key: usize, waker: GuardedWaker) -> Option<GuardedWaker> {
        let slot = &mut self.slots[key];
        if slot.woken {
            slot.woken = false;
            if std::mem::take(&mut slot.lost) {
                self.lost -= 1;
                self.needs += slot.need as u128;
            } else {
                self.claims -= slot.need as u128;
            }
            if self.next.is_none_or(|next| self.is_ahead(key, next)) {
                self.next = Some(key);
            }
        }
        self.slots[key].waker.replace(waker)
    }

    /// Whether `key`, a woken waiter, is ahead of `next`, the first sleeper.
    fn is_ahead(&self, key: usize, next: usize) -> bool {
        // The walk is short: all waiters ahead of the first sleeper were woken and not yet polled.
        let mut ahead = self.slots[next].prev;
        while ahead != NONE {
            if ahead == key {
                return true;
            }
            ahead = self.slots[ahead].prev;
        }
        false
    }

    /// Whether the stored waker of this waiter wakes the same task as `waker`.
    pub(crate) fn wakes_same(&self, key: usize, waker: &Waker) -> bool {
        self.slots[key].waker.as_ref().is_some_and(|own| own.will_wake(waker))
    }

    /// Removes a waiter. Returns the waker that the slot held.
    pub(crate) fn leave(&mut self, index: usize) -> Option<GuardedWaker> {
        if self.next == Some(index) {
            self.next = self.next_asleep(self.slots[index].next);
        }
        let QueueSlot { prev, next, need, woken, lost, .. } = self.slots[index];
        match key(prev) {
            Some(prev) => self.slots[prev].next = next,
            None => self.first = key(next),
        }
        match key(next) {
            Some(next) => self.slots[next].prev = prev,
            None => self.last = key(prev),
        }
        self.len -= 1;
        if lost {
            self.lost -= 1;
        } else {
            self.needs -= need as u128;
            self.claims -= if woken { need as u128 } else { 0 };
        }
        let waker = self.slots[index].waker.take();
        self.slots[index].next = self.free.unwrap_or(NONE);
        self.free = Some(index);
        self.is_hungry &= self.len > self.lost;
        if self.len == 0 && self.slots.len() > KEEP {
            self.slots = Vec::new(); // all slots are free and hold no waker
            self.free = None;
        }
        waker
    }

    /// Marks all woken waiters but `but` as lost. LATE-WAITER
    pub(crate) fn lose_woken(&mut self, but: usize) {
        self.is_hungry = false;
        let mut next = self.first;
        while let Some(index) = next {
            let slot = &mut self.slots[index];
            if slot.woken && !slot.lost && index != but {
                slot.lost = true;
                self.lost += 1;
                self.needs -= slot.need as u128;
                self.claims -= slot.need as u128;
            }
            next = key(slot.next);
        }
    }

    fn next_asleep(&self, mut index: usize) -> Option<usize> {
        while index != NONE && self.slots[index].woken {
            index = self.slots[index].next;
        }
        key(index)
    }

    /// Permits that the first sleeper needs.
    pub(crate) fn next_need(&self) -> Option<usize> {
        self.next.map(|next| self.slots[next].need)
    }

    /// Counts the next sleeper as woken, and gives out its waker, and whether it is [loose](Self::loosen).
    #[inline]
    pub(crate) fn next_waker(&mut self) -> Option<(GuardedWaker, bool)> {
        let next = self.next?;
        let slot = &mut self.slots[next];
        slot.woken = true;
        self.claims += slot.need as u128;
        let (waker, is_loose, after) = (slot.waker.take(), slot.loose, slot.next);
        self.next = self.next_asleep(after);
        waker.map(|waker| (waker, is_loose))
    }

    /// Counts the next sleeper as woken, and moves its waker into `wakers`. `false` if there is
    /// no sleeper, or `wakers` is full.
    pub(crate) fn wake_next(&mut self, wakers: &mut Wakers) -> bool {
        let Some(next) = self.next else { return false };
        if wakers.is_full() {
            return false;
        }
        let slot = &mut self.slots[next];
        slot.woken = true;
        self.claims += slot.need as u128;
        wakers.put(slot.waker.take());
        let after = slot.next;
        self.next = self.next_asleep(after);
        true
    }
}
