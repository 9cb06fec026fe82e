//! `yield`: many tasks that do nothing but let each other run.
//!
//! Not on monoio, where a task that wakes itself runs again at once, ahead of all others.

use crate::contest::Contest;
use crate::sides::Side;
use crate::work::{self, BATCH, Work};

pub(crate) fn contest() -> Contest {
    let about = "1000 tasks yield 1000 times each; per yield";
    work::contest::<Yields>("yield", about)
}

/// Yields of a task.
const YIELDS: usize = 1000;

pub(crate) struct Yields;

impl Work for Yields {
    const BATCHES: usize = 6;
    const OPERATIONS: usize = BATCH * YIELDS;

    async fn run<S: Side>(side: S, batches: usize) {
        let mut handles = Vec::with_capacity(BATCH);
        for _ in 0..batches {
            handles.extend((0..BATCH).map(|_| side.spawn(yielding::<S>())));
            for handle in handles.drain(..) {
                S::join(handle).await;
            }
        }
    }
}

async fn yielding<S: Side>() {
    for _ in 0..YIELDS {
        S::yield_now().await;
    }
}
