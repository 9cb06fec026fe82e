//! The budget of a poll: it bounds how long a task holds its worker, and never which branch of the task is polled.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};

use crate::budget_common::{BUDGET, Busy, Count, KINDS, never};
use crate::common::{foreign_block_on, watched};
use dapple::channel::{mpsc, watch};
use dapple::io::AsyncReadExt;
use dapple::sim::Sim;
use dapple::sync::{Mutex, Notify};
use dapple::task::yield_now;
use dapple::time::{Duration, sleep, timeout};
use dapple::{Cancelled, Color, Shared, finish, race, shield};
use futures_util::FutureExt;
use futures_util::future::{Either, select};

/// Simulations of one worker: beside a task that never gives way nothing else runs.
fn one_worker(seeds: u64, test: impl AsyncFn()) {
    Sim::new(0).workers(1).max_polls(200_000).explore(0..seeds, || test());
}

/// A future, and how often it was polled.
fn polls_of<F: Future>(future: F) -> (Arc<AtomicU64>, impl Future<Output = F::Output>) {
    let polls = Arc::new(AtomicU64::new(0));
    let counted = polls.clone();
    let polled = async move {
        let mut future = pin!(future);
        poll_fn(|cx| {
            counted.fetch_add(1, Relaxed);
            future.as_mut().poll(cx)
        })
        .await
    };
    (polls, polled)
}

#[test]
fn what_is_always_ready_gives_way_after_as_many_results_as_the_budget_has() {
    for (kind, busy) in KINDS {
        one_worker(20, async || {
            let results = Arc::new(AtomicUsize::new(0));
            let counted = results.clone();
            let mut busy = busy(Arc::new(move || counted.fetch_add(1, Relaxed) >= 10 * BUDGET));
            let first = poll_fn(move |cx| {
                let polled = busy.as_mut().poll(cx);
                Poll::Ready((polled.is_pending(), results.load(Relaxed)))
            });
            let (gave_way, got) = dapple::spawn(first).await.unwrap();
            assert!(gave_way, "{kind}: no end in one poll");
            // A lock that is taken once before counts, too.
            assert!((BUDGET - 1..=BUDGET).contains(&got), "{kind}: {got} results in one poll");
        });
    }
}

#[test]
fn a_limit_around_work_that_is_always_ready_fires() {
    for (kind, busy) in KINDS {
        one_worker(20, async || {
            let late = dapple::spawn(timeout(Duration::from_micros(20), busy(never()))).await.unwrap();
            assert!(late.is_err(), "{kind}");
        });
    }
}

#[test]
fn the_second_racer_wins_against_one_that_is_always_ready() {
    for (kind, busy) in KINDS {
        one_worker(20, async || {
            let slow = async {
                sleep(Duration::from_micros(20)).await.unwrap();
                2
            };
            let winner = race((busy(never()).map(|()| 1), slow)).await;
            assert_eq!(winner, 2, "{kind}");
        });
    }
}

#[test]
fn foreign_combinators_do_not_starve_their_last_branch_either() {
    for (kind, busy) in KINDS {
        one_worker(20, async || {
            let mut slow = Box::pin(sleep(Duration::from_micros(20)));
            assert!(matches!(select(busy(never()), &mut slow).await, Either::Right(_)), "{kind}");
            let (mut busy, mut slow) =
                (busy(never()).fuse(), Box::pin(sleep(Duration::from_micros(20)).fuse()));
            let which = futures_util::select_biased! { () = busy => 1, _ = slow => 2 };
            assert_eq!(which, 2, "{kind}");
        });
    }
}

#[test]
fn a_future_that_uses_up_every_poll_does_not_use_up_its_limit() {
    watched(|| {
        let rt = dapple::Runtime::builder().workers(1).build().unwrap();
        let endless = async {
            let mut byte = [0];
            while dapple::io::empty().read(&mut byte).await.is_ok() {}
        };
        assert!(rt.block_on(rt.spawn(timeout(Duration::from_millis(20), endless))).unwrap().is_err());
        // Outside of a task, too.
        let mutex = Mutex::new(0);
        let endless = async { while mutex.lock().await.is_ok() {} };
        assert!(rt.block_on(timeout(Duration::from_millis(20), endless)).is_err());
    });
}

