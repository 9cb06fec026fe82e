//! The timers of a driver: inserted and removed by any thread, fired by the thread that has the claim.
//!
//! # Invariants
//!
//! * **PLANNED**: before a worker sleeps it notes, under the lock, the tick until which it will sleep. A thread that
//!   inserts an earlier timer sees that tick, under the lock, and wakes the driver.
//! * **LOWER-BOUND**: `earliest` is never later than the first timer that is to fire.
//! * **FOR-EVER**: timers live as long as the process. Those of a driver that is gone are reused by the next driver; an
//!   older key finds nothing there, by its stamp. So a sleep needs no counted reference.

use std::task::Waker;
use std::time::Duration;

use super::clock::{self, TickCount};
pub(crate) use super::wheel::Key;
use super::wheel::Wheel;
use crate::prim::{AtomicU64, Ordering, SpinLock};
use crate::task::guarded::GuardedWaker;

pub(crate) struct Timers {
    /// LOWER-BOUND. The last tick if there is no timer.
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

/// The result of inserting a timer.
pub(crate) enum TimerInsert {
    /// The timer's tick has passed.
    Due,
    /// The timer will fire. If `is_first`, the driver must be woken, unless its own worker inserted the timer.
    At { key: Key, is_first: bool },
    /// The driver is gone.
    Gone,
}

/// The state of a timer that was inserted.
pub(crate) enum Fired {
    Yes,
    NotYet,
    /// The driver is gone, and the sleeper was woken early.
    Gone,
}

impl TimerState {
    /// The state of a timer that is no longer in the wheel.
    fn fired(&self, key: Key) -> Fired {
        if self.closed || key.stamp() <= self.before { Fired::Gone } else { Fired::Yes }
    }
}

impl Timers {
    pub(crate) fn new() -> Timers {
        Timers { earliest: AtomicU64::new(clock::LAST), inside: SpinLock::default() }
    }

    /// Inserts a timer.
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
        // Foreign code, like the destructor of the old waker: not under the lock.
        let new = GuardedWaker::of(waker);
        let mut inside = self.inside.lock();
        let Some(place) = inside.wheel.waker(key) else { return inside.fired(key) };
        let old = std::mem::replace(place, new);
        drop(inside);
        drop(old);
        Fired::NotYet
    }

    /// Removes a timer, if it has not fired.
    #[inline]
    pub(crate) fn remove(&self, key: Key) {
        let removed = self.inside.lock().wheel.remove(key);
        drop(removed);
    }

    /// The time that the driver's worker, which is about to sleep, may sleep. PLANNED
    pub(crate) fn plan(&self, now: TickCount) -> Option<Duration> {
        let mut inside = self.inside.lock();
        // Timers of slots that have begun move down, and none fires. Otherwise the beginning of such a slot, which
        // has passed, would be taken for the next tick to look at, again and again.
        let mut none = Vec::new();
        let next = inside.wheel.advance(now, 0, &mut none).next;
        std::mem::forget(none); // it is empty and has no memory
        inside.sleeps_until = next.unwrap_or(clock::LAST);
        next.map(|next| clock::between(now, next))
    }

    /// Whether there is any timer.
    pub(crate) fn is_any(&self) -> bool {
        self.earliest.load(Ordering::Relaxed) != clock::LAST // LOWER-BOUND
    }

    /// Whether timers may be due.
    #[inline]
    pub(crate) fn may_be_due(&self, now: TickCount) -> bool {
        self.earliest.load(Ordering::Relaxed) <= now // LOWER-BOUND
    }

    /// Takes the wakers of the timers that are due, up to `limit`. `true`: more are due.
    pub(crate) fn fire(&self, now: TickCount, limit: usize, wakers: &mut Vec<GuardedWaker>) -> bool {
        if !self.may_be_due(now) {
            return false;
        }
        let mut inside = self.inside.lock();
        let advanced = inside.wheel.advance(now, limit, wakers);
        self.earliest.store(advanced.next.unwrap_or(clock::LAST), Ordering::Relaxed); // LOWER-BOUND
        advanced.is_more
    }

    /// Takes the wakers of all timers, though they are not due, and accepts no more.
    pub(super) fn close(&self, wakers: &mut Vec<GuardedWaker>) {
        let mut inside = self.inside.lock();
        inside.closed = true;
        inside.wheel.clear(wakers);
    }

    /// Opens them for a driver, after an earlier one has closed them. FOR-EVER
    pub(super) fn open(&self) {
        self.earliest.store(clock::LAST, Ordering::Relaxed);
        let mut inside = self.inside.lock();
        inside.closed = false;
        inside.before = inside.wheel.last_stamp();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_sleeps_until_its_first_timer() {
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
