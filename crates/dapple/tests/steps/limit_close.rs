//! A limit that is closed while tasks come: each is refused or has begun, and none is left in between.
//!
//! On real threads, and in simulations. Faults here happen between two steps of a protocol, so these tests find most
//! of them in `ci/steps`, where any other thread may run in between (`prim/steps.rs`).
//!
//! # Proof that it can fail
//!
//! Each was seen to fail in `ci/steps` with one thing made weaker, at the seed that is named:
//!
//! | test | what was made weaker | seed |
//! |---|---|---|
//! | what_is_held_back_while_a_limit_is_closed_is_refused | `Inner::begin`: looks whether it is closed before it takes the lock | 77 |
//! | one_whose_turn_comes_while_a_limit_is_closed_begins_or_is_refused | (the same) | 714 |
//! | no_task_begins_once_a_limit_is_drained | (the same) | 175 |
//! | (the same) | `Inner::try_count_running`: looks whether it is closed before it counts | 326 |
//! | nothing_is_admitted_once_a_limit_is_drained | (the same) | 120 |
//! | (the same) | `Inner::try_run`: does not look under the lock | 261 |
#![expect(clippy::async_yields_async, reason = "handles are handed over, to be awaited elsewhere")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use crate::common::{eventually, in_both_worlds, rounds, runtime, start_thread};
use dapple::limit::Limit;
use dapple::sync::Notify;
use dapple::task::Builder;
use dapple::{JoinHandle, Runtime, sim};

/// How many seeds are tried: many where a thread may come between two steps, few where it may not.
const SEEDS: u64 = if cfg!(dapple_steps) { 1500 } else { 10 };

/// Lets others go first, by some steps of theirs: as the seed says, or for longer in each round.
fn hesitate(round: u32, most: Duration) {
    if sim::is_simulated() {
        sim::work(Duration::from_nanos(sim::random() % most.as_nanos() as u64));
    } else {
        (0..round % 500 * 3).for_each(|_| std::hint::spin_loop());
    }
}

/// A task under a limit, which has begun, and ends when it is notified.
fn begun(rt: &Runtime, limit: &Limit) -> (JoinHandle<()>, Arc<Notify>) {
    let (begun, end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (tells, ends) = (begun.clone(), end.clone());
    let runner = rt.block_on(async {
        let runner = Builder::new().limit(limit.clone()).spawn(async move {
            tells.notify_one();
            ends.notified().await.unwrap();
        });
        begun.notified().await.unwrap();
        runner
    });
    (runner, end)
}

/// One task runs for as long as it likes, so what comes is held back; what is held back when the limit is closed is refused
/// then, and not when the one that runs ends.
#[test]
fn what_is_held_back_while_a_limit_is_closed_is_refused() {
    in_both_worlds(SEEDS, || {
        let rt = runtime(2);
        for round in 0..rounds(1000, 1) {
            let limit = Limit::new().concurrency(1);
            let (runner, end) = begun(&rt, &limit);
            let closes = limit.clone();
            let closer = start_thread(move || {
                hesitate(round, Duration::from_micros(30));
                closes.close();
            });
            let tasks: Vec<JoinHandle<()>> = rt.block_on(async {
                (0..24).map(|_| Builder::new().limit(limit.clone()).spawn(async {})).collect()
            });
            closer.join().unwrap();
            eventually("all are refused", || tasks.iter().all(JoinHandle::is_finished));
            assert!(!runner.is_finished());
            for task in tasks {
                assert!(rt.block_on(task).unwrap_err().is_refused());
            }
            end.notify_one();
            rt.block_on(runner).unwrap();
            assert_eq!((limit.stats().waiting, limit.stats().running), (0, 0));
        }
    });
}

/// Closes a limit while one ends and another, which was held back, is about to take its place.
#[test]
fn one_whose_turn_comes_while_a_limit_is_closed_begins_or_is_refused() {
    in_both_worlds(SEEDS, || {
        let rt = runtime(2);
        for round in 0..rounds(1000, 1) {
            let limit = Limit::new().concurrency(1);
            let (runner, end) = begun(&rt, &limit);
            let ran = Arc::new(AtomicU32::new(0));
            let tasks: Vec<JoinHandle<()>> = rt.block_on(async {
                let task = || {
                    let ran = ran.clone();
                    Builder::new().limit(limit.clone()).spawn(async move {
                        ran.fetch_add(1, SeqCst);
                    })
                };
                (0..6).map(|_| task()).collect()
            });
            let closes = limit.clone();
            let closer = start_thread(move || {
                hesitate(round, Duration::from_micros(20));
                closes.close();
            });
            end.notify_one();
            closer.join().unwrap();
            rt.block_on(limit.drained()).unwrap();
            let at_the_end = ran.load(SeqCst);
            eventually("each has begun or is refused", || tasks.iter().all(JoinHandle::is_finished));
            rt.block_on(runner).unwrap();
            let ended = tasks.into_iter().filter_map(|task| rt.block_on(task).ok()).count();
            assert_eq!((ended, ran.load(SeqCst)), (at_the_end as usize, at_the_end));
            assert_eq!((limit.stats().waiting, limit.stats().running), (0, 0));
        }
    });
}

/// Without a bound on how many run, and with one: once `drained` has returned, nothing runs and nothing begins.
fn nothing_begins(begins: impl Fn(&Runtime, &Limit, Arc<AtomicBool>) + Clone + Send + 'static) {
    in_both_worlds(SEEDS, move || {
        let rt = Arc::new(runtime(2));
        for round in 0..rounds(1000, 2) {
            let limit = if round % 2 == 0 { Limit::new() } else { Limit::new().concurrency(100) };
            let is_drained = Arc::new(AtomicBool::new(false));
            let (begins, there) = (begins.clone(), (rt.clone(), limit.clone(), is_drained.clone()));
            let comes = start_thread(move || begins(&there.0, &there.1, there.2));
            hesitate(round, Duration::from_micros(10));
            rt.block_on(limit.drained()).unwrap();
            is_drained.store(true, SeqCst);
            comes.join().unwrap(); // what comes too late is counted, and taken back
            assert_eq!((limit.stats().waiting, limit.stats().running), (0, 0));
        }
    });
}

#[test]
fn nothing_is_admitted_once_a_limit_is_drained() {
    nothing_begins(|_, limit, is_drained| {
        for _ in 0..10 {
            if let Ok(admitted) = limit.try_admit() {
                assert!(!is_drained.load(SeqCst), "admitted after the limit was drained");
                drop(admitted);
            }
        }
    });
}

#[test]
fn no_task_begins_once_a_limit_is_drained() {
    nothing_begins(|rt, limit, is_drained| {
        let begins = || {
            let is_drained = is_drained.clone();
            async move { assert!(!is_drained.load(SeqCst), "begun after the limit was drained") }
        };
        let tasks: Vec<JoinHandle<()>> = rt.block_on(async {
            (0..10).map(|_| Builder::new().limit(limit.clone()).spawn(begins())).collect()
        });
        for task in tasks {
            let ended = rt.block_on(task);
            assert!(ended.is_ok() || ended.unwrap_err().is_refused());
        }
    });
}

#[test]
fn a_refusal_says_whether_the_limit_is_closed() {
    let limit = Limit::new().concurrency(1);
    let admitted = limit.try_admit().unwrap();
    let full = limit.try_admit().unwrap_err();
    assert!(!full.is_closed() && full.to_string().contains("try again"));
    limit.close();
    drop(admitted);
    let closed = limit.try_admit().unwrap_err();
    assert!(closed.is_closed() && !closed.to_string().contains("try again"), "{closed}");
}
