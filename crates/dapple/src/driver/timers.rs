//! The timers of a driver: entered and taken out by any thread, fired by whoever has the claim.
//!
//! # Invariants
//!
//! * **PLANNED**: before a worker sleeps it notes, under the lock, the tick until which it will. Who
//!   enters an earlier timer from elsewhere sees that, under the lock, and rings the bell.
//! * **LOWER-BOUND**: `earliest` is never later than the first timer that is to fire.
//! * **FOR-EVER**: timers live as long as the process. Those of a driver that is gone are used again
//!   by the next one; a key from before finds nothing there, by its stamp. So whoever sleeps needs no
//!   counted reference.

use std::task::Waker;
use std::time::Duration;

use super::clock::{self, TickCount};
pub(crate) use super::wheel::Key;
use super::wheel::Wheel;
use crate::prim::{AtomicU64, Ordering, SpinLock};
#[cfg(not(loom))]
use crate::prim::{Mutex, lock};
use crate::task::guarded::GuardedWaker;

pub(crate) struct Timers {
    /// LOWER-BOUND. The last tick if there are none.
    earliest: AtomicU64,
    inside: SpinLock<TimerState>,
}

#[derive(Default)]
struct TimerState {
    wheel: Wheel,
    /// PLANNED
    sleeps_until: TickCount,
    closed: bool,
    /// Keys with a stamp up to this one are from an earlier driver. FOR-EVER
    before: u64,
}

/// Timers that no driver uses. FOR-EVER
#[cfg(not(loom))]
static SPARE: Mutex<Vec<&'static Timers>> = Mutex::new(Vec::new());

/// What became of a timer that was to be entered.
pub(crate) enum TimerInsert {
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

impl TimerState {
    /// What is to be said of a timer that is not in the wheel any more.
    fn fired(&self, key: Key) -> Fired {
        if self.closed || key.stamp() <= self.before { Fired::Gone } else { Fired::Yes }
    }
}

impl Timers {
    pub(crate) fn new() -> Timers {
        Timers { earliest: AtomicU64::new(clock::LAST), inside: SpinLock::default() }
    }

    /// Enters a timer.
    #[inline]
    pub(crate) fn insert(&self, tick: TickCount, waker: GuardedWaker) -> TimerInsert {
        let mut inside = self.inside.lock();
        if inside.closed {
            return TimerInsert::Gone;
        }
        if tick <= inside.wheel.now() {
            return TimerInsert::Due;
        }
        let key = inside.wheel.insert(tick, waker);
        if tick < self.earliest.load(Ordering::Relaxed) {
            self.earliest.store(tick, Ordering::Relaxed);
        }
        TimerInsert::At { key, is_first: tick < inside.sleeps_until } // PLANNED
    }

    /// Whether a timer has fired. If not, it will wake `waker`.
    pub(crate) fn has_fired(&self, key: Key, waker: &Waker) -> Fired {
        let mut inside = self.inside.lock();
        match inside.wheel.waker(key) {
            None => return inside.fired(key),
            Some(old) if old.will_wake(waker) => return Fired::NotYet,
            Some(_) => {}
        }
        drop(inside);
        // Foreign code, like the old one's destructor: not under the lock.
        let new = GuardedWaker::of(waker);
        let mut inside = self.inside.lock();
        let Some(place) = inside.wheel.waker(key) else { return inside.fired(key) };
        let old = std::mem::replace(place, new);
        drop(inside);
        drop(old);
        Fired::NotYet
    }

    /// Takes a timer out, if it has not fired.
    #[inline]
    pub(crate) fn remove(&self, key: Key) {
        let removed = self.inside.lock().wheel.remove(key);
        drop(removed);
    }

    /// How long the driver's worker, which is about to do so, may sleep. PLANNED
    pub(crate) fn plan(&self, now: TickCount) -> Option<Duration> {
        let mut inside = self.inside.lock();
        // Timers of slots that have begun move down, without any being fired: or the beginning of such a
        // slot, which has passed, would be taken for the next moment to look, again and again.
        let mut none = Vec::new();
        let next = inside.wheel.advance(now, 0, &mut none).next;
        std::mem::forget(none); // it is empty, and has no memory
        inside.sleeps_until = next.unwrap_or(clock::LAST);
        next.map(|next| clock::between(now, next))
    }

    /// Whether there are any.
    pub(crate) fn is_any(&self) -> bool {
        self.earliest.load(Ordering::Relaxed) != clock::LAST // LOWER-BOUND
    }

    /// Whether timers may be due.
    #[inline]
    pub(crate) fn may_be_due(&self, now: TickCount) -> bool {
        self.earliest.load(Ordering::Relaxed) <= now // LOWER-BOUND
    }

    /// Takes the wakers of those that are due, up to `limit`. `true`: more are due.
    pub(crate) fn fire(&self, now: TickCount, limit: usize, wakers: &mut Vec<GuardedWaker>) -> bool {
        if !self.may_be_due(now) {
            return false;
        }
        let mut inside = self.inside.lock();
        let advanced = inside.wheel.advance(now, limit, wakers);
        self.earliest.store(advanced.next.unwrap_or(clock::LAST), Ordering::Relaxed); // LOWER-BOUND
        advanced.is_more
    }

    /// Wakes all, whose time has not come, and takes no more.
    pub(super) fn close(&self, wakers: &mut Vec<GuardedWaker>) {
        let mut inside = self.inside.lock();
        inside.closed = true;
        inside.wheel.clear(wakers);
    }

    /// Timers for a new driver. FOR-EVER
    #[cfg(not(loom))]
    pub(super) fn open() -> &'static Timers {
        let spare = lock(&SPARE).pop();
        let timers = spare.unwrap_or_else(|| Box::leak(Box::new(Timers::new())));
        timers.earliest.store(clock::LAST, Ordering::Relaxed);
        let mut inside = timers.inside.lock();
        inside.closed = false;
        inside.before = inside.wheel.last_stamp();
        drop(inside);
        timers
    }

    /// Gives them back, after they were closed.
    #[cfg(not(loom))]
    pub(super) fn give_back(&'static self) {
        lock(&SPARE).push(self);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn who_is_not_due_is_slept_for() {
        // A new wheel, long after its first tick: the timer lies in a slot that has begun.
        let (now, later) = (TickCount::from(0x0012_3456_u32), TickCount::from(0x0012_3556_u32));
        let timers = Timers::new();
        let TimerInsert::At { key, .. } = timers.insert(later, GuardedWaker::of(Waker::noop())) else {
            panic!("not yet")
        };
        assert!(timers.plan(now).is_some_and(|limit| limit > Duration::ZERO));
        assert_eq!(timers.plan(later), Some(Duration::ZERO));
        let mut wakers = Vec::new();
        timers.fire(later, usize::MAX, &mut wakers);
        assert_eq!(wakers.len(), 1);
        assert!(matches!(timers.has_fired(key, Waker::noop()), Fired::Yes));
        assert_eq!(timers.plan(later), None);
    }
}
