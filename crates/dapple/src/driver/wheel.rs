//! A hierarchical timing wheel: any number of timers, entered, taken out and fired in constant time.
//!
//! A level has 256 slots. A slot of the lowest one is a tick, a slot of the next one a whole turn of
//! the one below. A timer lies in the level of the highest digit (to the base 256) in which its tick
//! differs from the wheel's own; when the wheel comes to that slot, its timers move down. So within
//! a level only slots ahead are in use, and the first one in use of the lowest level that has any
//! comes next.
//!
//! # Invariants
//!
//! * **AHEAD**: a timer that is not due lies in the slot of its level by its own digit, and its
//!   higher digits are those of the wheel.
//! * **STAMPED**: a place is found by the stamp of the timer that was put there, and no stamp is
//!   used twice. So a key of a timer that has fired, or was taken out, finds nothing, even after the
//!   memory of an empty wheel was given back.

use std::task::Waker;

use super::clock::{LAST, Tick};

const BITS: u32 = 8;
const SLOTS: usize = 1 << BITS;
const LEVELS: usize = 6;
/// The list of those that are due; the last of the lists.
const DUE: usize = LEVELS * SLOTS;
const NONE: u32 = u32::MAX;
/// Marks a link back that leads to the head of a list.
const HEAD: u32 = 1 << 31;
/// How much memory an empty wheel keeps, in timers.
const KEEP: usize = 1024;

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

struct Timer {
    tick: Tick,
    waker: Option<Waker>,
    stamp: u64,
    next: u32,
    back: u32,
}

#[derive(Clone, Copy)]
struct List {
    first: u32,
    last: u32,
}

pub(super) struct Wheel {
    /// The last tick that was looked at.
    now: Tick,
    timers: Vec<Timer>,
    /// Free places, linked by `next`.
    free: u32,
    len: usize,
    stamp: u64,
    lists: Box<[List]>,
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
            lists: vec![List { first: NONE, last: NONE }; DUE + 1].into(),
            used: [[0; SLOTS / 64]; LEVELS],
        }
    }
}

impl Wheel {
    /// The last tick that was looked at.
    pub(super) fn now(&self) -> Tick {
        self.now
    }

    pub(super) fn last_stamp(&self) -> u64 {
        self.stamp
    }

    /// Begins anew, but for the stamps. STAMPED
    pub(super) fn clear(&mut self, wakers: &mut Vec<Waker>) {
        self.advance(LAST, usize::MAX, wakers);
        *self = Wheel { stamp: self.stamp, ..Wheel::default() };
    }

    /// Enters a timer for a tick that is ahead.
    pub(super) fn insert(&mut self, tick: Tick, waker: Waker) -> Key {
        self.stamp += 1;
        let timer = Timer { tick, waker: Some(waker), stamp: self.stamp, next: NONE, back: NONE };
        let index = if self.free == NONE {
            assert!(self.timers.len() < HEAD as usize, "more timers than there is room for");
            self.timers.push(timer);
            (self.timers.len() - 1) as u32
        } else {
            let index = self.free;
            self.free = std::mem::replace(&mut self.timers[index as usize], timer).next;
            index
        };
        self.len += 1;
        self.place(index, tick);
        Key { index, stamp: self.stamp }
    }

    fn find(&mut self, key: Key) -> Option<&mut Timer> {
        self.timers.get_mut(key.index as usize).filter(|timer| timer.stamp == key.stamp) // STAMPED
    }

    /// The waker of a timer that has not fired.
    pub(super) fn waker(&mut self, key: Key) -> Option<&mut Waker> {
        self.find(key)?.waker.as_mut()
    }

    /// Takes a timer out, if it has not fired.
    pub(super) fn remove(&mut self, key: Key) -> Option<Waker> {
        self.find(key)?;
        self.unlink(key.index);
        self.release(key.index)
    }

    /// Moves on to `tick`, and takes the wakers of those that are due by then, up to `limit`. `true`:
    /// more are due.
    pub(super) fn advance(&mut self, tick: Tick, limit: usize, wakers: &mut Vec<Waker>) -> bool {
        let mut left = limit;
        loop {
            while self.lists[DUE].first != NONE {
                if left == 0 {
                    return true;
                }
                left -= 1;
                let index = self.lists[DUE].first;
                self.unlink(index);
                wakers.extend(self.release(index));
            }
            match self.next_slot() {
                Some((level, slot, begins)) if begins <= tick => {
                    self.now = begins;
                    self.move_down(level, slot);
                }
                _ => {
                    self.now = self.now.max(tick);
                    return false;
                }
            }
        }
    }

    /// The tick at which to look again, if ever.
    pub(super) fn next(&self) -> Option<Tick> {
        if self.lists[DUE].first != NONE {
            return Some(self.now);
        }
        self.next_slot().map(|(_, _, begins)| begins)
    }

