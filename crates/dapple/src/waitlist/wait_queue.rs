//! A line of waiters: who is first, who has been woken, and how much they need.
//!
//! Those in line own nothing: what they wait for stays free until they are polled and take it. The
//! line only says whose waker is next. A waiter's place is a slot in a table, which only he gives
//! up: one that is leaked costs its slot and holds up nobody.
//!
//! # Invariants
//!
//! * **OWN-PLACE**: a slot that was given out is freed by its waiter alone, so its key is valid until
//!   then. The line lies behind a lock of the one whose line it is.
//! * **WOKEN**: a waiter that has been woken, and not been polled since, has no waker in its slot.
//!   `next` is the first who has not been woken; some behind it may have been.
//! * **LATE-WAITER**: one who was woken and did not come for so long that nobody counts on him any more is in line,
//!   but in none of the sums, until he is polled after all.

use std::task::Waker;

use super::wait::Wakers;
use crate::task::guarded::GuardedWaker;

const NONE: usize = usize::MAX;

/// Beyond this many slots, the table is given back when the line is empty.
const KEEP: usize = 64;

#[derive(Default)]
pub(crate) struct WaitQueue {
    slots: Vec<QueueSlot>,
    /// Freed slots, linked by `next`.
    free: Option<usize>,
    first: Option<usize>,
    last: Option<usize>,
    /// The first who has not been woken. WOKEN
    next: Option<usize>,
    len: usize,
    /// What all need together, and what those that have been woken need. LATE-WAITER.
    /// Each may need `usize::MAX`, so the sums are
    /// wider: they must be exact, to be subtracted from.
    needs: u128,
    claims: u128,
    lost: usize,
    /// One who was woken came too late, and nobody of those in line has been served since.
    pub(crate) is_hungry: bool,
}

struct QueueSlot {
    prev: usize,
    next: usize,
    need: usize,
    woken: bool,
    lost: bool,
    waker: Option<GuardedWaker>,
}

/// The most that can be said of a sum: more than is ever free.
#[inline]
fn clamp(sum: u128) -> usize {
    usize::try_from(sum).unwrap_or(usize::MAX)
}

fn key(index: usize) -> Option<usize> {
    (index != NONE).then_some(index)
}

impl WaitQueue {
    /// Whether nobody is in it who is counted on.
    pub(crate) fn is_empty(&self) -> bool {
        self.len == self.lost
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What all in line need together.
    #[inline]
    pub(crate) fn needs(&self) -> usize {
        clamp(self.needs)
    }

    /// What those need that have been woken.
    #[inline]
    pub(crate) fn claims(&self) -> usize {
        clamp(self.claims)
    }

    /// Whether it is this one's turn to take of what is free: he was woken, or all ahead of him were;
    /// and no sleeper ahead of him waits for more than is free.
    pub(crate) fn may_take(&self, key: usize, free: usize) -> bool {
        let Some(next) = self.next else { return true };
        let slot = &self.slots[key];
        next == key || slot.woken && (self.slots[next].need <= free || self.is_ahead(key, next))
    }

    /// Whether no sleeper waits for more than is free.
    pub(crate) fn lets_through(&self, free: usize) -> bool {
        self.next_need().is_none_or(|need| need <= free)
    }

    pub(crate) fn is_woken(&self, key: usize) -> bool {
        self.slots[key].woken
    }

    /// Puts a waiter at the end. Without a waker he counts as woken.
    pub(crate) fn join(&mut self, need: usize, waker: Option<GuardedWaker>) -> usize {
        let slot = QueueSlot {
            prev: self.last.unwrap_or(NONE),
            next: NONE,
            need,
            woken: waker.is_none(),
            lost: false,
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

    /// A waiter that keeps his place sleeps (again). Gives back the waker that he had.
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

    /// Whether `key`, which was among the woken until now, is ahead of the first who sleeps.
    fn is_ahead(&self, key: usize, next: usize) -> bool {
        // Those ahead of the first who sleeps are few: woken, and not polled yet.
        let mut ahead = self.slots[next].prev;
        while ahead != NONE {
            if ahead == key {
                return true;
            }
            ahead = self.slots[ahead].prev;
        }
        false
    }

    /// Whether the waker of this one is as good as `waker`.
    pub(crate) fn wakes_same(&self, key: usize, waker: &Waker) -> bool {
        self.slots[key].waker.as_ref().is_some_and(|own| own.will_wake(waker))
    }

    /// Takes a waiter out. Gives back the waker that he had.
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
            self.slots = Vec::new(); // all slots are free, and without a waker
            self.free = None;
        }
        waker
    }

    /// Counts no more on those who were woken, other than this one. LATE-WAITER
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

    /// What the next sleeper needs.
    pub(crate) fn next_need(&self) -> Option<usize> {
        self.next.map(|next| self.slots[next].need)
    }

    /// Counts the next sleeper as woken, and gives out its waker.
    #[inline]
    pub(crate) fn next_waker(&mut self) -> Option<GuardedWaker> {
        let next = self.next?;
        let slot = &mut self.slots[next];
        slot.woken = true;
        self.claims += slot.need as u128;
        let (waker, after) = (slot.waker.take(), slot.next);
        self.next = self.next_asleep(after);
        waker
    }

    /// Counts the next sleeper as woken, and puts his waker among those to be used. `false` if
    /// nobody sleeps, or no more fit.
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
