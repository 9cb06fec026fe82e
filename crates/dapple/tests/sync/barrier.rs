//! `Barrier`: rounds, leaders, and waiters that leave.

use std::sync::Arc;
use std::time::Duration;

use dapple::sync::Barrier;
use dapple::time::{sleep, timeout};
use dapple::{Cancelled, spawn};

const MS: Duration = Duration::from_millis(1);

#[dapple::test(sim, seeds = 30, workers = 2)]
async fn each_round_ends_when_all_have_come_and_has_one_leader() {
    const SIZE: usize = 20;
    let barrier = Arc::new(Barrier::new(SIZE));
    let tasks: Vec<_> = (0..SIZE)
        .map(|_| {
            let barrier = barrier.clone();
            spawn(async move {
                let mut led = Vec::new();
                for _ in 0..5 {
                    led.push(barrier.wait().await.unwrap().is_leader());
                }
                led
            })
        })
        .collect();
    let mut leaders = [0; 5];
    for task in tasks {
        for (round, led) in task.await.unwrap().into_iter().enumerate() {
            leaders[round] += usize::from(led);
        }
    }
    assert_eq!(leaders, [1; 5]);
}

#[dapple::test(sim, seeds = 20)]
async fn one_that_leaves_does_not_count() {
    let barrier = Arc::new(Barrier::new(2));
    let late = timeout(MS, barrier.wait()).await.unwrap_err();
    assert_eq!(late.into_inner(), Some(Err(Cancelled)));
    let waits = spawn({
        let barrier = barrier.clone();
        async move { barrier.wait().await.unwrap().is_leader() }
    });
    sleep(MS).await.unwrap();
    assert!(!waits.is_finished(), "the one that left was counted");
    assert!(barrier.wait().await.unwrap().is_leader(), "the last one leads");
    assert!(!waits.await.unwrap());
}

#[dapple::test]
async fn a_barrier_of_none_or_one_is_passed_at_once() {
    for size in [0, 1] {
        let barrier = Barrier::new(size);
        for _ in 0..3 {
            assert!(barrier.wait().await.unwrap().is_leader());
        }
    }
}
