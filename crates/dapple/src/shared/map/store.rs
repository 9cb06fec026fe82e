//! Storage of a map: values and computations by key, in shards.
//!
//! # Invariants
//!
//! * **ONE-COMPUTES**: each key has at most one computation that is not over. It begins while its shard is
//!   held exclusively and has neither a value nor another computation for the key. It ends when its
//!   [`ComputeTurn`] is dropped or has finished.
//! * **VALUE-FIRST**: a computed value is in the shard before the computation is over.
//! * **DROPPED-OUTSIDE**: no key, value or waker is dropped while a shard is held. The only foreign code
//!   called then is `eq`, before anything has changed; and `clone`, where the shard is only read.

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::mem::replace;
use std::panic::Location;
use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Slot;

use super::computation::PendingComputation;
use super::shard::{MapShard, is_inside};

/// Number of shards, a power of two. More shards help writers; readers share no cache line that they write
/// to, whatever the number.
const SHARDS: usize = 32;

pub(super) struct MapStore<K, V, S> {
    pub(super) hasher: S,
    pub(super) label: MapLabel,
    shards: [MapShard<ShardTable<K, V>>; SHARDS],
}

/// Content of a shard.
pub(super) struct ShardTable<K, V> {
    pub(super) values: HashTable<MapEntry<K, V>>,
    /// ONE-COMPUTES
    computing: HashTable<Computing<K>>,
}

pub(super) struct MapEntry<K, V> {
    /// Stored, so that the table can grow without calling foreign code.
    hash: u64,
    pub(super) key: K,
    pub(super) value: V,
}

struct Computing<K> {
    hash: u64,
    key: K,
    pending: Arc<PendingComputation>,
}

impl<K> Computing<K> {
    /// Takes the key out of the option.
    fn new(hash: u64, key: &mut Option<K>, pending: &Arc<PendingComputation>) -> Computing<K> {
        Computing { hash, key: key.take().expect("not taken yet"), pending: pending.clone() }
    }

    fn is(&self, pending: &Arc<PendingComputation>) -> bool {
        Arc::ptr_eq(&self.pending, pending)
    }
}

/// Name of a map in errors.
pub(super) struct MapLabel {
    pub(super) name: Option<Cow<'static, str>>,
    pub(super) type_name: &'static str,
    pub(super) made: &'static Location<'static>,
}

impl fmt::Display for MapLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "SharedMap {name:?}"),
            None => write!(f, "{} made at {}", self.type_name, self.made),
        }
    }
}

/// Result of the lookup before a value is computed.
pub(super) enum ComputeLookup<'a, K, V, S> {
    /// The key has a value.
    Value(K),
    /// Another caller computes it. With the word of its computation.
    Computed(K, Arc<PendingComputation>, usize),
    /// No caller computes this key; this caller takes the turn.
    Nothing(ComputeTurn<'a, K, V, S>),
}

impl<K, V, S> MapStore<K, V, S> {
    pub(super) fn new(label: MapLabel, capacity: usize, hasher: S) -> MapStore<K, V, S> {
        // A margin, since keys do not spread evenly over the shards.
        let each = if capacity == 0 { 0 } else { capacity / SHARDS + capacity.isqrt() / 4 + 1 };
        let table = || ShardTable { values: HashTable::with_capacity(each), computing: HashTable::new() };
        let shards = std::array::from_fn(|_| MapShard::new(table()));
        MapStore { hasher, label, shards }
    }

    pub(super) fn shards(&self) -> impl Iterator<Item = &MapShard<ShardTable<K, V>>> {
        self.shards.iter()
    }

    #[inline]
    fn shard(&self, hash: u64) -> &MapShard<ShardTable<K, V>> {
        // Mixes the bits, for hashers that leave bits unused. The table inside of the shard uses other bits.
        &self.shards[(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as usize % SHARDS]
    }

    #[inline]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64
    where
        S: BuildHasher,
    {
        self.hasher.hash_one(key)
    }

    /// Calls `f` with the entry of a key, if there is one, while its shard is read.
    #[inline]
    #[track_caller]
    pub(super) fn read<Q, R>(&self, hash: u64, key: &Q, f: impl FnOnce(&MapEntry<K, V>) -> R) -> Option<R>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.shard(hash)
            .read(&self.label, |table| table.values.find(hash, |entry| entry.key.borrow() == key).map(f))
    }

