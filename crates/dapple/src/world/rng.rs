//! Random numbers from a seed, and how rough a world is.
//!
//! In a *rough* world, which is the usual one, a poll takes a little time, now and then much more (as
//! when the kernel takes the processor away), some threads are slower than others, and to wake a thread
//! takes a while. How much of that there is differs from seed to seed. In a *steady* one none of it
//! takes any time, but for one nanosecond a poll, so that what goes round in circles does not keep the
//! clock from moving.

use std::cell::Cell;

pub(crate) struct Rng {
    state: Cell<u64>,
    is_steady: bool,
    /// What a poll takes, about, in nanoseconds.
    poll: u64,
    /// One in so many polls takes much longer.
    hiccup: u64,
    /// How long it can take to wake a thread.
    wake: u64,
    /// One in so many pauses lets others go on.
    pause: u64,
    /// One in so many steps lets others go on, for how long at the most. Drawn with `--cfg dapple_steps` alone: the same
    /// seed is the same run without it.
    step: (u64, u64),
}

impl Rng {
    pub(super) fn new(seed: u64, is_steady: bool) -> Rng {
        let state = Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d);
        let mut dice = Rng { state, is_steady, poll: 0, hiccup: 0, wake: 0, pause: 0, step: (1, 1) };
        dice.poll = 20 << dice.below(4);
        dice.hiccup = 8 << dice.below(5);
        dice.wake = 1 << (8 + dice.below(8));
        dice.pause = 1 + dice.below(4);
        if cfg!(dapple_steps) {
            // Seldom and for long, or often and for a moment: a step takes little on the average.
            let every = 4 << dice.below(8);
            dice.step = (every, every << (3 + dice.below(7)));
        }
        dice
    }

    /// A number of 64 random bits.
    pub(crate) fn next(&self) -> u64 {
        // SplitMix64: every state is as good as any other, so that seeds in a row are, too.
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

    /// What is random in nanoseconds, of about this size: more often little than much.
    fn about(&self, most: u64) -> u64 {
        self.below(1 + (most >> self.below(8)))
    }

    /// How long a poll takes, beside what it does.
    pub(super) fn poll(&self) -> u64 {
        match self.is_steady {
            true => 1,
            false if self.below(self.hiccup) == 0 => self.poll + self.about(1 << 14),
            false => self.poll / 2 + self.below(self.poll),
        }
    }

    /// How much longer than it says something takes that takes a while.
    pub(super) fn work(&self) -> u64 {
        if self.is_steady { 0 } else { self.about(1 << 12) }
    }

    /// How many times slower than others a thread is.
    pub(super) fn slowness(&self) -> u64 {
        if self.is_steady || self.below(4) > 0 { 1 } else { 1 << self.below(4) }
    }

    /// How long it takes until a thread goes on that was woken.
    pub(super) fn wake(&self) -> u64 {
        if self.is_steady { 0 } else { self.about(self.wake) }
    }

    /// How long others go on in a pause, if they do.
    pub(super) fn pause(&self) -> Option<u64> {
        (!self.is_steady && self.below(self.pause) == 0).then(|| self.about(1 << 10))
    }

    /// How long others go on before a step, if they do.
    #[cfg(dapple_steps)]
    pub(super) fn step(&self) -> Option<u64> {
        let (every, most) = self.step;
        (!self.is_steady && self.below(every) == 0).then(|| self.about(most))
    }

    /// A threshold below which something is not done, for want of use: in a rough world that is now and
    /// then done all the same.
    pub(crate) fn threshold(&self, usual: u64) -> u64 {
        if self.is_steady || self.below(2) == 0 { usual } else { self.below(1 + usual) }
    }

    /// Which of those who could go on at the same moment goes first: the least.
    pub(super) fn tie(&self) -> u32 {
        (self.next() >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_its_bound_and_all_of_it() {
        let dice = Rng::new(1, false);
        let mut seen = [0; 10];
        for _ in 0..10_000 {
            seen[dice.below(10) as usize] += 1;
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
