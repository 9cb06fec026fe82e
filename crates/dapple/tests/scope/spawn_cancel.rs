//! After a cancel has returned, no wait succeeds that begins later in a task that was spawned in the scope.
//!
//! It does not matter where the task runs, how deep it is nested, or which scope or task around it was cancelled. Each
//! test keeps a [`Mark`] for the cancel: set when the cancel has returned, looked at before each wait.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::{runtime, watched};
use dapple::channel::oneshot;
use dapple::sim::{self, Sim};
use dapple::sync::Semaphore;
use dapple::task::yield_now;
use dapple::time::{sleep, timeout};
use dapple::{finish, finish_local, shield};
use futures_lite::future::poll_once;

/// Whether the cancel has returned, and how many waits succeeded that began later.
#[derive(Clone, Default)]
struct Mark(Arc<(AtomicBool, AtomicUsize, AtomicUsize)>);

impl Mark {
    /// To be called after a cancel.
    fn set(&self) {
        self.0.0.store(true, SeqCst);
    }

    /// Waits again and again, until it is cancelled: for a permit that is free at once, on any worker, and for time.
    async fn waits(self) {
        let permits = Semaphore::new(1);
        for round in 0.. {
            let begun_late = self.0.0.load(SeqCst);
            let waited = match round % 8 {
                0 => sleep(Duration::from_millis(1)).await.is_ok(),
                _ => permits.acquire().await.is_ok(),
            };
            if !waited {
                return;
            }
            let count = if begun_late { &self.0.1 } else { &self.0.2 };
            count.fetch_add(1, SeqCst);
            sim::work(Duration::from_micros(100));
            yield_now().await;
        }
    }

    #[track_caller]
    fn check(&self) {
        assert!(self.0.0.load(SeqCst));
        assert_eq!(self.0.1.load(SeqCst), 0, "waits that began after the cancel have succeeded");
        assert!(self.0.2.load(SeqCst) > 0, "there were waits before");
    }
}

const SEEDS: u64 = 30;

/// The task that cancels goes on for a while, so that others run before any scope is polled again.
fn go_on() {
    sim::work(Duration::from_millis(50));
}

async fn a_while() {
    shield(sleep(Duration::from_millis(20))).await.unwrap();
}

fn explore<F: Future<Output = ()> + Send>(test: impl Fn(Mark) -> F) {
    Sim::new(1).workers(3).explore(0..SEEDS, || {
        let mark = Mark::default();
        let test = test(mark.clone());
        async move {
            test.await;
            mark.check();
        }
    });
}

#[test]
fn scope_cancel_in_the_body() {
    explore(|mark| async move {
        finish(async |scope| {
            scope.spawn(mark.clone().waits()).detach();
            a_while().await;
            scope.cancel();
            mark.set();
            go_on();
        })
        .await;
    });
}

#[test]
fn the_same_in_a_local_scope() {
    Sim::new(1).workers(3).explore(0..SEEDS, || async {
        let mark = Mark::default();
        finish_local(async |scope| {
            scope.spawn(mark.clone().waits()).detach();
            a_while().await;
            scope.cancel();
            mark.set();
            go_on();
        })
        .await;
        mark.check();
    });
}

#[test]
fn canceller_in_another_task() {
    explore(|mark| async move {
        finish(async |scope| {
            scope.spawn(mark.clone().waits()).detach();
            let canceller = scope.canceller();
            let cancels = dapple::spawn(async move {
                a_while().await;
                canceller.cancel();
                mark.set();
                go_on();
            });
            let _ = shield(cancels).await;
        })
        .await;
    });
}

#[test]
fn cancel_of_an_outer_scope() {
    explore(|mark| async move {
        finish(async |outer| {
            drop(outer.start(finish(async |_| {
                finish(async |inner| inner.spawn(mark.clone().waits()).detach()).await;
            })));
            a_while().await;
            outer.cancel();
            mark.set();
            go_on();
        })
        .await;
    });
}

#[test]
fn cancel_of_the_parent_task() {
    explore(|mark| async move {
        let spawned = mark.clone();
        let parent = dapple::spawn(finish(async |scope| {
            scope.spawn(spawned.waits()).detach();
            shield(sleep(Duration::from_millis(10))).await.unwrap();
            go_on(); // so that it is not polled when it is cancelled
        }));
        a_while().await;
        parent.cancel();
        mark.set();
        go_on();
        parent.await.unwrap();
    });
}

#[test]
fn timeout_around_the_scope() {
    explore(|mark| async move {
        let limit = timeout(Duration::from_millis(20), async {
            finish(async |outer| {
                let first = outer.start(async {
                    assert!(sleep(Duration::MAX).await.is_err());
                    mark.set(); // this child is cancelled before the scope beside it is polled
                    go_on();
                });
                drop(first);
                drop(outer.start(finish(async |scope| scope.spawn(mark.clone().waits()).detach())));
            })
            .await;
        });
        assert!(limit.await.is_err());
    });
}

/// A scope in a task that was spawned in a scope, and so on: three levels.
#[test]
fn tasks_spawned_by_tasks_spawned() {
    explore(|mark| async move {
        finish(async |outer| {
            let first = mark.clone();
            outer
                .spawn(finish(async move |middle| {
                    let second = first.clone();
                    middle
                        .spawn(async move {
                            let third = second.clone();
                            let inner = finish(async move |inner| inner.spawn(third.waits()).detach());
                            timeout(Duration::from_secs(1000), inner).await.unwrap();
                        })
                        .detach();
                    drop(middle.start(first.waits()));
                }))
                .detach();
            a_while().await;
            outer.cancel();
            mark.set();
            go_on();
        })
        .await;
    });
}

