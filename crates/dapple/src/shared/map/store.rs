//! What a map keeps: values and computations, by key, on so many shelves.
//!
//! # Invariants
//!
//! * **ONE-COMPUTES**: of each key there is at most one computation that is not over. It begins while its shelf
//!   is held and there is neither a value nor another; it ends when its [`ComputeTurn`] is dropped or has finished.
//! * **VALUE-FIRST**: what was computed is on the shelf before the computation is over.
//! * **DROPPED-OUTSIDE**: no key, value or waker is dropped while a shelf is held; of foreign code there is
//!   called `eq` alone, and nothing has been changed yet when it is; and `clone` where a shelf is only read.

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

/// A power of two. Those who read share no cache line that they write to, however many shelves there are: this
/// is for those who change something.
const SHELVES: usize = 32;

pub(super) struct MapStore<K, V, S> {
    pub(super) hasher: S,
    pub(super) label: MapLabel,
    shelves: [MapShard<ShardTable<K, V>>; SHELVES],
}

/// What lies on a shelf.
pub(super) struct ShardTable<K, V> {
    pub(super) values: HashTable<MapEntry<K, V>>,
    /// ONE-COMPUTES
    computing: HashTable<Computing<K>>,
}

pub(super) struct MapEntry<K, V> {
    /// Kept, so that the table can grow without calling foreign code.
    hash: u64,
    pub(super) key: K,
    pub(super) value: V,
}

struct Computing<K> {
    hash: u64,
    key: K,
    ticket: Arc<PendingComputation>,
}

impl<K> Computing<K> {
    /// Takes the key.
    fn new(hash: u64, key: &mut Option<K>, ticket: &Arc<PendingComputation>) -> Computing<K> {
        Computing { hash, key: key.take().expect("not taken yet"), ticket: ticket.clone() }
    }

    fn is(&self, ticket: &Arc<PendingComputation>) -> bool {
        Arc::ptr_eq(&self.ticket, ticket)
    }
}

/// What a map is called in errors.
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

/// What somebody finds who would compute.
pub(super) enum ComputeLookup<'a, K, V, S> {
    /// There is a value.
    Value(K),
    /// Somebody computes it. With the word of the ticket.
    Computed(K, Arc<PendingComputation>, usize),
    /// Nobody does, so that it is his.
    Nothing(ComputeTurn<'a, K, V, S>),
}

impl<K, V, S> MapStore<K, V, S> {
    pub(super) fn new(label: MapLabel, capacity: usize, hasher: S) -> MapStore<K, V, S> {
        // They are not filled evenly.
        let each = if capacity == 0 { 0 } else { capacity / SHELVES + capacity.isqrt() / 4 + 1 };
        let table = || ShardTable { values: HashTable::with_capacity(each), computing: HashTable::new() };
        let shelves = std::array::from_fn(|_| MapShard::new(table()));
        MapStore { hasher, label, shelves }
    }

    pub(super) fn shelves(&self) -> impl Iterator<Item = &MapShard<ShardTable<K, V>>> {
        self.shelves.iter()
    }

    #[inline]
    fn shard(&self, hash: u64) -> &MapShard<ShardTable<K, V>> {
        // Mixed, for hashers that leave bits unused; and the table inside uses other ones.
        &self.shelves[(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59) as usize % SHELVES]
    }

    #[inline]
    pub(super) fn hash<Q: Hash + ?Sized>(&self, key: &Q) -> u64
    where
        S: BuildHasher,
    {
        self.hasher.hash_one(key)
    }

    /// Calls `f` with the entry of a key, if there is one, while its shelf is read.
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

    /// Puts a value there, and tells those who wait for one.
    #[track_caller]
    pub(super) fn insert(&self, key: K, value: V) -> Option<V>
    where
        K: Hash + Eq,
        S: BuildHasher,
    {
        let hash = self.hash(&key);
        let (mut key, mut value) = (Some(key), Some(value)); // DROPPED-OUTSIDE, whatever panics
        let (old, ticket) = self.shard(hash).change(&self.label, |table| {
            let own = key.as_ref().expect("not taken yet");
            let ticket = table.computing.find(hash, |computing| computing.key == *own);
            let ticket = ticket.map(|computing| computing.ticket.clone());
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
            (old, ticket)
        });
        if let Some(ticket) = ticket {
            ticket.put();
        }
        old
    }

