//! `TMap`: a hash map, in transactions.
//!
//! It is a trie by the bits of the keys' hashes. Each slot is a variable, and holds the entries of one hash (that is one
//! key, but for collisions), or a branch of 16 slots, which go by the next four bits:
//!
//! ```text
//! root: branch --0--> nothing
//!              --1--> entry of a key whose hash begins with 1
//!              --2--> branch --0--> entry of a key whose hash begins with 20
//!                            ...
//! ```
//!
//! A transaction reads the slots on its way to the key, and writes the last one. A slot that holds a branch is written
//! again only by `clear`. So transactions on keys that are in the map do not conflict, and the map grows slot by slot,
//! with no step in which all of it is changed. A table of buckets would be moved as a whole to grow.
//!
//! # Invariants
//!
//! * **SLOT-BY-HASH**: an entry is in the first slot on the way by the bits of its hash, the lowest first, that holds no
//!   branch. All entries of a slot have the same hash.

use std::array;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::slice;
use std::sync::Arc;

use super::{Abort, TVar, Transaction};
use crate::shared::MapHasher;

/// Bits of the hash by which a branch is divided.
const BITS: u32 = 4;
const SLOTS: usize = 1 << BITS;

/// A hash map whose entries are read and changed in transactions.
///
/// Use it for a table whose entries change together with each other, or with other variables; or whose readers wait for a
/// key, by [`wait_for`](Self::wait_for). A cache or a table whose entries are independent is faster in a
/// [`SharedMap`](crate::SharedMap), which also computes each missing value once.
///
/// Transactions on different keys that are in the map do not conflict. A transaction that adds a key conflicts with
/// another one only if both use the same slot of the table: the other one adds a key whose hash begins with the same bits,
/// or it uses the key that was alone in that slot until now.
///
/// A clone is another handle of the same map. Values that are returned are cloned, as the transaction may still be undone:
/// put large ones behind an [`Arc`]. The memory of branches is kept when keys are removed, until [`clear`](Self::clear).
///
/// # Examples
///
/// ```
/// use dapple::stm::{TMap, atomically};
///
/// dapple::run(async {
///     let rooms = TMap::new();
///     let guest = dapple::spawn({
///         let rooms = rooms.clone();
///         atomically(move |tx| rooms.wait_for(tx, "ada")) // sleeps until she has a room
///     });
///     atomically(|tx| rooms.insert(tx, "grace", 12)).await.unwrap();
///     // Grace moves out, Ada moves in: no one ever sees both, or neither.
///     let moved = atomically(|tx| {
///         let room = rooms.remove(tx, "grace")?;
///         room.map(|room| rooms.insert(tx, "ada", room)).transpose()
///     });
///     assert_eq!(moved.await, Ok(Some(None)));
///     assert_eq!(guest.await.unwrap(), Ok(12));
/// });
/// ```
pub struct TMap<K, V, S = MapHasher> {
    root: TVar<TrieSlot<K, V>>,
    hasher: Arc<S>,
}

type TrieEntries<K, V> = [Arc<TrieEntry<K, V>>];
type TrieSlots<K, V> = [TVar<TrieSlot<K, V>>; SLOTS];

enum TrieSlot<K, V> {
    Empty,
    One(Arc<TrieEntry<K, V>>),
    /// Keys with the same hash.
    Several(Vec<Arc<TrieEntry<K, V>>>),
    Branch(Box<TrieSlots<K, V>>),
}

struct TrieEntry<K, V> {
    hash: u64,
    key: K,
    value: V,
}

/// The slot of a hash. SLOT-BY-HASH
struct FoundSlot<'a, K, V> {
    var: &'a TVar<TrieSlot<K, V>>,
    entries: &'a TrieEntries<K, V>,
    depth: u32,
}

impl<K: Send + Sync + 'static, V: Send + Sync + 'static> TrieSlot<K, V> {
    fn of(mut entries: Vec<Arc<TrieEntry<K, V>>>) -> TrieSlot<K, V> {
        match entries.len() {
            0 => TrieSlot::Empty,
            1 => entries.pop().map_or(TrieSlot::Empty, TrieSlot::One),
            _ => TrieSlot::Several(entries),
        }
    }

