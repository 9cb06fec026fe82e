//! A hierarchical timing wheel: any number of timers, entered, taken out and fired in constant time.
//!
//! A level has 256 slots. A slot of the lowest one is a tick, a slot of the next one a whole turn of
//! the one below. A timer lies in the level of the highest digit (to the base 256) in which its tick
//! differs from the wheel's own; when the wheel comes to that slot, its timers move down. So within
//! a level only slots ahead are in use. The next slot to fire is the first used slot of the lowest
//! level that has any.
//!
//! A slot is an array of places, not a linked list: a million timers do not fit into the cache, and
//! from an array the processor fetches many at a time.
//!
//! # Invariants
//!
//! * **AHEAD**: a timer lies in the slot of its level by its own digit, and its higher digits are
//!   those of the wheel. The timers in the slot of the wheel's own tick are due, in any order.
//! * **POSITION**: a timer knows in which slot it lies, and where in it.
//! * **STAMPED**: a place is found by the stamp of the timer that was put there, and no stamp is
//!   used twice. So a key of a timer that has fired, or was taken out, finds nothing, even after the
//!   memory of an empty wheel was given back.

use super::clock::{LAST, TickCount};
use crate::task::guarded::GuardedWaker;

const BITS: u32 = 8;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 6;
const NONE: u32 = u32::MAX;
/// The memory that an empty wheel keeps, and the memory that an empty slot keeps, in timers.
const KEEP: usize = if cfg!(miri) { 16 } else { 1024 };
const KEEP_IN_SLOT: usize = 64;

const _: () = assert!(BITS as usize * LEVELS == LAST.count_ones() as usize);

/// A timer in a wheel.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    index: u32,
    stamp: u64,
}

impl Key {
    pub(super) fn stamp(self) -> u64 {
        self.stamp
    }
}

struct WheelTimer {
    tick: TickCount,
    waker: Option<GuardedWaker>,
    /// 0 if the place is free.
    stamp: u64,
    /// POSITION. In a free place: the next one that is free.
    position: u32,
    slot: u16,
}

/// The result of a step of a wheel.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct Advanced {
    /// More timers are due.
    pub(super) is_more: bool,
    /// The tick at which to look again, if ever.
    pub(super) next: Option<TickCount>,
}

pub(super) struct Wheel {
    /// The tick that the last step ended at.
    now: TickCount,
    timers: Vec<WheelTimer>,
    /// The first free place; free places form a list.
    free: u32,
    len: usize,
    stamp: u64,
    /// All slots of all levels, once there has been a timer.
    slots: Box<[Vec<u32>]>,
    /// Which slots of each level are in use.
    used: [[u64; SLOTS / 64]; LEVELS],
}

impl Default for Wheel {
    fn default() -> Wheel {
        Wheel {
            now: 0,
            timers: Vec::new(),
            free: NONE,
            len: 0,
            stamp: 0,
            slots: Box::default(),
            used: [[0; SLOTS / 64]; LEVELS],
        }
    }
}

impl Wheel {
    /// The tick that the last step ended at.
    pub(super) fn now(&self) -> TickCount {
        self.now
    }

    pub(super) fn last_stamp(&self) -> u64 {
        self.stamp
    }

    /// Takes all wakers and starts over, except that stamps go on. STAMPED
    pub(super) fn clear(&mut self, wakers: &mut Vec<GuardedWaker>) {
        self.advance(LAST, usize::MAX, wakers);
        *self = Wheel { stamp: self.stamp, ..Wheel::default() };
    }

    /// Inserts a timer, for a tick that has not passed.
    pub(super) fn insert(&mut self, tick: TickCount, waker: GuardedWaker) -> Key {
        debug_assert!(tick >= self.now);
        self.stamp += 1;
        let timer = WheelTimer { tick, waker: Some(waker), stamp: self.stamp, position: NONE, slot: 0 };
        let index = if self.free == NONE {
            assert!(self.timers.len() < NONE as usize, "a driver has 2^32 - 1 timers and cannot take more");
            if self.slots.is_empty() {
                self.slots = vec![Vec::new(); LEVELS * SLOTS].into();
            }
            self.timers.push(timer);
            (self.timers.len() - 1) as u32
        } else {
            let index = self.free;
            self.free = std::mem::replace(&mut self.timers[index as usize], timer).position;
            index
        };
        self.len += 1;
        self.place(index);
        Key { index, stamp: self.stamp }
    }

