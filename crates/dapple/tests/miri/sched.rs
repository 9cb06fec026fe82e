//! Budgets, priorities, policies, spares and limits, for Miri.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::common::{Drops, runtime};
use dapple::channel::mpsc;
use dapple::sched::{LongestLane, Priority, ShortestQueue};
use dapple::task::{Builder, yield_now};
use dapple::time::Duration;
use dapple::{Color, Runtime};

#[test]
fn what_is_always_ready_gives_way() {
    let rt = runtime(1);
    let (sender, mut receiver) = mpsc::unbounded();
    // The task gives way every 128 of them. The other may have been moved to the shared line by then, which has
    // its turn a little later.
    const MESSAGES: usize = 2000;
    (0..MESSAGES).for_each(|n| sender.send_blocking(Box::new(n)).unwrap());
    let others = Drops::default();
    let guard = others.guard();
    let task = rt.spawn(async move {
        dapple::spawn(async move { drop(guard) }).detach();
        for n in 0..MESSAGES {
            assert_eq!(*receiver.recv().await.unwrap(), n);
            if others.count() == 1 {
                return n;
            }
        }
        panic!("the other task had no turn");
    });
    assert!(rt.block_on(task).unwrap() >= 128);
    drop(sender);
}

/// Lanes that become more urgent while they are in line have more than one entry; the colors are gone before the
/// last of these is taken up.
#[test]
fn priorities_and_drop_closures() {
    let rt = runtime(2);
    let (drops, refused) = (Drops::default(), Arc::new(AtomicUsize::new(0)));
    for round in 0..3 {
        let color = rt.handle().color();
        let mut handles = Vec::new();
        for number in 0..8 {
            let guard = drops.guard();
            let priority = Priority::ALL[(number + round) % 4];
            let refused = refused.clone();
            let builder = Builder::new().color(&color).priority(priority);
            let builder = builder.or_else(move || {
                refused.fetch_add(1, Ordering::Relaxed);
            });
            handles.push(builder.spawn(async move {
                yield_now().await;
                drop(guard);
            }));
            if number == 4 {
                color.set_priority(Priority::Urgent);
                handles[2].abort();
            }
        }
        drop(color);
        for handle in handles {
            let _ = rt.block_on(handle);
        }
    }
    assert_eq!(drops.count(), 24);
    assert!(refused.load(Ordering::Relaxed) <= 3);
    let color = rt.handle().color();
    let late = Builder::new().color(&color).priority(Priority::Low).spawn(pending::<()>());
    drop(rt);
    color.set_priority(Priority::High);
    assert!(late.is_finished());
}

#[test]
fn a_runtime_with_a_policy() {
    for weighs in [false, true] {
        let builder = Runtime::builder().workers(2);
        let builder = if weighs { builder.policy(LongestLane) } else { builder.policy(ShortestQueue) };
        let rt = builder.build().unwrap();
        let drops = Drops::default();
        let color = rt.handle().color();
        let handles: Vec<_> = (0..6)
            .map(|number| {
                let guard = drops.guard();
                let body = async move {
                    yield_now().await;
                    drop(guard);
                };
                if number % 2 == 0 { color.spawn(body) } else { rt.spawn(body) }
            })
            .collect();
        handles.into_iter().for_each(|handle| rt.block_on(handle).unwrap());
        assert_eq!(drops.count(), 6);
        drop(color.spawn(pending::<()>()));
        drop(rt);
    }
}

/// A spare worker has memory of its own, and hands over the rest of it when it leaves.
#[test]
fn a_spare_stands_in_and_leaves() {
    let rt = Runtime::builder().workers(1).stall_after(Duration::from_millis(50)).build().unwrap();
    for _ in 0..2 {
        let (send, receive) = std::sync::mpsc::channel();
        let stuck = rt.spawn(async move { receive.recv().unwrap() });
        let others = rt.spawn(async move {
            let tasks: Vec<_> = (0..5).map(|i| dapple::spawn(async move { vec![i] })).collect();
            let mut all = Vec::new();
            for task in tasks {
                all.extend(task.await.unwrap());
            }
            send.send(all).unwrap();
        });
        assert_eq!(rt.block_on(stuck).unwrap(), [0, 1, 2, 3, 4]);
        rt.block_on(others).unwrap();
    }
    assert!(rt.metrics().spares_sent >= 1);
}

#[test]
fn limits_refuse_hold_back_and_let_go() {
    use dapple::limit::{Limit, Refuse};
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let bounds = [
        Limit::new().depth(2),
        Limit::new().depth(2).refusing(Refuse::Newest),
        Limit::new().concurrency(1).depth(3),
    ];
    for limit in bounds {
        let handles = runtime.block_on(async {
            let color = Color::new();
            color.set_limit(limit.clone());
            let spawn = |number: usize| {
                let kept = Box::new(number);
                let task = Builder::new().color(&color).or_else(move || drop(kept)).spawn(async move {
                    dapple::task::yield_now().await;
                    Box::new(number)
                });
                if number % 4 == 3 {
                    task.abort();
                }
                task
            };
            let handles: Vec<_> = (0..8).map(spawn).collect();
            let admitted = limit.try_admit();
            let mut ended = Vec::new();
            drop(admitted);
            for handle in handles {
                ended.push(handle.await);
            }
            ended
        });
        assert_eq!(handles.len(), 8);
        assert!(handles.iter().any(Result::is_ok) || limit.stats().refused > 0);
        limit.close();
    }
    drop(runtime);
}

/// Time stamps that a waker writes and the running worker reads, on two workers; and a task that becomes a color meanwhile.
#[test]
fn clocked_tasks_are_woken_everywhere() {
    use dapple::limit::Limit;
    let runtime = Runtime::builder().workers(2).build().unwrap();
    runtime.block_on(async {
        let limit = Limit::new().delay(Duration::from_secs(1), Duration::from_secs(1));
        let spawn = |number: usize| {
            let limit = limit.clone();
            Builder::new().measure_wait().spawn(async move {
                dapple::task::yield_now().await;
                limit.check().unwrap();
                let inner = Builder::new().measure_wait().spawn(async move { Box::new(number) });
                let number = inner.await.unwrap();
                if *number % 2 == 0 {
                    Color::current().spawn(async {}).await.unwrap();
                }
                drop(limit.try_admit().unwrap());
                *number
            })
        };
        let tasks: Vec<_> = (0..4).map(spawn).collect();
        tasks[3].abort();
        for (number, task) in tasks.into_iter().enumerate() {
            assert!(task.await.is_ok_and(|own| own == number) || number == 3);
        }
    });
}
