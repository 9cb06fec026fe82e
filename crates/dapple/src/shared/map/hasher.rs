//! Default hasher of maps.
//!
//! It is foldhash, seeded from the system's random numbers. It costs an eighth of the standard library's
//! SipHash for an integer and a fifth for a short string, and an attacker cannot know in advance which keys
//! collide. An attacker that can observe a map closely for long may find out; docs/design/shared_map.md says
//! why it is the default nevertheless. In a simulation the seeds come from the simulation, so that repeated
//! runs walk a map in the same order.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::sync::LazyLock;

use foldhash::SharedSeed;
use foldhash::quality::{FoldHasher, SeedableRandomState};

use crate::world;

/// Seed shared by all hashers of the process.
static SEED: LazyLock<SharedSeed> = LazyLock::new(|| SharedSeed::from_u64(random()));

/// Returns 64 random bits from the system, by way of the standard library's hash keys.
fn random() -> u64 {
    RandomState::new().hash_one(0_u64)
}

/// Default hasher of a [`SharedMap`](crate::SharedMap): fast, and seeded at random, so that no attacker has a
/// list of colliding keys.
///
/// It is not a cryptographic hash. An attacker that chooses keys, and can see their hashes or the iteration
/// order of a map, or can time single lookups very precisely, might learn the seeds. For a map exposed to
/// that, use the standard library's [`RandomState`], which costs some 10 ns more for each lookup.
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
    /// Creates a hasher with seeds of its own.
    #[must_use]
    pub fn new() -> MapHasher {
        let simulated = world::with(|world| world.rng.next());
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
    /// Shows no seeds: they are secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapHasher").finish_non_exhaustive()
    }
}

/// [`Hasher`] of a [`MapHasher`], for one key.
///
/// # Examples
///
/// ```
/// use dapple::shared::{KeyHasher, MapHasher};
/// use std::hash::BuildHasher;
///
/// let hasher: KeyHasher = MapHasher::default().build_hasher(); // a map makes one for each lookup
/// # drop(hasher);
/// ```
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
