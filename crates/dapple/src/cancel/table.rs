//! The table of wakers and scopes that a cancel of a task or of a scope has to reach; see `item`.
//!
//! # Invariants
//!
//! * **LINK-OR-SEE**: a cancel sets the flag and then reads the table; a registration writes to the table and then reads the
//!   flag again. So a wait that is registered during a cancel is woken by the one or by the other, and a scope that is
//!   registered during a cancel is cancelled by the one or by the other.

use std::collections::BTreeMap;

use crate::prim::{AtomicU64, AtomicUsize, IS_MODEL, Mutex, Ordering, fence_seq_cst, lock};

const SHARDS: usize = if IS_MODEL { 1 } else { 16 };

/// Entries by the address of a task or scope, and by the number of the registration.
type CancelShard<W> = Mutex<BTreeMap<(usize, u64), W>>;

/// Entries of type `W`, which is cheap to clone.
pub(crate) struct CancelTable<W> {
    /// Entries in all shards. While there are none, a cancel takes no lock.
    len: AtomicUsize,
    numbers: AtomicU64,
    shards: [CancelShard<W>; SHARDS],
}

impl<W> Default for CancelTable<W> {
    fn default() -> CancelTable<W> {
        CancelTable {
            len: AtomicUsize::new(0),
            numbers: AtomicU64::new(0),
            shards: std::array::from_fn(|_| Mutex::default()),
        }
    }
}

impl<W: Clone> CancelTable<W> {
    fn shard(&self, at: usize) -> &CancelShard<W> {
        &self.shards[(at >> 6) % SHARDS]
    }

    /// A new number of a registration.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Adds an entry. The caller looks at the flag after this. LINK-OR-SEE
    pub(crate) fn add(&self, at: usize, number: u64, entry: W) {
        self.len.fetch_add(1, Ordering::SeqCst);
        let before = lock(self.shard(at)).insert((at, number), entry);
        if before.is_some() {
            // Twice on one stack: a scope that is polled by a task that was spawned in it.
            self.len.fetch_sub(1, Ordering::SeqCst);
        }
        fence_seq_cst();
    }

    /// Removes an entry. The caller drops it without the lock.
    pub(crate) fn remove(&self, at: usize, number: u64) -> Option<W> {
        let entry = lock(self.shard(at)).remove(&(at, number))?;
        self.len.fetch_sub(1, Ordering::SeqCst);
        Some(entry)
    }

    /// Removes the entries of one address for which `is_to_go` holds. The caller drops them without the lock.
    pub(crate) fn remove_all(&self, at: usize, is_to_go: impl Fn(&W) -> bool) -> Vec<W> {
        if self.len.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let mut shard = lock(self.shard(at));
        let entries = shard.range((at, 0)..=(at, u64::MAX));
        let keys: Vec<_> = entries.filter(|(_, entry)| is_to_go(entry)).map(|(&key, _)| key).collect();
        let gone: Vec<W> = keys.iter().filter_map(|key| shard.remove(key)).collect();
        drop(shard);
        self.len.fetch_sub(gone.len(), Ordering::SeqCst);
        gone
    }

    /// The entries of one address. The caller has set the flag before this. LINK-OR-SEE
    pub(crate) fn of(&self, at: usize) -> Vec<W> {
        fence_seq_cst();
        if self.len.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let shard = lock(self.shard(at));
        shard.range((at, 0)..=(at, u64::MAX)).map(|(_, entry)| entry.clone()).collect()
    }
}