    /// A branch at this depth for two slots of different hashes.
    fn branch(depth: u32, a: (u64, TrieSlot<K, V>), b: (u64, TrieSlot<K, V>)) -> TrieSlot<K, V> {
        let (at_a, at_b) = (index(a.0, depth), index(b.0, depth));
        let (mut a, mut b) = (Some(a), Some(b));
        TrieSlot::Branch(Box::new(array::from_fn(|at| {
            let slot = match (a.take_if(|_| at == at_a), b.take_if(|_| at == at_b)) {
                (Some(a), Some(b)) => TrieSlot::branch(depth + 1, a, b),
                (Some((_, slot)), None) | (None, Some((_, slot))) => slot,
                (None, None) => TrieSlot::Empty,
            };
            TVar::new(slot)
        })))
    }

    /// The entries, or the slots of a branch.
    fn entries(&self) -> Result<&TrieEntries<K, V>, &TrieSlots<K, V>> {
        match self {
            TrieSlot::Empty => Ok(&[]),
            TrieSlot::One(entry) => Ok(slice::from_ref(entry)),
            TrieSlot::Several(entries) => Ok(entries),
            TrieSlot::Branch(slots) => Err(slots),
        }
    }

    /// Calls `f` with all entries, until it returns `false`.
    fn walk(
        var: &TVar<TrieSlot<K, V>>,
        tx: &mut Transaction<'_>,
        f: &mut impl FnMut(&K, &V) -> bool,
    ) -> Result<bool, Abort> {
        match tx.get(var)?.entries() {
            Ok(entries) => Ok(entries.iter().all(|entry| f(&entry.key, &entry.value))),
            Err(slots) => {
                for slot in slots {
                    if !TrieSlot::walk(slot, tx, f)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }
}

fn index(hash: u64, depth: u32) -> usize {
    (hash >> (BITS * depth)) as usize % SLOTS
}

impl<K, V> FoundSlot<'_, K, V> {
    fn position<Q: Eq + ?Sized>(&self, hash: u64, key: &Q) -> Option<usize>
    where
        K: Borrow<Q>,
    {
        self.entries.iter().position(|entry| entry.hash == hash && entry.key.borrow() == key)
    }
}

impl<K, V> TMap<K, V>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Makes an empty map.
    #[must_use]
    pub fn new() -> TMap<K, V> {
        TMap::with_hasher(MapHasher::new())
    }
}

impl<K, V, S> TMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher,
{
    /// Makes an empty map that hashes its keys by `hasher`.
    #[must_use]
    pub fn with_hasher(hasher: S) -> TMap<K, V, S> {
        TMap { root: TVar::new(TrieSlot::Empty), hasher: Arc::new(hasher) }
    }