    fn find(&mut self, key: Key) -> Option<&mut WheelTimer> {
        self.timers.get_mut(key.index as usize).filter(|timer| timer.stamp == key.stamp) // STAMPED
    }

    /// The waker of a timer that has not fired.
    pub(super) fn waker(&mut self, key: Key) -> Option<&mut GuardedWaker> {
        self.find(key)?.waker.as_mut()
    }

    /// Takes a timer out, if it has not fired.
    pub(super) fn remove(&mut self, key: Key) -> Option<GuardedWaker> {
        let WheelTimer { slot, position, .. } = *self.find(key)?;
        let list = &mut self.slots[usize::from(slot)];
        list.swap_remove(position as usize);
        match list.get(position as usize) {
            Some(moved) => self.timers[*moved as usize].position = position, // POSITION
            None if list.is_empty() => self.emptied(usize::from(slot)),
            None => {}
        }
        self.release(key.index)
    }

    /// Moves on to `tick`, and takes the wakers of the timers that are due by then, up to `limit`.
    pub(super) fn advance(
        &mut self,
        tick: TickCount,
        limit: usize,
        wakers: &mut Vec<GuardedWaker>,
    ) -> Advanced {
        let mut left = limit;
        let next = loop {
            let Some((level, slot, begins)) = self.next_slot() else { break None };
            if begins > tick {
                break Some(begins); // AHEAD: that does not change by the step to `tick`
            }
            self.now = begins;
            if level > 0 {
                self.move_down(level * SLOTS + slot);
                continue;
            }
            let due = self.slots[slot].len().min(left);
            for _ in 0..due {
                let index = self.slots[slot].pop().expect("`due` is at most the slot's length");
                wakers.extend(self.release(index));
            }
            left -= due;
            if !self.slots[slot].is_empty() {
                return Advanced { is_more: true, next: Some(begins) };
            }
            self.emptied(slot);
        };
        self.now = self.now.max(tick);
        Advanced { is_more: false, next }
    }

    /// The first slot in use: its level, its digit, and the tick at which it begins. AHEAD
    fn next_slot(&self) -> Option<(usize, usize, TickCount)> {
        if self.len == 0 {
            return None;
        }
        for (level, used) in self.used.iter().enumerate() {
            if let Some(word) = used.iter().position(|word| *word != 0) {
                let slot = word * 64 + used[word].trailing_zeros() as usize;
                let shift = BITS * level as u32;
                let above = self.now >> (shift + BITS) << (shift + BITS);
                return Some((level, slot, above | (slot as u64) << shift));
            }
        }
        None
    }

    /// Moves the timers of a slot of a higher level, which the wheel has come to, to lower levels.
    fn move_down(&mut self, slot: usize) {
        let mut list = std::mem::take(&mut self.slots[slot]);
        for index in list.drain(..) {
            self.place(index);
        }
        self.slots[slot] = list; // with its memory
        self.emptied(slot);
    }

    /// Puts a timer into the slot that it belongs to. AHEAD
    fn place(&mut self, index: u32) {
        let timer = &mut self.timers[index as usize];
        let level = ((timer.tick ^ self.now) | (SLOTS as u64 - 1)).ilog2() / BITS;
        let digit = (timer.tick >> (BITS * level)) as usize % SLOTS;
        let slot = level as usize * SLOTS + digit;
        let list = &mut self.slots[slot];
        (timer.slot, timer.position) = (slot as u16, list.len() as u32); // POSITION
        list.push(index);
        self.used[level as usize][digit / 64] |= 1 << (digit % 64);
    }

    /// Marks a slot as empty, and frees its memory if that is large.
    fn emptied(&mut self, slot: usize) {
        let (level, digit) = (slot / SLOTS, slot % SLOTS);
        self.used[level][digit / 64] &= !(1 << (digit % 64));
        if let Some(list) = self.slots.get_mut(slot)
            && list.capacity() > KEEP_IN_SLOT
        {
            *list = Vec::new();
        }
    }