/// Beside `busy` children and `body`, a child that is woken is polled, and soon.
fn a_woken_child_goes_on_beside(children: usize, busy: fn(Count) -> Busy, body: Option<fn(Count) -> Busy>) {
    one_worker(20, async || {
        let (stop, notify, progress) = (Arc::new(AtomicBool::new(false)), Notify::new(), AtomicUsize::new(0));
        let until: Count = {
            let stop = stop.clone();
            Arc::new(move || stop.load(Relaxed))
        };
        let scope = finish(async |s| {
            s.start(async {
                for _ in 0..10 {
                    notify.notified().await.unwrap();
                    progress.fetch_add(1, Relaxed);
                }
                stop.store(true, Relaxed);
            });
            for _ in 0..children {
                s.start(busy(until.clone()));
            }
            if let Some(body) = body {
                body(until.clone()).await;
            }
        });
        let (polls, scope) = polls_of(scope);
        let mut scope = pin!(scope);
        let since = Cell::new((0, 0));
        poll_fn(|cx| {
            let (polled, got) = (polls.load(Relaxed), progress.load(Relaxed));
            if since.get().0 != got {
                since.set((got, polled));
            }
            notify.notify_one();
            let bound = 4 + (children as u64).div_ceil(64);
            assert!(polled - since.get().1 <= bound, "{children}: not polled for {bound} polls of its task");
            scope.as_mut().poll(cx)
        })
        .await;
    });
}

#[test]
fn a_child_that_is_always_ready_does_not_starve_its_siblings() {
    for (_, busy) in KINDS {
        a_woken_child_goes_on_beside(1, busy, None);
    }
}

#[test]
fn a_body_that_is_always_ready_does_not_starve_its_children() {
    for (_, busy) in KINDS {
        a_woken_child_goes_on_beside(0, busy, Some(busy));
    }
}

#[test]
fn many_always_ready_children_starve_no_sibling() {
    a_woken_child_goes_on_beside(700, KINDS[0].1, Some(KINDS[2].1));
}

#[test]
fn many_yielding_children_starve_no_sibling() {
    a_woken_child_goes_on_beside(
        300,
        |count| {
            Box::pin(async move {
                while !count() {
                    yield_now().await
                }
            })
        },
        None,
    );
    // Nor do those that are woken starve those that yield: here all but a few are woken in each poll.
    one_worker(20, async || {
        let (stop, notify, yields) = (AtomicBool::new(false), Notify::new(), AtomicUsize::new(0));
        let (polls, scope) = polls_of(finish(async |s| {
            let (stop, notify, yields) = (&stop, &notify, &yields);
            for _ in 0..600 {
                s.start(async move {
                    while !stop.load(Relaxed) {
                        notify.notified().await.unwrap();
                    }
                });
            }
            s.start(async move {
                for _ in 0..10 {
                    yields.fetch_add(1, Relaxed);
                    yield_now().await;
                }
                stop.store(true, Relaxed);
            });
        }));
        let mut scope = pin!(scope);
        poll_fn(|cx| {
            notify.notify_waiters();
            cx.waker().wake_by_ref();
            assert!(polls.load(Relaxed) <= 4 + 3 * yields.load(Relaxed) as u64 || stop.load(Relaxed));
            scope.as_mut().poll(cx)
        })
        .await;
    });
}

