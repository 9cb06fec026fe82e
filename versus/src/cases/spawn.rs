//! `spawn`: spawn a batch of tasks from inside, then join them in order.

use crate::contest::Contest;
use crate::sides::Side;
use crate::work::{self, BATCH, Work};

pub(crate) fn contest() -> Contest {
    let about = "a task spawns 1000 tasks, then joins them in order; per task";
    work::contest_with_monoio::<SpawnAndJoin>("spawn", about)
}

/// Each task returns its number, and the numbers are checked.
pub(crate) struct SpawnAndJoin;

impl Work for SpawnAndJoin {
    const BATCHES: usize = 2000;
    const OPERATIONS: usize = BATCH;

    async fn run<S: Side>(side: S, batches: usize) {
        let mut handles = Vec::with_capacity(BATCH);
        for _ in 0..batches {
            handles.extend((0..BATCH).map(|number| side.spawn(async move { number })));
            for (number, handle) in handles.drain(..).enumerate() {
                assert_eq!(S::join(handle).await, number);
            }
        }
    }
}