    /// Frees a place that is in no slot.
    fn release(&mut self, index: u32) -> Option<GuardedWaker> {
        let timer = &mut self.timers[index as usize];
        timer.stamp = 0;
        timer.position = self.free;
        let waker = timer.waker.take();
        self.free = index;
        self.len -= 1;
        if self.len == 0 && self.timers.len() > KEEP {
            self.timers = Vec::new(); // STAMPED
            self.free = NONE;
        }
        waker
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn waker() -> Waker {
        Waker::from(Arc::new(Count::default()))
    }

    /// Pseudorandom numbers from a seed.
    fn numbers(mut seed: u64) -> impl FnMut() -> u64 {
        move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        }
    }

    /// The tick at which to look again, if ever, computed from the slots alone.
    fn next(wheel: &Wheel) -> Option<TickCount> {
        wheel.next_slot().map(|(_, _, begins)| begins)
    }

    /// Against a sorted list, with steps of all sizes, removals and bounded batches.
    #[test]
    fn as_a_sorted_list_would() {
        for seed in 1..40 {
            let mut random = numbers(seed * 0x9e37_79b9);
            let mut wheel = Wheel::default();
            let mut model: Vec<(TickCount, Key, Waker)> = Vec::new();
            let mut now = random() >> 30;
            wheel.advance(now, 0, &mut Vec::new());
            for _ in 0..400 {
                match random() % 4 {
                    0 | 1 => {
                        let tick = (now + 1 + (random() >> (random() % 48 + 16))).min(LAST);
                        let waker = waker();
                        model.push((tick, wheel.insert(tick, GuardedWaker::of(&waker)), waker));
                    }
                    2 if !model.is_empty() => {
                        let (_, key, waker) = model.swap_remove(random() as usize % model.len());
                        assert!(wheel.remove(key).unwrap().will_wake(&waker));
                        assert!(wheel.remove(key).is_none(), "a key is good once");
                    }
                    _ => {
                        let first = model.iter().map(|timer| timer.0).min();
                        assert!(next(&wheel).is_none_or(|next| first.is_some_and(|first| next <= first)));
                        now = (now + (random() >> (random() % 48 + 16))).min(LAST);
                        let mut fired = Vec::new();
                        let limit = random() as usize % 5 + 1;
                        loop {
                            let advanced = wheel.advance(now, limit, &mut fired);
                            assert_eq!(advanced.next, next(&wheel), "as a look after the step would say");
                            if !advanced.is_more {
                                break;
                            }
                        }
                        let due: Vec<_> = model.extract_if(.., |timer| timer.0 <= now).collect();
                        assert_eq!(fired.len(), due.len());
                        for (_, key, waker) in due {
                            assert!(fired.iter().any(|fired| fired.will_wake(&waker)));
                            assert!(wheel.waker(key).is_none());
                        }
                    }
                }
                assert_eq!(wheel.len, model.len());
                assert_eq!(wheel.len == 0, wheel.used.iter().flatten().all(|word| *word == 0));
            }
        }
    }

    #[test]
    fn in_order() {
        let mut wheel = Wheel::default();
        let ticks = [5_u64, 300, 301, 70_000, 70_010, 16_777_300];
        let wakers: Vec<_> = ticks.iter().map(|_| waker()).collect();
        for (tick, waker) in ticks.iter().zip(&wakers) {
            wheel.insert(*tick, GuardedWaker::of(waker));
        }
        let mut fired = Vec::new();
        assert_eq!(wheel.advance(1 << 30, usize::MAX, &mut fired), Advanced { is_more: false, next: None });
        assert!(fired.iter().zip(&wakers).all(|(a, b)| a.will_wake(b)));
        assert_eq!(fired.len(), wakers.len());
    }

    #[test]
    fn memory_goes_back_and_old_keys_find_nothing() {
        let mut wheel = Wheel::default();
        let keys: Vec<_> = (0..10 * KEEP as u64).map(|n| wheel.insert(n + 1, waker().into())).collect();
        let mut fired = Vec::new();
        wheel.advance(LAST, usize::MAX, &mut fired);
        assert_eq!((fired.len(), wheel.timers.capacity()), (keys.len(), 0));
        let mut wheel_again = wheel;
        wheel_again.now = 0;
        for _ in 0..100 {
            wheel_again.insert(7, waker().into());
        }
        assert!(keys.into_iter().all(|key| wheel_again.remove(key).is_none()));
    }
}