    /// The first slot in use, and the tick at which it begins. AHEAD
    fn next_slot(&self) -> Option<(usize, usize, Tick)> {
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

    /// The wheel has come to a slot: its timers are due, or move to lower levels.
    fn move_down(&mut self, level: usize, slot: usize) {
        let list = &mut self.lists[level * SLOTS + slot];
        let mut index = std::mem::replace(list, List { first: NONE, last: NONE }).first;
        self.used[level][slot / 64] &= !(1 << (slot % 64));
        while index != NONE {
            let timer = &self.timers[index as usize];
            let (next, tick) = (timer.next, timer.tick);
            self.place(index, tick);
            index = next;
        }
    }

    /// Puts a timer where it belongs. AHEAD
    fn place(&mut self, index: u32, tick: Tick) {
        if tick <= self.now {
            return self.append(DUE, index);
        }
        let level = ((tick ^ self.now).ilog2() / BITS) as usize;
        let slot = (tick >> (BITS * level as u32)) as usize % SLOTS;
        self.used[level][slot / 64] |= 1 << (slot % 64);
        self.append(level * SLOTS + slot, index);
    }

    fn append(&mut self, list: usize, index: u32) {
        let last = std::mem::replace(&mut self.lists[list].last, index);
        let timer = &mut self.timers[index as usize];
        timer.next = NONE;
        if last == NONE {
            timer.back = HEAD | list as u32;
            self.lists[list].first = index;
        } else {
            timer.back = last;
            self.timers[last as usize].next = index;
        }
    }

    fn unlink(&mut self, index: u32) {
        let Timer { next, back, .. } = self.timers[index as usize];
        let list = if back & HEAD != 0 { Some((back & !HEAD) as usize) } else { None };
        match list {
            Some(list) => self.lists[list].first = next,
            None => self.timers[back as usize].next = next,
        }
        if next != NONE {
            self.timers[next as usize].back = back;
            return;
        }
        // It was the last one of its list, which may have to be searched for.
        let list = list.unwrap_or_else(|| self.list_of(index));
        self.lists[list].last = if back & HEAD != 0 { NONE } else { back };
        if back & HEAD != 0 && list != DUE {
            let (level, slot) = (list / SLOTS, list % SLOTS);
            self.used[level][slot / 64] &= !(1 << (slot % 64));
        }
    }

    /// The list in which a timer lies. AHEAD
    fn list_of(&self, index: u32) -> usize {
        let tick = self.timers[index as usize].tick;
        if tick <= self.now {
            return DUE;
        }
        let level = ((tick ^ self.now).ilog2() / BITS) as usize;
        level * SLOTS + (tick >> (BITS * level as u32)) as usize % SLOTS
    }

    /// Gives a place back that is in no list.
    fn release(&mut self, index: u32) -> Option<Waker> {
        let timer = &mut self.timers[index as usize];
        timer.stamp = 0;
        timer.next = self.free;
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
    use std::task::Wake;

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

    /// Numbers that look random, by a seed.
    fn numbers(mut seed: u64) -> impl FnMut() -> u64 {
        move || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed
        }
    }

    /// Against a sorted list, with steps of all sizes, removals and bounded batches.
    #[test]
    fn as_a_sorted_list_would() {
        for seed in 1..40 {
            let mut random = numbers(seed * 0x9e37_79b9);
            let mut wheel = Wheel::default();
            let mut model: Vec<(Tick, Key, Waker)> = Vec::new();
            let mut now = random() >> 30;
            wheel.advance(now, 0, &mut Vec::new());
            for _ in 0..400 {
                match random() % 4 {
                    0 | 1 => {
                        let tick = (now + 1 + (random() >> (random() % 48 + 16))).min(LAST);
                        let waker = waker();
                        model.push((tick, wheel.insert(tick, waker.clone()), waker));
                    }
                    2 if !model.is_empty() => {
                        let (_, key, waker) = model.swap_remove(random() as usize % model.len());
                        assert!(wheel.remove(key).unwrap().will_wake(&waker));
                        assert!(wheel.remove(key).is_none(), "a key is good once");
                    }
                    _ => {
                        let first = model.iter().map(|timer| timer.0).min();
                        assert!(wheel.next().is_none_or(|next| first.is_some_and(|first| next <= first)));
                        now = (now + (random() >> (random() % 48 + 16))).min(LAST);
                        let mut fired = Vec::new();
                        let limit = random() as usize % 5 + 1;
                        while wheel.advance(now, limit, &mut fired) {}
                        let due: Vec<_> = model.extract_if(.., |timer| timer.0 <= now).collect();
                        assert_eq!(fired.len(), due.len());
                        for (_, key, waker) in due {
                            assert!(fired.iter().any(|fired| fired.will_wake(&waker)));
                            assert!(wheel.waker(key).is_none());
                        }
                    }
                }
                assert_eq!(wheel.len, model.len());
            }
        }
    }

    #[test]
    fn in_order() {
        let mut wheel = Wheel::default();
        let ticks = [5_u64, 300, 300, 70_000, 70_000, 16_777_300];
        let wakers: Vec<_> = ticks.iter().map(|_| waker()).collect();
        for (tick, waker) in ticks.iter().zip(&wakers) {
            wheel.insert(*tick, waker.clone());
        }
        let mut fired = Vec::new();
        assert!(!wheel.advance(1 << 30, usize::MAX, &mut fired));
        assert!(fired.iter().zip(&wakers).all(|(a, b)| a.will_wake(b)));
        assert_eq!(fired.len(), wakers.len());
    }

    #[test]
    fn memory_goes_back_and_old_keys_find_nothing() {
        let mut wheel = Wheel::default();
        let keys: Vec<_> = (0..10 * KEEP as u64).map(|n| wheel.insert(n + 1, waker())).collect();
        let mut fired = Vec::new();
        wheel.advance(LAST, usize::MAX, &mut fired);
        assert_eq!((fired.len(), wheel.timers.capacity()), (keys.len(), 0));
        let mut wheel_again = wheel;
        wheel_again.now = 0;
        for _ in 0..100 {
            wheel_again.insert(7, waker());
        }
        assert!(keys.into_iter().all(|key| wheel_again.remove(key).is_none()));
    }
}