/// On real workers, where the task runs as soon as it is spawned.
#[test]
fn a_task_spawned_in_a_cancelled_scope_is_born_cancelled() {
    watched(|| {
        let acquired = Arc::new(AtomicUsize::new(0));
        runtime(2).block_on(async {
            for round in 0..20_000 {
                let (permits, acquired) = (Semaphore::new(1), acquired.clone());
                let task = async move {
                    if permits.acquire().await.is_ok() {
                        acquired.fetch_add(1, SeqCst);
                    }
                };
                finish(async |outer| {
                    outer.cancel();
                    match round % 2 {
                        0 => outer.spawn(task).detach(),
                        _ => finish(async |inner| inner.spawn(task).detach()).await,
                    }
                })
                .await;
            }
        });
        assert_eq!(acquired.load(SeqCst), 0, "of 20,000");
    });
}

#[test]
fn a_shield_protects_in_the_task_and_around_a_scope_in_it() {
    Sim::new(1).workers(3).explore(0..SEEDS, || async {
        let succeeded = Arc::new(AtomicUsize::new(0));
        finish(async |scope| {
            for _ in 0..2 {
                let succeeded = succeeded.clone();
                let sleeps = async move || {
                    for _ in 0..10 {
                        sleep(Duration::from_millis(10)).await.unwrap();
                        succeeded.fetch_add(1, SeqCst);
                    }
                };
                let in_task = sleeps.clone();
                scope.spawn(async move { shield(in_task()).await }).detach();
                let inner = finish(async move |inner| inner.spawn(async move { sleeps().await }).detach());
                scope.spawn(async move { shield(inner).await }).detach();
            }
            a_while().await;
            scope.cancel();
        })
        .await;
        assert_eq!(succeeded.load(SeqCst), 40);
    });
}

#[test]
fn tasks_of_a_scope_that_is_dropped_are_cancelled_and_go_on() {
    explore(|mark| async move {
        let (ended, has_ended) = oneshot::channel();
        let (waits, spawned) = (mark.clone(), mark.clone());
        let mut scope = Box::pin(finish(async |scope| {
            let task = async move {
                finish(async move |inner| {
                    inner.spawn(spawned.waits()).detach();
                    shield(sleep(Duration::from_millis(10))).await.unwrap();
                    go_on(); // so that it is not polled when its scope is dropped
                })
                .await;
                ended.send(()).unwrap();
            };
            scope.spawn(task).detach();
        }));
        assert!(poll_fn(|cx| Poll::Ready(scope.as_mut().poll(cx))).await.is_pending());
        a_while().await;
        drop(scope);
        waits.set();
        go_on();
        has_ended.await.unwrap();
    });
}

/// A scope is cancelled with the task that polls it, not with a task that once polled it.
#[test]
fn a_moved_scope_follows_its_new_surroundings() {
    Sim::new(1).workers(3).explore(0..SEEDS, || async {
        let (mark, of_old) = (Mark::default(), Mark::default());
        let spawned = [mark.clone(), of_old.clone()];
        let scope = finish(async move |scope| spawned.map(|mark| scope.spawn(mark.waits()).detach()));
        let scope = Arc::new(Mutex::new(Box::pin(async move { _ = scope.await })));
        let poll_it = |scope: Arc<Mutex<Pin<Box<_>>>>| poll_fn(move |cx| poll(&scope, cx));
        // First it is polled in a scope of another task, where it stays no longer.
        let (first, (canceller, old)) = (scope.clone(), oneshot::channel());
        let first = dapple::spawn(finish(async move |old| {
            assert!(poll_once(poll_it(first)).await.is_none());
            let _ = canceller.send(old.canceller());
            assert!(sleep(Duration::MAX).await.is_err());
        }));
        let old = old.await.unwrap();
        finish(async |new| {
            drop(new.start(poll_it(scope.clone())));
            old.cancel();
            first.await.unwrap();
            of_old.set();
            a_while().await;
            assert!(of_old.0.1.load(SeqCst) > 0, "it is not in that scope any more");
            new.cancel();
            mark.set();
            go_on();
        })
        .await;
        mark.check();
    });
}

fn poll<F: Future + ?Sized>(future: &Mutex<Pin<Box<F>>>, cx: &mut Context<'_>) -> Poll<F::Output> {
    future.lock().unwrap().as_mut().poll(cx)
}

/// A task that was spawned wakes a child of its scope, on the thread that polls the scope otherwise.
#[test]
fn a_child_woken_by_a_spawned_task_is_polled() {
    for workers in 1..3 {
        Sim::new(1).workers(workers).explore(0..SEEDS, || async {
            finish(async |scope| {
                for _ in 0..5 {
                    let (sender, receiver) = oneshot::channel();
                    let (answers, answer) = oneshot::channel();
                    let child = scope.start(async { answers.send(receiver.await.unwrap() + 1) });
                    let task = scope.spawn(async move {
                        sender.send(7).unwrap();
                        answer.await // it does not end before, which would wake the scope
                    });
                    child.await.unwrap();
                    assert_eq!(task.await.unwrap(), Ok(8));
                }
            })
            .await;
        });
    }
}
