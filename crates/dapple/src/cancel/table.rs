//! The table of those that a cancel of a task, or of a scope, has to reach: wakers, and scopes; see `cancel`.
//!
//! # Invariants
//!
//! * **LINK-OR-SEE**: the flag is set before the table is read, and the table is written before
//!   the flag is read again: a wait that is linked while its task is cancelled is woken by the
//!   one or by the other, and a scope that is linked meanwhile is cancelled by the one or by the other.

use std::collections::BTreeMap;

use crate::prim::{AtomicU64, AtomicUsize, Mutex, Ordering, fence_seq_cst, lock};

const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };

/// By the address of the task, and by a number within it.
type LinkShard<W> = Mutex<BTreeMap<(usize, u64), W>>;

/// A cheap handle `W` to each of them.
pub(crate) struct CancelTable<W> {
    /// How many there are, in all tasks: while there are none, nobody need look for any.
    len: AtomicUsize,
    numbers: AtomicU64,
    shards: [LinkShard<W>; SHARDS],
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
    fn shard(&self, task: usize) -> &LinkShard<W> {
        &self.shards[(task >> 6) % SHARDS]
    }

    /// A number that is used once.
    pub(crate) fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    /// Enters one. The caller must look at the task's flag after this. LINK-OR-SEE
    pub(crate) fn add(&self, task: usize, number: u64, waker: W) {
        self.len.fetch_add(1, Ordering::SeqCst);
        let before = lock(self.shard(task)).insert((task, number), waker);
        if before.is_some() {
            // Twice in the same chain: a scope that is polled by a task that was spawned in it.
            self.len.fetch_sub(1, Ordering::SeqCst);
        }
        fence_seq_cst();
    }

    /// Takes one out. What is returned is to be dropped without the lock.
    pub(crate) fn remove(&self, task: usize, number: u64) -> Option<W> {
        let waker = lock(self.shard(task)).remove(&(task, number))?;
        self.len.fetch_sub(1, Ordering::SeqCst);
        Some(waker)
    }

    /// Takes all of a task out that `is_to_go` says. They are to be dropped without the lock.
    #[cfg(not(loom))]
    pub(crate) fn remove_all(&self, task: usize, is_to_go: impl Fn(&W) -> bool) -> Vec<W> {
        if self.len.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let mut shard = lock(self.shard(task));
        let of_task = shard.range((task, 0)..=(task, u64::MAX));
        let keys: Vec<_> = of_task.filter(|(_, waker)| is_to_go(waker)).map(|(&key, _)| key).collect();
        let gone: Vec<W> = keys.iter().filter_map(|key| shard.remove(key)).collect();
        drop(shard);
        self.len.fetch_sub(gone.len(), Ordering::SeqCst);
        gone
    }

    /// All of a task. The caller has set the task's flag before this. LINK-OR-SEE
    pub(crate) fn of(&self, task: usize) -> Vec<W> {
        fence_seq_cst();
        if self.len.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let shard = lock(self.shard(task));
        shard.range((task, 0)..=(task, u64::MAX)).map(|(_, handle)| handle.clone()).collect()
    }
}
