//! `when`: no watcher is kept from a state by others that watch it, however often it is written.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use dapple::shared::when;
use dapple::sim::{self, Sim};
use dapple::task::yield_now;
use dapple::time::sleep;
use dapple::{Cancelled, Shared, spawn};

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

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicUsize);

impl std::task::Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Relaxed);
    }
}

type Watcher = Pin<Box<dyn Future<Output = Result<(), Cancelled>>>>;

fn poll(watcher: &mut Watcher, waker: &Waker) -> Poll<Result<(), Cancelled>> {
    watcher.as_mut().poll(&mut Context::from_waker(waker))
}

/// Simulations enter states in the order of their numbers, not of their addresses.
#[test]
fn one_that_has_slept_in_a_simulation_leaves_its_own_places_outside() {
    let (states, pairs, singles) = Sim::new(1).run(async {
        // So that the numbers and the addresses are in different orders.
        drop((0..6).map(|_| Shared::new(0)).collect::<Vec<_>>());
        let states: Vec<_> = (0..6).map(|_| Shared::new(0)).collect();
        let mut pairs: Vec<Watcher> = Vec::new();
        for (a, other) in (0..6).flat_map(|a| (0..6).map(move |b| (a, b))) {
            if a != other {
                let (a, b) = (states[a].clone(), states[other].clone());
                pairs.push(Box::pin(async move {
                    when((a.writing(), b.writing()), |(a, b)| (*a + *b > 9).then_some(())).await
                }));
            }
        }
        pairs.iter_mut().for_each(|pair| assert!(poll(pair, Waker::noop()).is_pending()));
        let mut singles: Vec<(Watcher, Arc<Count>)> = Vec::new();
        for state in &states {
            let (state, count) = (state.clone(), Arc::new(Count::default()));
            let mut single: Watcher =
                Box::pin(async move { state.when(|value: &mut u32| (*value > 0).then_some(())).await });
            assert!(poll(&mut single, &Waker::from(count.clone())).is_pending());
            singles.push((single, count));
        }
        (states, pairs, singles)
    });
    drop(pairs);
    for (state, (mut single, count)) in states.iter().zip(singles) {
        state.try_write(|value| *value = 1).unwrap();
        assert_eq!(count.0.load(Relaxed), 1, "another watcher took its place with it");
        assert_eq!(poll(&mut single, Waker::noop()), Poll::Ready(Ok(())));
    }
}
