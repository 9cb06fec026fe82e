//! The table of keyed colors: the same key is the same color, for as long as anybody holds it.
//!
//! A key is known by its hash. Two keys with the same hash share a color, which costs them
//! parallelism and nothing else.
//!
//! # Invariants
//!
//! * **WEAK**: the table holds no reference. A lane takes itself out before its memory goes, under
//!   the lock; one that is on its way out is never given out again (`try_ref_counted`).

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::{BuildHasher, Hash};
use std::sync::LazyLock;

use super::lane::{Lane, NewLane};
use crate::prim::{Mutex, lock};
use crate::task::RuntimeShared;
use crate::task::header::TaskPtr;

const SHARDS: usize = 64;

struct Known(TaskPtr);

// SAFETY: an address; what may be done with it, WEAK says.
unsafe impl Send for Known {}

type KeyShard = Mutex<HashMap<(usize, u64), Known>>;

static TABLE: LazyLock<[KeyShard; SHARDS]> = LazyLock::new(|| std::array::from_fn(|_| KeyShard::default()));
static HASHER: LazyLock<RandomState> = LazyLock::new(RandomState::new);

pub(super) fn hash(key: &(impl Hash + ?Sized)) -> u64 {
    HASHER.hash_one(key)
}

fn entry_of(shared: &RuntimeShared, key: u64) -> (&'static KeyShard, (usize, u64)) {
    (&TABLE[(key >> 58) as usize % SHARDS], (std::ptr::from_ref(shared).addr(), key))
}

/// The lane of a key, with a reference for the caller; `None` once the runtime is gone.
pub(super) fn lane(shared: &RuntimeShared, key: u64) -> Option<TaskPtr> {
    let (shard, index) = entry_of(shared, key);
    let mut known = lock(shard);
    let entry = known.entry(index);
    if let Entry::Occupied(entry) = &entry {
        let lane = entry.get().0;
        // SAFETY: it is in the table, so its memory is still there, and we have the lock. WEAK
        if unsafe { lane.as_ref() }.state.try_ref_counted() {
            return Some(lane);
        }
    }
    let lane = Lane::make(shared, NewLane { key: Some(key), main: None, of: None })?;
    entry.insert_entry(Known(lane));
    Some(lane)
}

/// Takes a lane out that nobody refers to any more.
pub(super) fn forget(shared: &RuntimeShared, key: u64, lane: TaskPtr) {
    let (shard, index) = entry_of(shared, key);
    let mut known = lock(shard);
    if known.get(&index).is_some_and(|found| found.0 == lane) {
        known.remove(&index);
        if known.capacity() > 64 && known.len() < known.capacity() / 8 {
            known.shrink_to_fit();
        }
    }
}
