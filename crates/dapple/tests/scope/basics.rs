//! Scopes: finish, start, cancel.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use dapple::channel::{mpsc, oneshot};
use dapple::sim::Sim;
use dapple::task::yield_now;
use dapple::time::{Instant, sleep};
use dapple::{Cancelled, finish, finish_local};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn waits_for_all_that_was_started() {
    Sim::new(1).explore(0..100, || async {
        let ended = AtomicUsize::new(0);
        let begun = Instant::now();
        let value = finish(async |s| {
            for i in 0..10 {
                let ended = &ended;
                s.start(async move {
                    sleep(ms(i)).await.unwrap();
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
            7
        })
        .await;
        assert_eq!((value, ended.load(Ordering::Relaxed)), (7, 10));
        assert!(begun.elapsed() >= ms(9) && begun.elapsed() < ms(10));
    });
}

#[test]
fn a_child_that_never_waits_runs_like_a_call() {
    dapple::run(async {
        let order = std::sync::Mutex::new(Vec::new());
        finish(async |s| {
            for i in 0..3 {
                let order = &order;
                assert!(s.start(async move { order.lock().unwrap().push(i) }).was_ready());
                order.lock().unwrap().push(10 + i);
            }
        })
        .await;
        assert_eq!(*order.lock().unwrap(), [0, 10, 1, 11, 2, 12]);
    });
}

#[test]
fn cancel_ends_waiting_children() {
    Sim::new(1).explore(0..100, || async {
        let begun = Instant::now();
        let results = std::sync::Mutex::new(Vec::new());
        finish(async |s| {
            for i in 0..5 {
                let results = &results;
                s.start(async move {
                    let result = sleep(ms(i * 10)).await;
                    results.lock().unwrap().push((i, result));
                    if i == 2 {
                        s.cancel();
                        assert_eq!(sleep(Duration::ZERO).await, Err(Cancelled)); // begun later
                    }
                });
            }
        })
        .await;
        assert!(begun.elapsed() < ms(21), "{:?}", begun.elapsed());
        let results = results.into_inner().unwrap();
        assert_eq!(results[..3], [(0, Ok(())), (1, Ok(())), (2, Ok(()))]);
        assert!(results[3..].iter().all(|(_, result)| *result == Err(Cancelled)) && results.len() == 5);
        sleep(Duration::ZERO).await.unwrap(); // outside all is well
    });
}

#[test]
fn started_children_return_their_values() {
    Sim::new(1).explore(0..50, || async {
        let sum = finish(async |s| {
            let tasks: Vec<_> =
                (0..10u64).map(|i| s.start(async move { sleep(ms(10 - i)).await.map(|()| i) })).collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            sum
        })
        .await;
        assert_eq!(sum, 45);
    });
}

#[test]
fn nested_scopes_are_cancelled_with_the_outer_scope() {
    Sim::new(1).explore(0..100, || async {
        let depth = AtomicUsize::new(0);
        finish(async |outer| {
            let depth = &depth;
            outer.start(async move {
                finish(async |inner| {
                    inner.start(async {
                        finish(async |_| {
                            assert_eq!(sleep(Duration::MAX).await, Err(Cancelled));
                            depth.fetch_add(1, Ordering::Relaxed);
                        })
                        .await;
                    });
                    assert_eq!(sleep(Duration::MAX).await, Err(Cancelled));
                    assert!(inner.is_cancelled());
                    depth.fetch_add(1, Ordering::Relaxed);
                })
                .await;
            });
            sleep(ms(1)).await.unwrap();
            outer.cancel();
        })
        .await;
        assert_eq!(depth.load(Ordering::Relaxed), 2);
    });
}

#[test]
fn a_canceller_from_anywhere() {
    Sim::new(1).explore(0..100, || async {
        let (send, receive) = oneshot::channel();
        let waits = dapple::spawn(async move {
            finish(async |s| {
                send.send(s.canceller()).unwrap();
                s.start(async { assert_eq!(sleep(Duration::MAX).await, Err(Cancelled)) });
                sleep(Duration::MAX).await
            })
            .await
        });
        let canceller = receive.await.unwrap();
        canceller.cancel();
        canceller.cancel();
        assert_eq!(waits.await.unwrap(), Err(Cancelled));
        canceller.cancel(); // late
    });
}

#[test]
fn spawned_in_a_scope() {
    Sim::new(1).explore(0..100, || async {
        let begun = Instant::now();
        let value = finish(async |s| {
            s.spawn(sleep(ms(5))).detach();
            let handle = s.spawn(async { sleep(Duration::MAX).await });
            sleep(ms(1)).await.unwrap();
            s.cancel();
            (handle,)
        })
        .await;
        assert!(begun.elapsed() < ms(2));
        assert_eq!(value.0.await.unwrap(), Err(Cancelled));
    });
}

#[test]
fn a_panic_cancels_and_goes_on() {
    let ended = AtomicUsize::new(0);
    let failure = Sim::new(1).try_run(async {
        finish(async |s| {
            s.start(async {
                assert_eq!(sleep(Duration::MAX).await, Err(Cancelled));
                ended.fetch_add(1, Ordering::Relaxed);
            });
            s.start(async {
                sleep(ms(1)).await.unwrap();
                panic!("the first");
            });
            assert_eq!(sleep(Duration::MAX).await, Err(Cancelled));
            ended.fetch_add(1, Ordering::Relaxed);
        })
        .await;
    });
    assert!(failure.unwrap_err().why().contains("the first"));
    assert_eq!(ended.load(Ordering::Relaxed), 2);
}

#[test]
fn dropping_finish_drops_its_children() {
    struct Count<'a>(&'a Cell<usize>);
    impl Drop for Count<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }
    dapple::run(async {
        let dropped = Cell::new(0);
        {
            let finish = finish_local(async |s| {
                for _ in 0..5 {
                    let count = Count(&dropped);
                    s.start(async move {
                        let _count = count;
                        let _ = sleep(Duration::MAX).await;
                    });
                }
                sleep(Duration::MAX).await
            });
            let mut finish = std::pin::pin!(finish);
            assert!(futures_lite::future::poll_once(&mut finish).await.is_none());
            assert_eq!(dropped.get(), 0);
        }
        assert_eq!(dropped.get(), 5);
    });
}

#[test]
fn many_children_that_wait_once() {
    dapple::run(async {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..1000).map(|_| oneshot::channel::<usize>()).unzip();
        let sum = AtomicUsize::new(0);
        finish(async |s| {
            for receiver in receivers {
                let sum = &sum;
                s.start(async move { sum.fetch_add(receiver.await.unwrap(), Ordering::Relaxed) });
            }
            s.spawn(async move {
                for (i, sender) in senders.into_iter().enumerate() {
                    sender.send(i).unwrap();
                }
            })
            .detach();
        })
        .await;
        assert_eq!(sum.load(Ordering::Relaxed), 499_500);
    });
}

