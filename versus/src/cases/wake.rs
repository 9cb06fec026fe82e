//! `wake`: a thread that is not a worker wakes tasks.
//!
//! The thread waits for the answer by spinning, for a bounded time, and then by
//! yielding its CPU: no system call of ours wakes it, on any side. Its own CPU
//! time counts, the same on all sides. monoio's tasks stay on their thread
//! (waking them from another needs its feature `sync`, which slows the rest).

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::thread;

use crate::contest::Contest;
use crate::sides::Side;
use crate::signal::Slot;
use crate::work::{self, BATCH, Work};

pub(crate) fn contests() -> Vec<Contest> {
    vec![
        work::contest::<Single>("wake", "a foreign thread wakes one task and waits for its answer; per wake"),
        work::contest::<Burst>(
            "wake/burst",
            "a foreign thread wakes 1000 tasks, then waits for all of them; per wake",
        ),
    ]
}

/// Looks at the answer before the thread gives its CPU away.
const SPINS: usize = 200;

/// Tasks that answer a thread.
struct Answers {
    slots: Vec<Slot>,
    given: AtomicUsize,
}

impl Answers {
    fn new(tasks: usize) -> Arc<Self> {
        Arc::new(Self { slots: (0..tasks).map(|_| Slot::new()).collect(), given: AtomicUsize::new(0) })
    }

    /// A task: answers each message in its slot.
    async fn give(self: Arc<Self>, index: usize, rounds: usize) {
        for _ in 0..rounds {
            self.slots[index].receive().await;
            self.given.fetch_add(1, AcqRel);
        }
    }

    /// The thread: wakes all tasks, then waits until all have answered.
    fn ask(&self, rounds: usize) {
        for round in 1..=rounds {
            for slot in &self.slots {
                slot.send();
            }
            self.wait_for(round * self.slots.len());
        }
    }

    fn wait_for(&self, answers: usize) {
        let mut spins = 0;
        while self.given.load(Acquire) != answers {
            if spins < SPINS {
                spins += 1;
                spin_loop();
            } else {
                thread::yield_now();
            }
        }
    }
}

/// Starts the tasks and the thread, and waits for them.
async fn wake<S: Side>(side: S, tasks: usize, rounds: usize) {
    let answers = Answers::new(tasks);
    let handles: Vec<_> = (0..tasks).map(|index| side.spawn(answers.clone().give(index, rounds))).collect();
    let thread = thread::spawn(move || answers.ask(rounds));
    for handle in handles {
        S::join(handle).await;
    }
    thread.join().expect("a thread that ends");
}

struct Single;

impl Work for Single {
    const BATCHES: usize = 40;
    const OPERATIONS: usize = 1000;

    async fn run<S: Side>(side: S, batches: usize) {
        wake(side, 1, batches * Self::OPERATIONS).await;
    }
}

struct Burst;

impl Work for Burst {
    const BATCHES: usize = 1000;
    const OPERATIONS: usize = BATCH;

    async fn run<S: Side>(side: S, batches: usize) {
        wake(side, BATCH, batches).await;
    }
}
