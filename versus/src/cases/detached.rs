//! `detached`: spawn a batch of tasks from inside that are never joined.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

use crate::contest::Contest;
use crate::sides::Side;
use crate::signal::Gate;
use crate::work::{self, BATCH, Work};

pub(crate) fn contest() -> Contest {
    let about = "a task spawns 1000 detached tasks, the last to run tells it; per task";
    work::contest_with_monoio::<Detached>("detached", about)
}

/// Tasks of the batch that have not run yet.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Opened by the last one.
static DONE: Gate = Gate::new();

struct Detached;

impl Work for Detached {
    const BATCHES: usize = 2000;
    const OPERATIONS: usize = BATCH;

    async fn run<S: Side>(side: S, batches: usize) {
        for _ in 0..batches {
            LEFT.store(BATCH, Relaxed);
            for _ in 0..BATCH {
                S::detach(side.spawn(async {
                    if LEFT.fetch_sub(1, AcqRel) == 1 {
                        DONE.open();
                    }
                }));
            }
            DONE.pass().await;
        }
    }
}