#[test]
fn a_child_that_yields_gives_way_to_other_tasks() {
    let runtime = dapple::Runtime::builder().workers(1).build().unwrap();
    let task = runtime.spawn(async {
        let ran = Arc::new(AtomicUsize::new(0));
        let other = ran.clone();
        dapple::spawn(async move { other.store(1, Ordering::Relaxed) }).detach();
        finish(async |s| {
            s.start(async {
                for _ in 0..100 {
                    yield_now().await;
                }
                assert_eq!(ran.load(Ordering::Relaxed), 1);
            });
        })
        .await;
    });
    runtime.block_on(task).unwrap();
}

#[test]
fn children_that_yield_take_turns_and_are_woken_meanwhile() {
    Sim::new(2).explore(0..200, || async {
        let (sender, mut receiver) = mpsc::bounded(1);
        let got = AtomicUsize::new(0);
        let order = std::sync::Mutex::new(Vec::new());
        finish(async |s| {
            for child in 0..2 {
                let order = &order;
                s.start(async move {
                    for _ in 0..3 {
                        order.lock().unwrap().push(child);
                        yield_now().await;
                    }
                });
            }
            // One that yields, and is woken from elsewhere while it is put off.
            s.start(async {
                let mut waits = pin!(receiver.recv());
                let first = poll_fn(|cx| {
                    if let Poll::Ready(message) = waits.as_mut().poll(cx) {
                        return Poll::Ready(message);
                    }
                    cx.waker().wake_by_ref();
                    Poll::Pending
                });
                got.store(first.await.unwrap(), Ordering::Relaxed);
            });
            s.spawn(async move { sender.send(7).await.unwrap() }).detach();
        })
        .await;
        assert_eq!(got.load(Ordering::Relaxed), 7);
        assert_eq!(*order.lock().unwrap(), [0, 1, 0, 1, 0, 1]);
    });
}

