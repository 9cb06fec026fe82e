//! Many more tasks than a worker's own line has room for are served in turn. The measure is a count, and not a time: how
//! often others go ahead while one waits, as a multiple of the tasks. With one line for all, at whose end each begins
//! anew, that is 1.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::watched;
use crate::fs_common::{Dir, block, direct_file, has_ring};
use dapple::Runtime;
use dapple::fs::Files;
use dapple::task::yield_now;

/// Many times as many as a ring of the kernel, or the line of a worker, has room for.
const TASKS: usize = 16_384;
/// Turns of each that count, on average.
const ROUNDS: usize = 4;
/// The most turns of other tasks between two turns of a task, per task. One is perfectly fair; operations in the kernel
/// and tasks in the worker's own queue come on top.
const MOST: f64 = 1.5;
const BLOCKS: usize = 256;

/// Turns that all tasks have had.
#[derive(Default)]
struct Turns {
    had: AtomicUsize,
    longest: AtomicUsize,
}

impl Turns {
    fn begin(&self) -> usize {
        self.had.load(Ordering::Relaxed)
    }

    /// A turn ends that was waited for since then. Whether to go on.
    fn end(&self, begun: usize) -> bool {
        let now = self.had.fetch_add(1, Ordering::Relaxed);
        // Before that, not all are there.
        if begun >= 2 * TASKS {
            self.longest.fetch_max(now - begun, Ordering::Relaxed);
        }
        now < (ROUNDS + 2) * TASKS
    }

    #[track_caller]
    fn check(&self) {
        let longest = self.longest.load(Ordering::Relaxed) as f64 / TASKS as f64;
        assert!(longest > 0.5, "all wait for each other: {longest}");
        assert!(longest < MOST, "one task let others go ahead {longest} times as often as there are tasks");
    }
}

/// One worker alone: a second thread goes on while the first does not get the processor, and overtakes it.
fn one_worker(files: Files) -> Runtime {
    Runtime::builder().workers(1).max_spares(0).files(files).build().expect("a runtime")
}

#[test]
fn tasks_that_yield_are_served_in_turn() {
    watched(|| {
        let (rt, turns) = (one_worker(Files::Pool), Arc::new(Turns::default()));
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let turns = turns.clone();
                rt.spawn(async move {
                    loop {
                        let begun = turns.begin();
                        yield_now().await;
                        if !turns.end(begun) {
                            break;
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            rt.block_on(task).unwrap();
        }
        turns.check();
    });
}

#[test]
fn readers_of_a_ring_are_served_in_turn() {
    if !has_ring() {
        return;
    }
    watched(|| {
        let (rt, dir, turns) = (one_worker(Files::Ring), Dir::new(), Arc::new(Turns::default()));
        let file = rt.block_on(direct_file(&dir.path().join("direct"), BLOCKS * 4096));
        let Some(file) = file.map(Arc::new) else { return };
        let readers: Vec<_> = (0..TASKS)
            .map(|number| {
                let (file, turns) = (file.clone(), turns.clone());
                rt.spawn(async move {
                    let (mut buffer, mut number) = (block(), number);
                    loop {
                        let begun = turns.begin();
                        number += TASKS + 1;
                        let (length, back) = file.read_at(buffer, (number % BLOCKS * 4096) as u64).await;
                        assert_eq!(length.unwrap(), 4096);
                        buffer = back;
                        if !turns.end(begun) {
                            break;
                        }
                    }
                })
            })
            .collect();
        for reader in readers {
            rt.block_on(reader).unwrap();
        }
        turns.check();
    });
}
