//! `Barrier`: rounds, leaders, and waiters that leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use dapple::sync::{Barrier, BarrierPass};
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

#[dapple::test(sim, seeds = 100, workers = 3)]
async fn rounds_end_beside_waiters_that_leave_in_the_midst_of_them() {
    const SIZE: usize = 3;
    let barrier = Arc::new(Barrier::new(SIZE));
    let (passed, led) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = |passed: &AtomicUsize, led: &AtomicUsize, pass: BarrierPass| {
        passed.fetch_add(1, SeqCst);
        led.fetch_add(usize::from(pass.is_leader()), SeqCst);
    };
    let stay: Vec<_> = (0..SIZE)
        .map(|_| {
            let (barrier, passed, led) = (barrier.clone(), passed.clone(), led.clone());
            spawn(async move {
                for _ in 0..10 {
                    count(&passed, &led, barrier.wait().await.unwrap());
                }
            })
        })
        .collect();
    let leave: Vec<_> = (1..4_u32)
        .map(|number| {
            let (barrier, passed, led) = (barrier.clone(), passed.clone(), led.clone());
            spawn(async move {
                for round in 0..10 {
                    let late = timeout(Duration::from_nanos(700) * number, barrier.wait());
                    match late.await {
                        Ok(pass) => count(&passed, &led, pass.unwrap()),
                        Err(late) => match late.into_inner() {
                            Some(Ok(pass)) => count(&passed, &led, pass),
                            other => assert_eq!(other, Some(Err(Cancelled))),
                        },
                    }
                    sleep(Duration::from_nanos(300) * round).await.unwrap();
                }
            })
        })
        .collect();
    for task in leave {
        task.await.unwrap();
    }
    // Those that stay may be too few for their last rounds: others come until they are done.
    let mut rounds = 0;
    while !stay.iter().all(|task| task.is_finished()) {
        assert!(rounds < 100, "a round does not end");
        rounds += 1;
        match timeout(MS, barrier.wait()).await {
            Ok(pass) => count(&passed, &led, pass.unwrap()),
            Err(late) => assert_eq!(late.into_inner(), Some(Err(Cancelled))),
        }
    }
    for task in stay {
        task.await.unwrap();
    }
    assert_eq!(passed.load(SeqCst), SIZE * led.load(SeqCst), "one leader for each round of three");
}
