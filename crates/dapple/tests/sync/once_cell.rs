//! `OnceCell`: one initialiser at a time, and another one if it fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use dapple::sync::OnceCell;
use dapple::time::{sleep, timeout};
use dapple::{Cancelled, spawn};

const MS: Duration = Duration::from_millis(1);

#[dapple::test(sim, seeds = 30, workers = 2)]
async fn of_many_callers_one_runs_its_initialiser() {
    let (cell, ran) = (Arc::new(OnceCell::new()), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..20)
        .map(|number| {
            let (cell, ran) = (cell.clone(), ran.clone());
            spawn(async move {
                let init = || async {
                    ran.fetch_add(1, Relaxed);
                    sleep(MS).await.unwrap();
                    number
                };
                *cell.get_or_init(init).await.unwrap()
            })
        })
        .collect();
    let mut values = Vec::new();
    for task in tasks {
        values.push(task.await.unwrap());
    }
    values.dedup();
    assert_eq!((values.len(), ran.load(Relaxed)), (1, 1));
}

#[dapple::test(sim, seeds = 30)]
async fn after_a_failure_a_panic_or_a_cancel_the_next_tries() {
    let cell = Arc::new(OnceCell::new());
    let fails = cell.get_or_try_init(|| async { Err::<u32, Cancelled>(Cancelled) });
    assert_eq!(fails.await, Err(Cancelled));
    let panics = spawn({
        let cell = cell.clone();
        async move { cell.get_or_init(|| async { panic!("inside") }).await.copied() }
    });
    assert!(panics.await.unwrap_err().is_panic());
    let slow = || async {
        sleep(MS * 10).await?;
        Ok::<_, Cancelled>(1)
    };
    let late = timeout(MS, cell.get_or_try_init(slow)).await.unwrap_err();
    assert_eq!(late.into_inner(), Some(Err(Cancelled)));
    // One that is dropped in the midst of it.
    let mut dropped = Box::pin(cell.get_or_try_init(slow));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(dropped.as_mut().poll(&mut cx).is_pending());
    let refused = cell.set(3).unwrap_err();
    assert!(!refused.is_set(), "an initialiser runs");
    let waits = spawn({
        let cell = cell.clone();
        async move { cell.get_or_init(|| async { 2 }).await.copied() }
    });
    sleep(MS).await.unwrap();
    drop(dropped);
    assert_eq!(waits.await.unwrap(), Ok(2));
    let refused = cell.set(3).unwrap_err();
    assert!(refused.is_set());
    assert_eq!((refused.into_inner(), cell.get()), (3, Some(&2)));
}

#[dapple::test]
async fn a_value_that_is_set_is_there() {
    let cell = OnceCell::new();
    cell.set("set").unwrap();
    assert_eq!(cell.get_or_init(|| async { "late" }).await, Ok(&"set"));
    let other = cell.clone();
    assert_eq!(other, cell);
    assert_ne!(other, OnceCell::new());
    assert_eq!(OnceCell::from(1).into_inner(), Some(1));
    assert_eq!(OnceCell::<u8>::default().into_inner(), None);
}

#[dapple::test(sim, seeds = 100, workers = 3)]
async fn one_runs_at_a_time_however_those_before_it_have_ended() {
    let cell = Arc::new(OnceCell::new());
    let (inside, ran) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let tasks: Vec<_> = (0..12_u32)
        .map(|number| {
            let (cell, inside, ran) = (cell.clone(), inside.clone(), ran.clone());
            spawn(async move {
                let init = async || {
                    assert_eq!(inside.fetch_add(1, Relaxed), 0, "two run");
                    let _leaves = Leaves(&inside);
                    sleep(MS).await?;
                    match number % 4 {
                        0 => std::panic::resume_unwind(Box::new("inside")),
                        1 => Err(Cancelled),
                        _ => {
                            ran.fetch_add(1, Relaxed);
                            Ok(number)
                        }
                    }
                };
                match number % 4 {
                    2 if number < 8 => {
                        let late = timeout(MS / 2 * number, cell.get_or_try_init(init)).await;
                        late.ok().and_then(Result::ok).copied()
                    }
                    _ => cell.get_or_try_init(init).await.ok().copied(),
                }
            })
        })
        .collect();
    for (number, task) in tasks.iter().enumerate().filter(|(number, _)| number % 5 == 3) {
        sleep(MS / 3 * number as u32).await.unwrap();
        task.abort();
    }
    let mut values = Vec::new();
    for task in tasks {
        values.extend(task.await.ok().flatten()); // others have panicked, or were aborted
    }
    values.dedup();
    assert_eq!((values.len(), ran.load(Relaxed), inside.load(Relaxed)), (1, 1, 0));
    assert_eq!(cell.get(), values.first());
}

struct Leaves<'a>(&'a AtomicUsize);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

#[dapple::test(sim, seeds = 10)]
async fn an_initialiser_that_waits_for_its_own_cell_can_be_cancelled() {
    let cell = OnceCell::new();
    let inner = || async { cell.get_or_try_init(|| async { Ok::<_, Cancelled>(1) }).await.copied() };
    let late = timeout(MS, cell.get_or_try_init(inner)).await.unwrap_err();
    assert_eq!(late.into_inner(), Some(Err(Cancelled)));
    assert_eq!(cell.get_or_init(|| async { 2 }).await, Ok(&2));
}
