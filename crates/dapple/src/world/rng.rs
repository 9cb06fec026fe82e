//! Random numbers from a seed, and the random delays of a world.
//!
//! In a *rough* world, which is the default, a poll takes a little time, now and then much more (as
//! when the kernel preempts a thread), some threads are slower than others, and to wake a thread
//! takes a while. How much of that there is differs from seed to seed. In a *steady* world none of it
//! takes any time, except for one nanosecond a poll, so that a busy loop does not keep the
//! clock from moving.

use std::cell::Cell;

pub(crate) struct Rng {
    state: Cell<u64>,
    is_steady: bool,
    /// The average time of a poll, in nanoseconds.
    poll: u64,
    /// One in this many polls takes much longer.
    hiccup: u64,
    /// The longest time to wake a thread, in nanoseconds.
    wake: u64,
    /// One in this many pauses lets others run.
    pause: u64,
    /// One in this many steps lets others run, and for how long at most. Drawn only with `--cfg dapple_steps`, so that a
    /// seed gives the same run as before without it.
    step: (u64, u64),
}

impl Rng {
    pub(super) fn new(seed: u64, is_steady: bool) -> Rng {
        let state = Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
        let mut rng = Rng { state, is_steady, poll: 0, hiccup: 0, wake: 0, pause: 0, step: (1, 1) };
        rng.poll = 20 << rng.below(4);
        rng.hiccup = 8 << rng.below(5);
        rng.wake = 1 << (8 + rng.below(8));
        rng.pause = 1 + rng.below(4);
        if cfg!(dapple_steps) {
            // Seldom and for long, or often and for a moment: on average a step takes little time.
            let every = 4 << rng.below(8);
            rng.step = (every, every << (3 + rng.below(7)));
        }
        rng
    }

    /// 64 random bits.
    pub(crate) fn next(&self) -> u64 {
        // SplitMix64: every state is as good as any other, so consecutive seeds are independent.
        let state = self.state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.state.set(state);
        let x = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// Whether the world is steady.
    pub(crate) fn is_steady(&self) -> bool {
        self.is_steady
    }

    /// A random number of nanoseconds up to about `most`: small values are more frequent.
    fn about(&self, most: u64) -> u64 {
        self.below(1 + (most >> self.below(8)))
    }

    /// The virtual time of a poll, in addition to its work.
    pub(super) fn poll(&self) -> u64 {
        match self.is_steady {
            true => 1,
            false if self.below(self.hiccup) == 0 => self.poll + self.about(1 << 14),
            false => self.poll / 2 + self.below(self.poll),
        }
    }

    /// The additional time of an operation that takes a while.
    pub(super) fn work(&self) -> u64 {
        if self.is_steady { 0 } else { self.about(1 << 12) }
    }

    /// The factor by which a thread is slower than others.
    pub(super) fn slowness(&self) -> u64 {
        if self.is_steady || self.below(4) > 0 { 1 } else { 1 << self.below(4) }
    }

    /// The time until a woken thread runs.
    pub(super) fn wake(&self) -> u64 {
        if self.is_steady { 0 } else { self.about(self.wake) }
    }

    /// The time for which others run in a pause, if they do.
    pub(super) fn pause(&self) -> Option<u64> {
        (!self.is_steady && self.below(self.pause) == 0).then(|| self.about(1 << 10))
    }

    /// The time for which others run before a step, if they do.
    #[cfg(dapple_steps)]
    pub(super) fn step(&self) -> Option<u64> {
        let (every, most) = self.step;
        (!self.is_steady && self.below(every) == 0).then(|| self.about(most))
    }

    /// The threshold below which an optional action is left out. In a rough world it is random, so that the action
    /// happens now and then.
    pub(crate) fn threshold(&self, usual: u64) -> u64 {
        if self.is_steady || self.below(2) == 0 { usual } else { self.below(1 + usual) }
    }

    /// The order among threads that could run at the same moment: the least goes first.
    pub(super) fn tie(&self) -> u32 {
        (self.next() >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_its_bound_and_all_of_it() {
        let rng = Rng::new(1, false);
        let mut seen = [0; 10];
        for _ in 0..10_000 {
            seen[rng.below(10) as usize] += 1;
        }
        assert!(seen.iter().all(|times| (800..1200).contains(times)), "{seen:?}");
    }

    #[test]
    fn seeds_in_a_row_have_nothing_in_common() {
        let first: std::collections::BTreeSet<u64> =
            (0..1000).map(|seed| Rng::new(seed, false).below(1 << 40)).collect();
        assert_eq!(first.len(), 1000);
        let small = first.iter().filter(|&&x| x < 1 << 39).count();
        assert!((400..600).contains(&small), "{small}");
    }
}
