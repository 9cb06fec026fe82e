//! The conditions of a simulated link: latency, and the number of bytes that go at a time, by the seed.
//!
//! Each transfer asks here for its arrival. So faults between two addresses (delays, partitions, slow links) would be
//! added here.

use crate::world;

/// The latency of a steady simulation, in nanoseconds.
const STEADY: u64 = 100_000;
/// The least average latency of a link, in nanoseconds.
const LEAST: u64 = 20_000;

/// One direction of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkDirection {
    /// The average latency, in nanoseconds.
    latency: u64,
}

impl LinkDirection {
    pub(super) fn new() -> LinkDirection {
        let usual = |world: &world::World| match world.rng.is_steady() {
            true => STEADY,
            false => LEAST << world.rng.below(6),
        };
        LinkDirection { latency: world::with(usual).unwrap_or(0) }
    }

    /// The latency of one transfer: between half and one and a half times the average, that is between 10
    /// and 960 microseconds. Zero outside of a simulation, where no time passes.
    pub(super) fn latency(&self) -> u64 {
        let latency = |world: &world::World| match world.rng.is_steady() {
            true => self.latency,
            false => self.latency / 2 + world.rng.below(self.latency),
        };
        world::with(latency).unwrap_or(0)
    }
}

/// The number of bytes that go at a time, of the `most` that could.
pub(super) fn some_of(most: usize) -> usize {
    let some = |world: &world::World| match most {
        0 | 1 => most,
        _ if world.rng.is_steady() => most,
        _ => match world.rng.below(8) {
            0 => 1,
            1..4 => 1 + world.rng.below(most as u64) as usize,
            _ => most,
        },
    };
    world::with(some).unwrap_or(most)
}
