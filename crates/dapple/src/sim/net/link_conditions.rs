//! What the network is like: how long bytes take, and how many of them go at a time, by the seed.
//!
//! Everything that goes from one side to the other asks here when it arrives. So this is the place for
//! faults to come: what is held back, cut off or slowed down between two addresses.

use crate::world;

/// In a steady world, in nanoseconds.
const STEADY: u64 = 100_000;
/// The least of what is usual.
const LEAST: u64 = 20_000;

/// One direction of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkDirection {
    /// What is usual, in nanoseconds.
    latency: u64,
}

impl LinkDirection {
    pub(super) fn new() -> LinkDirection {
        let usual = |world: &world::World| match world.dice.is_steady() {
            true => STEADY,
            false => LEAST << world.dice.below(6),
        };
        LinkDirection { latency: world::with(usual).unwrap_or(0) }
    }

    /// How long it takes this time: between half and one and a half times the usual, that is between 10
    /// and 960 microseconds. Nothing outside of a simulation, where time does not go on.
    pub(super) fn latency(&self) -> u64 {
        let latency = |world: &world::World| match world.dice.is_steady() {
            true => self.latency,
            false => self.latency / 2 + world.dice.below(self.latency),
        };
        world::with(latency).unwrap_or(0)
    }
}

/// How many bytes go at a time, of `most` that could.
pub(super) fn some_of(most: usize) -> usize {
    let some = |world: &world::World| match most {
        0 | 1 => most,
        _ if world.dice.is_steady() => most,
        _ => match world.dice.below(8) {
            0 => 1,
            1..4 => 1 + world.dice.below(most as u64) as usize,
            _ => most,
        },
    };
    world::with(some).unwrap_or(most)
}
