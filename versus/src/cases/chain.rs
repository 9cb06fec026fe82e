//! `chain`: each task spawns the next one and ends.

use crate::contest::Contest;
use crate::sides::Side;
use crate::signal::Gate;
use crate::work::{self, Work};

pub(crate) fn contest() -> Contest {
    let about = "each task spawns the next one, detached, and ends; per task";
    work::contest_with_monoio::<Chain>("chain", about)
}

/// Opened by the last link.
static DONE: Gate = Gate::new();

struct Chain;

impl Work for Chain {
    const BATCHES: usize = 20;
    const OPERATIONS: usize = 100_000;

    async fn run<S: Side>(side: S, batches: usize) {
        for _ in 0..batches {
            link(&side, Self::OPERATIONS - 1);
            DONE.pass().await;
        }
    }
}

/// Spawns a task that spawns `more` others, one after the other.
fn link<S: Side>(side: &S, more: usize) {
    let next = side.clone();
    S::detach(side.spawn(async move {
        match more {
            0 => DONE.open(),
            _ => link(&next, more - 1),
        }
    }));
}
