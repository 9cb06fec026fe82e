//! Stalls: how many there were, how long they took, and what is said about them.

use std::time::Duration;

use crate::prim::{AtomicU64, Ordering};

/// What the monitor counts.
#[derive(Default)]
pub(super) struct Stalls {
    count: AtomicU64,
    longest: AtomicU64,
    relieved: AtomicU64,
    unrelieved: AtomicU64,
}

impl Stalls {
    /// A worker is stalled, for so long so far.
    pub(super) fn note(&self, is_new: bool, stuck_for: Duration) {
        if is_new {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        let nanos = u64::try_from(stuck_for.as_nanos()).unwrap_or(u64::MAX);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }

    /// A spare was sent.
    pub(super) fn note_relief(&self) {
        self.relieved.fetch_add(1, Ordering::Relaxed);
    }

    /// A spare was needed, and none was to be had.
    pub(super) fn note_nobody(&self, is_new: bool) {
        if is_new {
            self.unrelieved.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::Relaxed))
    }

    pub(super) fn relieved(&self) -> u64 {
        self.relieved.load(Ordering::Relaxed)
    }

    pub(super) fn unrelieved(&self) -> u64 {
        self.unrelieved.load(Ordering::Relaxed)
    }
}