    /// Inserts a value, and makes the waiters for a computation look again.
    #[track_caller]
    pub(super) fn insert(&self, key: K, value: V) -> Option<V>
    where
        K: Hash + Eq,
        S: BuildHasher,
    {
        let hash = self.hash(&key);
        let (mut key, mut value) = (Some(key), Some(value)); // DROPPED-OUTSIDE, even on a panic
        let (old, pending) = self.shard(hash).change(&self.label, |table| {
            let own = key.as_ref().expect("not taken yet");
            let pending = table.computing.find(hash, |computing| computing.key == *own);
            let pending = pending.map(|computing| computing.pending.clone());
            let old = match table.values.entry(hash, |entry| entry.key == *own, |entry| entry.hash) {
                Slot::Occupied(mut slot) => {
                    value.take().map(|value| replace(&mut slot.get_mut().value, value))
                }
                Slot::Vacant(slot) => {
                    if let (Some(key), Some(value)) = (key.take(), value.take()) {
                        slot.insert(MapEntry { hash, key, value });
                    }
                    None
                }
            };
            (old, pending)
        });
        if let Some(pending) = pending {
            pending.put();
        }
        old
    }

    /// Removes an entry.
    #[track_caller]
    pub(super) fn remove<Q>(&self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
        S: BuildHasher,
    {
        let hash = self.hash(key);
        self.shard(hash).change(&self.label, |table| {
            let slot = table.values.find_entry(hash, |entry| entry.key.borrow() == key).ok()?;
            let (MapEntry { key, value, .. }, _) = slot.remove();
            Some((key, value))
        })
    }

    /// Looks for a value, or for a computation. If there is neither, starts a computation.
    #[track_caller]
    pub(super) fn look_or_begin(
        &self,
        hash: u64,
        key: K,
        place: &'static Location<'static>,
    ) -> ComputeLookup<'_, K, V, S>
    where
        K: Eq,
    {
        let pending = PendingComputation::new(place);
        let mut key = Some(key); // DROPPED-OUTSIDE, even on a panic
        let mut left_behind = None;
        let other = self.shard(hash).write(&self.label, |table| {
            let own = key.as_ref().expect("not taken yet");
            if table.values.find(hash, |entry| entry.key == *own).is_some() {
                return Some(None);
            }
            match table.computing.entry(hash, |computing| computing.key == *own, |computing| computing.hash) {
                Slot::Occupied(slot) if !slot.get().pending.is_over() => {
                    let pending = slot.get().pending.clone();
                    let word = pending.word();
                    return Some(Some((pending, word)));
                }
                // Left by a turn that could not remove it: see `ComputeTurn::drop`.
                Slot::Occupied(slot) => {
                    left_behind = Some(replace(slot.into_mut(), Computing::new(hash, &mut key, &pending)))
                }
                Slot::Vacant(slot) => drop(slot.insert(Computing::new(hash, &mut key, &pending))),
            }
            None
        });
        match (key, other) {
            (Some(key), Some(None)) => ComputeLookup::Value(key),
            (Some(key), Some(Some((pending, word)))) => ComputeLookup::Computed(key, pending, word),
            _ => ComputeLookup::Nothing(ComputeTurn { store: self, hash, pending, is_listed: true }),
        }
    }
}

/// Right to compute a key's value. ONE-COMPUTES
pub(super) struct ComputeTurn<'a, K, V, S> {
    store: &'a MapStore<K, V, S>,
    pub(super) hash: u64,
    pub(super) pending: Arc<PendingComputation>,
    /// Whether the computation is listed in its shard.
    is_listed: bool,
}

impl<K, V, S> ComputeTurn<'_, K, V, S> {
    /// Inserts the computed value. If there is a value already, returns the computed one, with the key.
    pub(super) fn finish(mut self, value: V) -> Result<(), (K, V)>
    where
        K: Eq,
    {
        let ComputeTurn { store, hash, ref pending, .. } = self;
        let mut value = Some(value); // DROPPED-OUTSIDE, even on a panic
        let left = store.shard(hash).write(&store.label, |table| {
            let Ok(own) = table.computing.find_entry(hash, |computing| computing.is(pending)) else {
                unreachable!("it is listed until it is over");
            };
            let key = &own.get().key;
            let is_there = table.values.find(hash, |entry| entry.key == *key).is_some();
            let (Computing { key, .. }, _) = own.remove(); // not the last reference to the computation
            match value.take_if(|_| !is_there) {
                Some(value) => {
                    table.values.insert_unique(hash, MapEntry { hash, key, value }, |entry| entry.hash);
                    None
                }
                None => Some(key),
            }
        });
        self.is_listed = false;
        left.zip(value).map_or(Ok(()), Err) // VALUE-FIRST: the computation is over when `self` is dropped
    }
}

impl<K, V, S> Drop for ComputeTurn<'_, K, V, S> {
    fn drop(&mut self) {
        // If this thread is inside of a shard, the entry stays; the next lookup of the key replaces it.
        if self.is_listed && !is_inside() {
            let ComputeTurn { store, hash, ref pending, .. } = *self;
            let own = store.shard(hash).write(&store.label, |table| {
                let own = table.computing.find_entry(hash, |computing| computing.is(pending));
                own.ok().map(|own| own.remove().0)
            });
            drop(own);
        }
        self.pending.end();
    }
}