    /// The slot of a hash. SLOT-BY-HASH
    fn find<'a, 'tx: 'a>(
        &'a self,
        tx: &mut Transaction<'tx>,
        hash: u64,
    ) -> Result<FoundSlot<'a, K, V>, Abort> {
        let (mut var, mut depth) = (&self.root, 0);
        loop {
            match tx.get(var)?.entries() {
                Ok(entries) => return Ok(FoundSlot { var, entries, depth }),
                Err(slots) => {
                    var = &slots[index(hash, depth)];
                    depth += 1;
                }
            }
        }
    }

    /// Calls `f` with the entry of a key.
    fn look<Q, R>(
        &self,
        tx: &mut Transaction<'_>,
        key: &Q,
        f: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>, Abort>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let slot = self.find(tx, hash)?;
        Ok(slot.position(hash, key).map(|at| f(&slot.entries[at].value)))
    }

    /// Returns a clone of the value of a key; `None` if the key is not in the map.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn get<Q>(&self, tx: &mut Transaction<'_>, key: &Q) -> Result<Option<V>, Abort>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.look(tx, key, V::clone)
    }

    /// Returns a clone of the value of a key. If there is none, calls [`retry`](Transaction::retry): the transaction waits.
    ///
    /// # Errors
    ///
    /// If the key is not in the map, or the transaction is aborted.
    pub fn wait_for<Q>(&self, tx: &mut Transaction<'_>, key: &Q) -> Result<V, Abort>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        match self.get(tx, key)? {
            Some(value) => Ok(value),
            None => tx.retry(),
        }
    }

    /// Calls `f` with the value of a key, which need not be cloned. Returns `None` if the key is not in the map.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted: `f` has not run.
    pub fn with<Q, R>(
        &self,
        tx: &mut Transaction<'_>,
        key: &Q,
        f: impl FnOnce(&V) -> R,
    ) -> Result<Option<R>, Abort>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        self.look(tx, key, f)
    }

    /// Whether the key is in the map.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn contains_key<Q>(&self, tx: &mut Transaction<'_>, key: &Q) -> Result<bool, Abort>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        Ok(self.look(tx, key, |_| ())?.is_some())
    }

    /// Inserts a value, and returns the one that it replaces.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted: key and value are dropped.
    pub fn insert(&self, tx: &mut Transaction<'_>, key: K, value: V) -> Result<Option<V>, Abort> {
        let hash = self.hasher.hash_one(&key);
        let slot = self.find(tx, hash)?;
        let at = slot.position(hash, &key);
        let entry = Arc::new(TrieEntry { hash, key, value });
        let mut entries = slot.entries.to_vec();
        let (old, new) = match (at, slot.entries) {
            (Some(at), _) => {
                let old = std::mem::replace(&mut entries[at], entry);
                (Some(old.value.clone()), TrieSlot::of(entries))
            }
            (None, [first, ..]) if first.hash != hash => {
                let (here, new) = ((first.hash, TrieSlot::of(entries)), (hash, TrieSlot::One(entry)));
                (None, TrieSlot::branch(slot.depth, here, new))
            }
            (None, _) => {
                entries.push(entry);
                (None, TrieSlot::of(entries))
            }
        };
        tx.write(slot.var, new)?;
        Ok(old)
    }

    /// Calls `f` with a clone of the value of a key, to change it. Returns `None` if the key is not in the map.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn modify<Q, R>(
        &self,
        tx: &mut Transaction<'_>,
        key: &Q,
        f: impl FnOnce(&mut V) -> R,
    ) -> Result<Option<R>, Abort>
    where
        K: Borrow<Q> + Clone,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let slot = self.find(tx, hash)?;
        let Some(at) = slot.position(hash, key) else { return Ok(None) };
        let mut entries = slot.entries.to_vec();
        let TrieEntry { key, value, .. } = &*entries[at];
        let (key, mut value) = (key.clone(), value.clone());
        let result = f(&mut value);
        entries[at] = Arc::new(TrieEntry { hash, key, value });
        tx.write(slot.var, TrieSlot::of(entries))?;
        Ok(Some(result))
    }

    /// Removes a key, and returns its value.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn remove<Q>(&self, tx: &mut Transaction<'_>, key: &Q) -> Result<Option<V>, Abort>
    where
        K: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let hash = self.hasher.hash_one(key);
        let slot = self.find(tx, hash)?;
        let Some(at) = slot.position(hash, key) else { return Ok(None) };
        let mut entries = slot.entries.to_vec();
        let removed = entries.remove(at);
        tx.write(slot.var, TrieSlot::of(entries))?;
        Ok(Some(removed.value.clone()))
    }

    /// Removes all keys, and frees the memory of the branches.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn clear(&self, tx: &mut Transaction<'_>) -> Result<(), Abort> {
        if !matches!(tx.get(&self.root)?, TrieSlot::Empty) {
            tx.write(&self.root, TrieSlot::Empty)?;
        }
        Ok(())
    }

    /// Calls `f` with each key and its value, as they are at one moment, in no particular order.
    ///
    /// The transaction reads the whole map, so any change of it is a conflict.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted, after any number of calls.
    pub fn for_each(&self, tx: &mut Transaction<'_>, mut f: impl FnMut(&K, &V)) -> Result<(), Abort> {
        let mut call = |key: &K, value: &V| {
            f(key, value);
            true
        };
        TrieSlot::walk(&self.root, tx, &mut call).map(drop)
    }

    /// Counts the keys in the map. As [`for_each`](Self::for_each), this reads the whole map, so any change of it is a
    /// conflict. The map stores no length, since all insertions would conflict on it.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn len(&self, tx: &mut Transaction<'_>) -> Result<usize, Abort> {
        let mut len = 0;
        self.for_each(tx, |_, _| len += 1)?;
        Ok(len)
    }

    /// Whether no key is in the map.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn is_empty(&self, tx: &mut Transaction<'_>) -> Result<bool, Abort> {
        TrieSlot::walk(&self.root, tx, &mut |_, _| false)
    }
}

impl<K, V, S> Clone for TMap<K, V, S> {
    /// Makes another handle of the same map.
    fn clone(&self) -> TMap<K, V, S> {
        TMap { root: self.root.clone(), hasher: self.hasher.clone() }
    }
}

impl<K, V, S> Default for TMap<K, V, S>
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    S: BuildHasher + Default,
{
    fn default() -> TMap<K, V, S> {
        TMap::with_hasher(S::default())
    }
}

impl<K, V, S> fmt::Debug for TMap<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TMap").finish_non_exhaustive()
    }
}
