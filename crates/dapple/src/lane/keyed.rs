//! The table of keyed colors: equal keys give the same color, while the color has a holder.
//!
//! Keys are compared by their hash. Two keys with the same hash share a color, which costs them parallelism and
//! nothing else.
//!
//! # Invariants
//!
//! * **WEAK**: the table holds no references. A lane removes itself under the lock before its memory is freed. A lane
//!   whose last reference was dropped is never given out again (`try_ref_counted`).

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

// SAFETY: it is only an address, which is used as WEAK says.
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

/// The lane of a key, with a reference for the caller. `None`: the runtime has ended.
pub(super) fn lane(shared: &RuntimeShared, key: u64) -> Option<TaskPtr> {
    let (shard, index) = entry_of(shared, key);
    let mut known = lock(shard);
    let entry = known.entry(index);
    if let Entry::Occupied(entry) = &entry {
        let lane = entry.get().0;
        // SAFETY: the lane is in the table and the lock is held, so its memory exists. WEAK
        if unsafe { lane.as_ref() }.state.try_ref_counted() {
            return Some(lane);
        }
    }
    let lane = Lane::make(shared, NewLane { key: Some(key), main: None, of: None })?;
    entry.insert_entry(Known(lane));
    Some(lane)
}

/// Removes a lane whose last reference was dropped.
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
