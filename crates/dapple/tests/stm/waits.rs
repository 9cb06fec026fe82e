//! Tasks that are parked: which of them a commit wakes, and the memory of a task that goes away.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use dapple::stm::{TVar, atomically, try_atomically};
use dapple::time::{Duration, sleep, timeout};
use dapple::{Cancelled, finish, race};

use crate::common::in_virtual_time;

const STEP: Duration = Duration::from_millis(1);

/// Parks until the variable is not 0. Counts its runs.
async fn until_set(var: TVar<u32>, runs: Arc<AtomicUsize>) -> Result<u32, Cancelled> {
    atomically(|tx| {
        runs.fetch_add(1, Relaxed);
        let value = tx.read(&var)?;
        tx.check(value != 0)?;
        Ok(value)
    })
    .await
}

#[test]
fn a_commit_wakes_the_tasks_of_its_variable_and_no_other() {
    in_virtual_time(20, || {
        dapple::run(async {
            let runs = Arc::new(AtomicUsize::new(0));
            let vars: Vec<_> = (0..10).map(|_| TVar::new(0)).collect();
            let tasks: Vec<_> =
                (0..100).map(|n| dapple::spawn(until_set(vars[n % 10].clone(), runs.clone()))).collect();
            sleep(STEP).await.unwrap();
            assert_eq!(runs.load(Relaxed), 100);
            atomically(|tx| tx.write(&vars[3], 7)).await.unwrap();
            sleep(STEP).await.unwrap();
            assert_eq!(runs.load(Relaxed), 110, "ten were woken, each once");
            // Neither a read nor a transaction that was not committed wakes a task.
            atomically(|tx| tx.read(&vars[4])).await.unwrap();
            let undone = try_atomically(|tx| {
                tx.write(&vars[4], 1)?;
                tx.retry::<()>()
            });
            assert!(undone.is_err());
            sleep(STEP).await.unwrap();
            assert_eq!(runs.load(Relaxed), 110);
            for var in &vars {
                atomically(|tx| tx.write(var, 7)).await.unwrap();
            }
            for task in tasks {
                assert_eq!(task.await.unwrap(), Ok(7));
            }
            assert_eq!(runs.load(Relaxed), 200);
        });
    });
}

#[test]
fn what_was_cancelled_or_dropped_leaves_nothing_behind() {
    in_virtual_time(20, || {
        dapple::run(async {
            let (var, runs) = (TVar::new(0), Arc::new(AtomicUsize::new(0)));
            let held = Arc::new(());
            let waits = || {
                let held = held.clone();
                let wait = until_set(var.clone(), runs.clone());
                async move {
                    let result = wait.await;
                    drop(held);
                    result
                }
            };
            let late = timeout(STEP, waits()).await.unwrap_err();
            assert_eq!(late.into_inner(), Some(Err(Cancelled)));
            let first = race((waits(), async { sleep(STEP).await.map(|()| 0) })).await;
            assert_eq!(first, Ok(0));
            finish(async |s| {
                let child = s.start(waits());
                sleep(STEP).await.unwrap();
                s.cancel();
                assert_eq!(child.await, Err(Cancelled));
            })
            .await;
            let (cancelled, aborted) = (dapple::spawn(waits()), dapple::spawn(waits()));
            sleep(STEP).await.unwrap();
            cancelled.cancel();
            aborted.abort();
            assert_eq!(cancelled.await.unwrap(), Err(Cancelled));
            assert!(aborted.await.unwrap_err().is_aborted());
            assert_eq!(Arc::strong_count(&held), 1);
            let before = runs.load(Relaxed);
            atomically(|tx| tx.write(&var, 1)).await.unwrap();
            sleep(STEP).await.unwrap();
            assert_eq!(runs.load(Relaxed), before, "a task that is gone was run");
        });
    });
}

#[dapple::test]
async fn a_transaction_that_is_cancelled_before_it_begins_has_no_effect() {
    let var = TVar::new(0);
    let inside = var.clone();
    finish(async |s| {
        s.cancel();
        assert_eq!(atomically(|tx| tx.write(&inside, 1)).await, Err(Cancelled));
    })
    .await;
    assert_eq!(var.load(), 0);
}

#[dapple::test]
async fn a_change_back_wakes_and_the_task_sleeps_on() {
    let (var, runs) = (TVar::new(0), Arc::new(AtomicUsize::new(0)));
    let task = dapple::spawn(until_set(var.clone(), runs.clone()));
    sleep(STEP).await.unwrap();
    for _ in 0..3 {
        atomically(|tx| tx.write(&var, 0)).await.unwrap();
        sleep(STEP).await.unwrap();
    }
    assert_eq!(runs.load(Relaxed), 4);
    atomically(|tx| tx.write(&var, 1)).await.unwrap();
    assert_eq!(task.await.unwrap(), Ok(1));
}

/// A future that moves between polls, and is polled with another waker each time, by hand.
#[test]
fn the_last_waker_is_woken() {
    use std::task::{Context, Poll, Wake};
    #[derive(Default)]
    struct CountWakes(AtomicUsize);
    impl Wake for CountWakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let (var, other) = (TVar::new(0), TVar::new(0));
    let wakes: [Arc<CountWakes>; 2] = Default::default();
    let mut future = Some(Box::pin(atomically(|tx| {
        let sum = tx.read(&other)? + tx.read(&var)?;
        tx.check(sum > 0)
    })));
    for waker in &wakes {
        let waker = waker.clone().into();
        let mut moved = future.take().unwrap();
        assert!(moved.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        future = Some(moved);
    }
    try_atomically(|tx| {
        tx.write(&var, 1)?;
        tx.write(&other, 1)
    })
    .unwrap();
    let count = |at: usize| wakes[at].0.load(Relaxed);
    assert_eq!((count(0), count(1)), (0, 1), "once, and the last one");
    let waker = wakes[0].clone().into();
    assert_eq!(future.unwrap().as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(())));
    assert_eq!(
        (Arc::strong_count(&wakes[0]), Arc::strong_count(&wakes[1])),
        (2, 1),
        "no waker is left behind"
    );
}

#[dapple::test]
async fn a_task_whose_variable_has_no_other_handle_can_be_cancelled() {
    let outer = TVar::new(Some(TVar::new(0)));
    let task = dapple::spawn({
        let outer = outer.clone();
        atomically(move |tx| {
            let Some(inner) = tx.modify(&outer, Option::take)? else { return Ok(()) };
            let value = tx.read(&inner)?;
            tx.check(value > 0)
        })
    });
    sleep(STEP).await.unwrap();
    task.cancel();
    assert_eq!(task.await.unwrap(), Err(Cancelled));
}