#[test]
fn through_foreign_combinators() {
    Sim::new(1).explore(0..50, || async {
        let (_senders, receivers): (Vec<_>, Vec<_>) = (0..20).map(|_| mpsc::bounded::<u8>(1)).unzip();
        finish(async |s| {
            s.start(async {
                let waits =
                    receivers.into_iter().map(|mut receiver| async move { receiver.recv().await.is_err() });
                assert!(futures_util::future::join_all(waits).await.into_iter().all(|cancelled| cancelled));
            });
            sleep(ms(1)).await.unwrap();
            s.cancel();
        })
        .await;
    });
}

#[test]
fn timeouts_lose_no_result() {
    Sim::new(1).explore(0..100, || async {
        let (sender, mut receiver) = mpsc::bounded::<u64>(1);
        let sends = dapple::spawn(async move {
            for i in 0..20 {
                sleep(ms(dapple::sim::random() % 4)).await.unwrap();
                sender.send(i).await.unwrap();
            }
        });
        let mut next = 0;
        while next < 20 {
            let got = match dapple::time::timeout(ms(2), receiver.recv()).await {
                Ok(got) => got,
                Err(elapsed) => elapsed.into_inner().unwrap(),
            };
            if let Ok(value) = got {
                assert_eq!(value, next);
                next += 1;
            }
        }
        sends.await.unwrap();
    });
}

#[test]
fn a_race_has_one_winner_and_waits_for_the_others() {
    Sim::new(1).explore(0..100, || async {
        let ended = AtomicUsize::new(0);
        let racer = |time: u64| {
            let ended = &ended;
            async move {
                let result = sleep(ms(time)).await;
                dapple::shield(sleep(ms(1))).await.unwrap();
                ended.fetch_add(1, Ordering::Relaxed);
                result.map(|()| time)
            }
        };
        let begun = Instant::now();
        assert_eq!(dapple::race((racer(30), racer(10), racer(20))).await, Ok(10));
        assert_eq!(ended.load(Ordering::Relaxed), 3);
        assert!(begun.elapsed() < ms(13), "{:?}", begun.elapsed());
    });
}

#[test]
fn suspended_and_withdrawn() {
    Sim::new(1).explore(0..100, || async {
        let withdrawn = AtomicUsize::new(0);
        let (keep, kept) = std::sync::mpsc::channel();
        let waits = finish(async |s| {
            let waits = s.start(dapple::suspend(|resume| {
                keep.send(resume).unwrap();
                || _ = withdrawn.fetch_add(1, Ordering::Relaxed)
            }));
            sleep(ms(1)).await.unwrap();
            s.cancel();
            waits.await
        })
        .await;
        assert_eq!((waits, withdrawn.load(Ordering::Relaxed)), (Err::<u8, _>(Cancelled), 1));
        assert_eq!(kept.recv().unwrap().resume(1), Err(1));
    });
}
