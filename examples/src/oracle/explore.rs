//! All outcomes that the rules allow.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

use super::language::Programs;
use super::rules::{Buffers, Rules, State, Store, is_skip};

/// The final state of a run, when no command can go on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Outcome {
    /// The values of the variables.
    pub store: Store,
    /// The messages that were sent and not received.
    pub buffers: Buffers,
    /// Which programs have come to their end; the others are stuck.
    pub ended: Vec<bool>,
}

impl Outcome {
    /// Whether a program is stuck.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.ended.contains(&false)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, value) in self.store.iter().enumerate() {
            write!(f, "x{i} = {value}, ")?;
        }
        for (i, buffer) in self.buffers.iter().enumerate() {
            write!(f, "r{i} {buffer:?}, ")?;
        }
        for (i, ended) in self.ended.iter().enumerate() {
            let ended = if *ended { "ended" } else { "stuck" };
            write!(f, "{}{ended}", if i == 0 { "" } else { " beside " })?;
        }
        Ok(())
    }
}

impl Rules {
    /// All outcomes of programs that run side by side; `None` if there are more states than `limit`.
    #[must_use]
    pub fn outcomes(self, programs: &Programs, limit: usize) -> Option<BTreeSet<Outcome>> {
        let mut outcomes = BTreeSet::new();
        let first = self.first(programs);
        let mut seen: HashSet<State, BuildHasherDefault<Quick>> = HashSet::default();
        seen.insert(first.clone());
        let mut left = vec![first];
        while let Some(state) = left.pop() {
            let mut is_last = true;
            for next in self.next(&state) {
                if next == state {
                    continue; // what is evaluated is blocked
                }
                is_last = false;
                if seen.insert(next.clone()) {
                    left.push(next);
                }
            }
            if seen.len() > limit {
                return None;
            }
            if is_last {
                let ended = state.commands.iter().map(|c| is_skip(c)).collect();
                outcomes.insert(Outcome { store: state.store, buffers: state.buffers, ended });
            }
        }
        Some(outcomes)
    }
}

/// Hashes states. There are many, they are small, and no attacker chooses them.
#[derive(Default)]
struct Quick(u64);

impl Hasher for Quick {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_ne_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}