#[test]
fn waits_that_are_dropped_are_no_results() {
    one_worker(20, async || {
        let (_sender, watched) = watch::channel(1);
        let (mutex, state) = (Mutex::new(1), Shared::new(1));
        let (sender, mut receiver) = mpsc::unbounded();
        let guard = mutex.lock().await.unwrap();
        let task = async {
            let mut cx = Context::from_waker(Waker::noop());
            let results = Cell::new(0);
            let mut endless = pin!(async {
                loop {
                    for _ in 0..300 {
                        drop(watched.clone());
                        assert!(pin!(mutex.lock()).poll(&mut cx).is_pending());
                        drop(state.read(|_| ()));
                    }
                    sender.try_send(1).unwrap();
                    receiver.recv().await.unwrap();
                    results.set(results.get() + 1);
                    assert!(results.get() <= BUDGET, "it never gives way");
                }
            });
            let is_pending = poll_fn(|cx| Poll::Ready(endless.as_mut().poll(cx).is_pending())).await;
            assert!(is_pending);
            results.get()
        };
        // Nor do they use it up.
        assert_eq!(poll_in_a_task(task).await, BUDGET);
        drop(guard);
    });
}

/// Lets a future be polled with a whole budget.
async fn poll_in_a_task<F: Future>(future: F) -> F::Output {
    yield_now().await;
    future.await
}

#[test]
fn a_loop_that_ignores_its_cancellation_yields() {
    one_worker(20, async || {
        let color = Color::new();
        let stop = Arc::new(AtomicBool::new(false));
        let seen = stop.clone();
        let stubborn = color.spawn(async move {
            let mut ignored = 0;
            while !seen.load(Relaxed) {
                assert!(ignored < 100 * BUDGET, "it never gives way");
                ignored += usize::from(sleep(Duration::from_secs(1)).await == Err(Cancelled));
            }
        });
        yield_now().await;
        stubborn.cancel();
        color.spawn(async move { stop.store(true, Relaxed) }).await.unwrap();
        stubborn.await.unwrap();
    });
}

#[test]
fn a_wait_that_was_put_off_and_then_cancelled_has_had_no_effect() {
    one_worker(20, async || {
        let (sender, mut receiver) = mpsc::unbounded();
        (0..=BUDGET).for_each(|n| sender.try_send(n).unwrap());
        let task = dapple::spawn(async move {
            let mut is_put_off = false;
            let got = poll_fn({
                let mut recv = Box::pin(async {
                    for _ in 0..BUDGET {
                        receiver.recv().await.unwrap();
                    }
                    receiver.recv().await
                });
                move |cx| {
                    let polled = recv.as_mut().poll(cx);
                    if polled.is_pending() && !std::mem::replace(&mut is_put_off, true) {
                        dapple::task::current().cancel();
                    }
                    polled
                }
            })
            .await;
            assert!(got.unwrap_err().is_cancelled());
            assert_eq!(receiver.try_recv().unwrap(), BUDGET);
        });
        task.await.unwrap();
    });
}

#[test]
fn a_shield_changes_nothing() {
    one_worker(20, async || {
        let busy = KINDS[0].1;
        let stop = Arc::new(AtomicBool::new(false));
        let until = stop.clone();
        finish(async |s| {
            s.start(async {
                sleep(Duration::from_micros(20)).await.unwrap();
                stop.store(true, Relaxed);
            });
            shield(busy(Arc::new(move || until.load(Relaxed)))).await;
        })
        .await;
    });
}

#[test]
fn a_task_that_blocks_in_its_poll_goes_on() {
    watched(|| {
        let rt = dapple::Runtime::builder().workers(1).build().unwrap();
        rt.block_on(rt.spawn(async {
            // A foreign executor inside of the task, which parks when a wait gives way.
            let (sender, mut receiver) = mpsc::unbounded();
            let (mutex, state) = (Mutex::new(0), Shared::new(0));
            for n in 0..10 * BUDGET {
                sender.try_send(n).unwrap();
                assert_eq!(foreign_block_on(receiver.recv()).unwrap(), n);
                *foreign_block_on(mutex.lock()).unwrap() += 1;
                foreign_block_on(state.write(|sum| *sum += 1)).unwrap();
            }
            // By asking again and again, with a new wait each time.
            for n in 0..10 * BUDGET {
                sender.try_send(n).unwrap();
                while receiver.recv().now_or_never() != Some(Ok(n)) {}
            }
        }))
        .unwrap();
    });
}
