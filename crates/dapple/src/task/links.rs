//! The table of those who are to be woken when a task is cancelled; see `cancel`.
//!
//! # Invariants
//!
//! * **LINK-OR-SEE**: the flag is set before the table is read, and the table is written before
//!   the flag is read again: a wait that is linked while its task is cancelled is woken by the
//!   one or by the other.

use std::collections::HashMap;

use crate::prim::{AtomicUsize, Mutex, Ordering, fence_seq_cst, lock};

const SHARDS: usize = if cfg!(loom) { 1 } else { 16 };

/// A cheap handle `W` to each of their wakers, by the address of the task, and by a number within it.
pub(crate) struct Links<W> {
    /// How many there are, in all tasks: while there are none, nobody need look for any.
    len: AtomicUsize,
    shards: [Mutex<HashMap<usize, Vec<(usize, W)>>>; SHARDS],
}

impl<W> Default for Links<W> {
    fn default() -> Links<W> {
        Links { len: AtomicUsize::new(0), shards: std::array::from_fn(|_| Mutex::default()) }
    }
}

impl<W: Clone> Links<W> {
    fn shard(&self, task: usize) -> &Mutex<HashMap<usize, Vec<(usize, W)>>> {
        &self.shards[(task >> 6) % SHARDS]
    }

    /// Enters one. The caller must look at the task's flag after this. LINK-OR-SEE
    pub(crate) fn add(&self, task: usize, number: usize, waker: W) {
        self.len.fetch_add(1, Ordering::SeqCst);
        lock(self.shard(task)).entry(task).or_default().push((number, waker));
        fence_seq_cst();
    }

    /// Takes one out. What is returned is to be dropped without the lock.
    pub(crate) fn remove(&self, task: usize, number: usize) -> Option<W> {
        let mut shard = lock(self.shard(task));
        let of_task = shard.get_mut(&task)?;
        let index = of_task.iter().position(|(n, _)| *n == number);
        let waker = index.map(|index| of_task.swap_remove(index).1);
        if of_task.is_empty() {
            shard.remove(&task);
        }
        drop(shard);
        self.len.fetch_sub(1, Ordering::SeqCst);
        waker
    }

    /// All of a task. The caller has set the task's flag before this. LINK-OR-SEE
    pub(crate) fn of(&self, task: usize) -> impl Iterator<Item = W> + use<W> {
        fence_seq_cst();
        let none = self.len.load(Ordering::SeqCst) == 0;
        let all = if none { None } else { lock(self.shard(task)).get(&task).cloned() };
        all.into_iter().flatten().map(|(_, waker)| waker)
    }
}
