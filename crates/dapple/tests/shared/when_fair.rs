//! `when`: no watcher is kept from a state by others that watch it, however often it is written.

use std::pin::Pin;
use std::task::{Context, Waker};
use std::time::Duration;

use dapple::shared::when;
use dapple::sim;
use dapple::task::yield_now;
use dapple::time::sleep;
use dapple::{Shared, spawn};

const MS: Duration = Duration::from_millis(1);
const US: Duration = Duration::from_micros(1);

#[dapple::test(sim, seeds = 20, workers = 2)]
async fn one_behind_others_is_reached_however_often_the_state_is_written() {
    let state = Shared::new(0_u64);
    // Each look takes longer than the pause between two writes.
    let others: Vec<_> = (0..10)
        .map(|_| {
            let state = state.clone();
            spawn(async move {
                let never = |value: &mut u64| {
                    sim::work(10 * US);
                    (*value == u64::MAX).then_some(())
                };
                state.when(never).await
            })
        })
        .collect();
    sleep(MS).await.unwrap();
    let last = spawn({
        let state = state.clone();
        async move { state.when(|value: &mut u64| (*value > 0).then_some(())).await }
    });
    sleep(MS).await.unwrap();
    let writer = spawn(async move {
        let mut writes = 0;
        while !last.is_finished() {
            assert!(writes < 1_000, "it sleeps while its condition holds");
            state.write(|value| *value += 1).await.unwrap();
            writes += 1;
            sim::work(5 * US);
            yield_now().await;
        }
    });
    writer.await.unwrap();
    others.iter().for_each(|task| task.abort());
}

#[dapple::test(sim, seeds = 20)]
async fn one_that_is_forgotten_is_passed_over_beside_watchers_that_look() {
    let state = Shared::new(0_u64);
    let mut forgotten = state.when(|value: &mut u64| (*value > 0).then_some(()));
    assert!(Pin::new(&mut forgotten).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    let second = spawn({
        let state = state.clone();
        async move { state.when(|value: &mut u64| (*value > 0).then_some(())).await }
    });
    let reader = spawn({
        let state = state.clone();
        async move { when(state.reading(), |value| (*value == u64::MAX).then_some(())).await }
    });
    sleep(MS).await.unwrap();
    // The reader looks after each write, so that there are looks between any two alarms.
    let mut writes = 0;
    while !second.is_finished() {
        assert!(writes < 20, "it sleeps while its condition holds");
        state.write(|value| *value += 1).await.unwrap();
        writes += 1;
        sleep(MS).await.unwrap();
    }
    reader.abort();
}