    /// Takes an entry out.
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

    /// Looks for a value, or for somebody who computes it; if there is neither, begins to.
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
        let ticket = PendingComputation::new(place);
        let mut key = Some(key); // DROPPED-OUTSIDE, whatever panics
        let mut left_behind = None;
        let other = self.shard(hash).write(&self.label, |table| {
            let own = key.as_ref().expect("not taken yet");
            if table.values.find(hash, |entry| entry.key == *own).is_some() {
                return Some(None);
            }
            match table.computing.entry(hash, |computing| computing.key == *own, |computing| computing.hash) {
                Slot::Occupied(slot) if !slot.get().ticket.is_over() => {
                    let ticket = slot.get().ticket.clone();
                    let word = ticket.word();
                    return Some(Some((ticket, word)));
                }
                // By one who could not take it out: see `ComputeTurn::drop`.
                Slot::Occupied(slot) => {
                    left_behind = Some(replace(slot.into_mut(), Computing::new(hash, &mut key, &ticket)))
                }
                Slot::Vacant(slot) => drop(slot.insert(Computing::new(hash, &mut key, &ticket))),
            }
            None
        });
        match (key, other) {
            (Some(key), Some(None)) => ComputeLookup::Value(key),
            (Some(key), Some(Some((ticket, word)))) => ComputeLookup::Computed(key, ticket, word),
            _ => ComputeLookup::Nothing(ComputeTurn { store: self, hash, ticket, is_listed: true }),
        }
    }
}

/// The right to compute a key's value. ONE-COMPUTES
pub(super) struct ComputeTurn<'a, K, V, S> {
    store: &'a MapStore<K, V, S>,
    pub(super) hash: u64,
    pub(super) ticket: Arc<PendingComputation>,
    /// Whether it is on its shelf.
    is_listed: bool,
}

impl<K, V, S> ComputeTurn<'_, K, V, S> {
    /// Puts what was computed on the shelf, unless there is a value already: then gives it back, with the key.
    pub(super) fn finish(mut self, value: V) -> Result<(), (K, V)>
    where
        K: Eq,
    {
        let ComputeTurn { store, hash, ref ticket, .. } = self;
        let mut value = Some(value); // DROPPED-OUTSIDE, whatever panics
        let left = store.shard(hash).write(&store.label, |table| {
            let Ok(own) = table.computing.find_entry(hash, |computing| computing.is(ticket)) else {
                unreachable!("it is listed until it is over");
            };
            let key = &own.get().key;
            let is_there = table.values.find(hash, |entry| entry.key == *key).is_some();
            let (Computing { key, .. }, _) = own.remove(); // not the last reference to the ticket
            match value.take_if(|_| !is_there) {
                Some(value) => {
                    table.values.insert_unique(hash, MapEntry { hash, key, value }, |entry| entry.hash);
                    None
                }
                None => Some(key),
            }
        });
        self.is_listed = false;
        left.zip(value).map_or(Ok(()), Err) // VALUE-FIRST: it is over when `self` is dropped
    }
}

impl<K, V, S> Drop for ComputeTurn<'_, K, V, S> {
    fn drop(&mut self) {
        // Dropped by somebody who is in a shelf himself, it leaves its place behind, to whoever comes next.
        if self.is_listed && !is_inside() {
            let ComputeTurn { store, hash, ref ticket, .. } = *self;
            let own = store.shard(hash).write(&store.label, |table| {
                let own = table.computing.find_entry(hash, |computing| computing.is(ticket));
                own.ok().map(|own| own.remove().0)
            });
            drop(own);
        }
        self.ticket.end();
    }
}
