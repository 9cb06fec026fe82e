//! How the keys of a map are hashed, if nobody says otherwise.
//!
//! foldhash, with seeds from the system's random numbers: an eighth of what the standard library's SipHash
//! costs for an integer, a fifth for a short string, and nobody can say in advance which keys collide. Who can
//! watch a map closely for long may find out: why it is the default all the same, docs/design/shared_map.md says.
//! In a simulation the seeds come from that simulation's, so that a map
//! is walked in the same order whenever the run is repeated.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::quality::{FoldHasher, SeedableRandomState};

use crate::world;

/// What all hashers of the process have in common.
static SEED: LazyLock<SharedSeed> = LazyLock::new(|| SharedSeed::from_u64(random()));

/// 64 bits from the system's random numbers, by way of the standard library's keys.
fn random() -> u64 {
    RandomState::new().hash_one(0_u64)
}

/// The hasher of a [`SharedMap`](crate::SharedMap), if no other is chosen: fast, and with random seeds from the
/// system, so that nobody has a list of keys that collide.
///
/// It is no cryptographic hash. Somebody who chooses keys and can see their hashes, or the order in which a map is
/// walked, or time single lookups very well, might find out about the seeds: for a map that is exposed to that, the
/// standard library's [`RandomState`] is stronger, at some 10 ns a lookup.
///
/// # Examples
///
/// ```
/// use dapple::shared::MapHasher;
/// use std::hash::BuildHasher;
///
/// let hasher = MapHasher::new();
/// assert_eq!(hasher.hash_one("key"), hasher.hash_one("key"));
/// assert_ne!(hasher.hash_one("key"), MapHasher::new().hash_one("key"));
/// ```
#[derive(Clone)]
pub struct MapHasher(SeedableRandomState);

impl MapHasher {
    /// With seeds of its own.
    #[must_use]
    pub fn new() -> MapHasher {
        let simulated = world::with(|world| world.dice.next());
        MapHasher(match simulated {
            Some(seed) => SeedableRandomState::with_seed(seed, SharedSeed::global_fixed()),
            None => SeedableRandomState::with_seed(random(), &SEED),
        })
    }
}

impl Default for MapHasher {
    fn default() -> MapHasher {
        MapHasher::new()
    }
}

impl BuildHasher for MapHasher {
    type Hasher = KeyHasher;

    #[inline]
    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(self.0.build_hasher())
    }
}

impl fmt::Debug for MapHasher {
    /// Without its seeds, which are a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapHasher").finish_non_exhaustive()
    }
}

/// The hash of one key, on the way, of a [`MapHasher`].
#[derive(Clone)]
pub struct KeyHasher(FoldHasher<'static>);

macro_rules! hand_on {
    ($($write:ident: $what:ty),*) => {
        impl Hasher for KeyHasher {
            #[inline(always)]
            fn finish(&self) -> u64 {
                self.0.finish()
            }

            $(#[inline(always)]
            fn $write(&mut self, what: $what) {
                self.0.$write(what);
            })*
        }
    };
}

hand_on! {
    write: &[u8], write_u8: u8, write_u16: u16, write_u32: u32, write_u64: u64, write_u128: u128, write_usize: usize
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHasher").finish_non_exhaustive()
    }
}
