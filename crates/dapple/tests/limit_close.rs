//! A limit that is closed while tasks come: each is refused or has begun, and none is left in between.
#![expect(clippy::async_yields_async, reason = "handles are handed over, to be awaited elsewhere")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;

use common::{eventually, runtime, watched};
use dapple::JoinHandle;
use dapple::sched::Limit;
use dapple::sync::Notify;
use dapple::task::Builder;

/// One task runs for as long as it likes, so what comes is held back; what is held back when the limit is closed is refused
/// then, and not when the one that runs ends.
#[test]
fn what_is_held_back_while_a_limit_is_closed_is_refused() {
    watched(|| {
        let rt = runtime(2);
        for round in 0..4_000_u32 {
            let (limit, end) = (Limit::new().concurrency(1), Arc::new(Notify::new()));
            let runner = rt.block_on(async {
                let begun = Arc::new(Notify::new());
                let (tells, ends) = (begun.clone(), end.clone());
                let runner = Builder::new().limit(limit.clone()).spawn(async move {
                    tells.notify_one();
                    ends.notified().await.unwrap();
                });
                begun.notified().await.unwrap();
                runner
            });
            let start = Barrier::new(2);
            let tasks: Vec<JoinHandle<()>> = thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    (0..round % 2_000 * 3).for_each(|_| std::hint::spin_loop());
                    limit.close();
                });
                rt.block_on(async {
                    start.wait();
                    (0..24).map(|_| Builder::new().limit(limit.clone()).spawn(async {})).collect()
                })
            });
            eventually("all are refused", || tasks.iter().all(JoinHandle::is_finished));
            assert!(!runner.is_finished());
            for task in tasks {
                assert!(rt.block_on(task).unwrap_err().is_refused());
            }
            end.notify_one();
            rt.block_on(runner).unwrap();
            assert_eq!((limit.counts().waiting, limit.counts().running), (0, 0));
        }
    });
}

/// Without a bound on how many run, and by `admit_now` with one: once `drained` has returned, nothing runs and nothing
/// begins.
#[test]
fn nothing_begins_once_a_limit_is_drained() {
    watched(|| {
        let rt = runtime(2);
        for round in 0..6_000_u32 {
            let limit = if round % 2 == 0 { Limit::new() } else { Limit::new().concurrency(100) };
            let (is_drained, start) = (Arc::new(AtomicBool::new(false)), Barrier::new(2));
            thread::scope(|scope| {
                scope.spawn(|| {
                    start.wait();
                    for _ in 0..50 {
                        if let Ok(admitted) = limit.admit_now() {
                            assert!(
                                !is_drained.load(SeqCst),
                                "round {round}: begun after the limit was drained"
                            );
                            drop(admitted);
                        }
                    }
                });
                start.wait();
                (0..round % 500 * 3).for_each(|_| std::hint::spin_loop());
                rt.block_on(limit.drained()).unwrap();
                is_drained.store(true, SeqCst);
            });
            assert_eq!(limit.counts().running, 0);
        }
    });
}
