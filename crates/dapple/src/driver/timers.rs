//! The timers of a driver: entered and taken out by any thread, fired by whoever has the claim.
//!
//! # Invariants
//!
//! * **PLANNED**: before a worker sleeps it notes, under the lock, the tick until which it will. Who
//!   enters an earlier timer from elsewhere sees that, under the lock, and rings the bell.
//! * **LOWER-BOUND**: `earliest` is never later than the first timer that is to fire.

use std::task::Waker;
use std::time::Duration;

use super::clock::{self, Tick};
use super::wheel::Wheel;
pub(crate) use super::wheel::Key;
use crate::prim::{AtomicU64, Mutex, Ordering, lock};

pub(crate) struct Timers {
    /// LOWER-BOUND. The last tick if there are none.
    earliest: AtomicU64,
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    wheel: Wheel,
    /// PLANNED
    sleeps_until: Tick,
    closed: bool,
}

impl Default for Timers {
    fn default() -> Timers {
        Timers { earliest: AtomicU64::new(clock::LAST), inside: Mutex::default() }
    }
}

/// What became of a timer that was to be entered.
pub(crate) enum Entered {
    /// Its time has come.
    Due,
    /// It will fire. The driver must be rung, unless its own worker entered it, if `is_first`.
    At { key: Key, is_first: bool },
    /// The driver is gone.
    Gone,
}

/// What became of a timer that was entered.
pub(crate) enum Fired {
    Yes,
    NotYet,
    /// The driver is gone, and it was woken before its time.
    Gone,
}

impl Inside {
    /// What is to be said of a timer that is not in the wheel any more.
    fn fired(&self) -> Fired {
        if self.closed { Fired::Gone } else { Fired::Yes }
    }
}

impl Timers {
    /// Enters a timer.
    #[inline]
    pub(crate) fn insert(&self, tick: Tick, waker: Waker) -> Entered {
        let mut inside = lock(&self.inside);
        if inside.closed {
            return Entered::Gone;
        }
        if tick <= inside.wheel.now() {
            return Entered::Due;
        }
        let key = inside.wheel.insert(tick, waker);
        if tick < self.earliest.load(Ordering::Relaxed) {
            self.earliest.store(tick, Ordering::Relaxed);
        }
        Entered::At { key, is_first: tick < inside.sleeps_until } // PLANNED
    }

    /// Whether a timer has fired. If not, it will wake `waker`.
    pub(crate) fn has_fired(&self, key: Key, waker: &Waker) -> Fired {
        let mut inside = lock(&self.inside);
        match inside.wheel.waker(key) {
            None => return inside.fired(),
            Some(old) if old.will_wake(waker) => return Fired::NotYet,
            Some(_) => {}
        }
        drop(inside);
        // Foreign code, like the old one's destructor: not under the lock.
        let new = waker.clone();
        let mut inside = lock(&self.inside);
        let Some(place) = inside.wheel.waker(key) else { return inside.fired() };
        let old = std::mem::replace(place, new);
        drop(inside);
        drop(old);
        Fired::NotYet
    }

    /// Takes a timer out, if it has not fired.
    #[inline]
    pub(crate) fn remove(&self, key: Key) {
        let removed = lock(&self.inside).wheel.remove(key);
        drop(removed);
    }

    /// How long the driver's worker, which is about to do so, may sleep. PLANNED
    pub(super) fn plan(&self, now: Tick) -> Option<Duration> {
        let mut inside = lock(&self.inside);
        let next = inside.wheel.next();
        if next.is_none_or(|next| next > now) {
            inside.wheel.advance(now, 0, &mut Vec::new());
        }
        inside.sleeps_until = next.unwrap_or(clock::LAST);
        next.map(|next| clock::between(now, next))
    }

    /// Whether timers may be due.
    #[inline]
    pub(crate) fn may_be_due(&self, now: Tick) -> bool {
        self.earliest.load(Ordering::Relaxed) <= now // LOWER-BOUND
    }

    /// Takes the wakers of those that are due, up to `limit`. `true`: more are due.
    pub(super) fn fire(&self, now: Tick, limit: usize, wakers: &mut Vec<Waker>) -> bool {
        if !self.may_be_due(now) {
            return false;
        }
        let mut inside = lock(&self.inside);
        let more = inside.wheel.advance(now, limit, wakers);
        self.earliest.store(inside.wheel.next().unwrap_or(clock::LAST), Ordering::Relaxed); // LOWER-BOUND
        more
    }

    pub(super) fn close(&self, wakers: &mut Vec<Waker>) {
        let mut inside = lock(&self.inside);
        inside.closed = true;
        inside.wheel.advance(clock::LAST, usize::MAX, wakers);
    }
}
