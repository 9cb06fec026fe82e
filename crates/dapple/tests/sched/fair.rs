//! However many tasks are always ready, all get on: those in the shared line, too.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use dapple::sim::Sim;
use dapple::task::yield_now;
use dapple::{JoinHandle, spawn};

/// As many as two rings have room for; and how often all the others, or as many as that, may be polled before one is.
const RINGS: u64 = 2048;
const BOUND: u64 = 3;

/// `tasks` tasks yield all the time. Returns the largest number of polls of other tasks between two polls of one task.
async fn worst_of(tasks: u64, rounds: u64) -> u64 {
    let polls = Arc::new(AtomicU64::new(0));
    let tasks: Vec<JoinHandle<u64>> = (0..tasks)
        .map(|_| {
            let polls = polls.clone();
            spawn(async move {
                let (mut last, mut worst) = (polls.load(Ordering::Relaxed), 0);
                while last < rounds * tasks {
                    let now = polls.fetch_add(1, Ordering::Relaxed);
                    worst = worst.max(now.saturating_sub(last));
                    last = now;
                    yield_now().await;
                }
                worst
            })
        })
        .collect();
    let mut worst = 0;
    for task in tasks {
        worst = worst.max(task.await.unwrap());
    }
    worst
}

/// In a steady world, where no worker is slower than another. A ring has room for 1024: of 500 none is in the shared line, of 10,000 most are.
#[test]
fn no_task_is_passed_over_for_long_however_many_there_are() {
    for tasks in [500, 1500, 3000, 5000, 10_000] {
        for workers in [1, 2] {
            let worst = Sim::new(0).workers(workers).steady().run(worst_of(tasks, 12));
            assert!(worst < BOUND * tasks.max(RINGS), "{tasks} tasks, {workers} workers: {worst}");
        }
    }
}
