//! Timers, for Miri: fired, moved, cancelled, dropped, and at the end of their runtime.

use std::future::{pending, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::common::{Drops, Event, foreign_block_on, runtime};
use dapple::task::{self, yield_now, yield_to};
use dapple::time::{Duration, Instant, Sleep, interval, sleep};
use dapple::{Cancelled, JoinHandle};

struct Relay(Waker);

impl std::task::Wake for Relay {
    fn wake(self: Arc<Self>) {
        self.0.wake_by_ref();
    }
}

async fn task_waker() -> Waker {
    poll_fn(|cx| Poll::Ready(cx.waker().clone())).await
}

const SHORT: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3600);

/// Polls once.
fn poll_with(waker: &Waker, sleep: &mut Sleep) -> Poll<Result<(), Cancelled>> {
    Pin::new(sleep).poll(&mut Context::from_waker(waker))
}

/// A waker, and the relay that all its clones share.
fn foreign_waker() -> (Arc<Relay>, Waker) {
    let relay = Arc::new(Relay(Waker::noop().clone()));
    (relay.clone(), Waker::from(relay))
}

/// The number of clones of the waker outside the test.
fn used(relay: &Arc<Relay>) -> usize {
    Arc::strong_count(relay) - 2
}

#[test]
fn timers_that_fire_are_moved_cancelled_and_dropped() {
    let rt = runtime(2);
    let tasks: [JoinHandle<bool>; 5] = [
        rt.spawn(async { sleep(SHORT).await.is_ok() && sleep(Duration::ZERO).await.is_ok() }),
        rt.spawn(async {
            let mut every = interval(SHORT);
            for _ in 0..3 {
                every.tick().await.unwrap();
            }
            true
        }),
        rt.spawn(async {
            let (mut sleep, (relay, waker)) = (sleep(LONG), foreign_waker());
            assert!(poll_with(&waker, &mut sleep).is_pending());
            sleep.reset(Instant::now() + SHORT); // takes the waker out
            assert_eq!(used(&relay), 0);
            sleep.await.is_ok()
        }),
        rt.spawn(async {
            let (mut sleep, (relay, waker)) = (sleep(LONG), foreign_waker());
            assert!(poll_with(&waker, &mut sleep).is_pending());
            assert!(poll_with(&task_waker().await, &mut sleep).is_pending()); // another takes its place
            assert_eq!(used(&relay), 0);
            assert!(poll_with(&waker, &mut sleep).is_pending());
            thread::spawn(move || drop(sleep)).join().unwrap();
            used(&relay) == 0
        }),
        rt.spawn(async { sleep(LONG).await == Err(Cancelled) }),
    ];
    tasks[4].cancel();
    for task in tasks {
        assert!(rt.block_on(task).unwrap());
    }
    let aborted = rt.spawn(sleep(LONG));
    aborted.abort();
    assert!(rt.block_on(aborted).is_err());
    assert!(rt.block_on(sleep(SHORT)).is_ok());
}

#[test]
fn many_timers_whose_memory_is_given_back() {
    let rt = runtime(1);
    let task = rt.spawn(async {
        let (own, (relay, waker)) = (task_waker().await, foreign_waker());
        // More than a wheel keeps room for.
        let count = if cfg!(miri) { 40 } else { 1100 };
        let mut many: Vec<_> = (0..count).map(|n| sleep(LONG + SHORT * n)).collect();
        assert!(many.iter_mut().all(|sleep| poll_with(&own, sleep).is_pending()));
        let mut first = many.swap_remove(0);
        first.reset(Instant::now() + 50 * SHORT);
        assert!(poll_with(&waker, &mut first).is_pending());
        drop(many);
        sleep(60 * SHORT).await.unwrap(); // it is empty now, and its memory gone
        let mut others: Vec<_> = (0..3).map(|_| sleep(LONG)).collect();
        assert!(others.iter_mut().all(|sleep| poll_with(&waker, sleep).is_pending()));
        assert!(poll_with(&waker, &mut first).is_ready(), "its place belongs to another");
        drop((first, others));
        used(&relay)
    });
    assert_eq!(rt.block_on(task).unwrap(), 0);
}

#[test]
fn timers_at_the_end_of_their_runtime_and_after_it() {
    let (first, drops) = (runtime(2), Drops::default());
    let (relay, waker) = foreign_waker();
    let mut sleeps: Vec<_> = (0..4).map(|_| sleep(2 * SHORT)).collect();
    sleeps.iter_mut().for_each(|sleep| sleep.reset(Instant::now() + LONG));
    first.block_on(async { assert!(sleeps.iter_mut().all(|sleep| poll_with(&waker, sleep).is_pending())) });
    assert_eq!(used(&relay), 8, "in the wheel, and to be told of a cancel");
    let (begun, guard) = (Event::default(), drops.guard());
    let waits = first.spawn(crate::common::telling(begun.clone(), async move {
        let _kept = guard;
        sleep(LONG).await
    }));
    begun.wait();
    drop(first);
    assert!(foreign_block_on(waits).unwrap_err().is_gone());
    assert_eq!((drops.count(), used(&relay)), (1, 4), "out of the wheel");
    // The next runtime reuses the memory that the first left behind. Timers of the first are unknown there.
    let second = runtime(2);
    second.block_on(async {
        let mut new = sleep(LONG);
        assert!(poll_with(&waker, &mut new).is_pending());
        drop(sleeps.pop());
        sleeps[0].reset(Instant::now() + SHORT);
        assert!((&mut sleeps[0]).await.is_ok());
        assert!(poll_with(&waker, &mut sleeps[1]).is_pending(), "it goes on here");
        assert_eq!(used(&relay), 5);
        sleeps.push(new);
    });
    drop(second);
    assert_eq!(used(&relay), 3);
    drop(sleeps);
    assert_eq!(used(&relay), 0);
}

#[test]
fn waits_behind_a_foreign_waker_and_hand_offs() {
    let rt = runtime(2);
    let never = rt.spawn(pending::<()>());
    let begun = Event::default();
    let begin = begun.clone();
    let waiter = rt.spawn(async move {
        let mut never = Box::pin(never);
        let waker = Waker::from(Arc::new(Relay(task_waker().await)));
        poll_fn(|_| {
            let polled = never.as_mut().poll(&mut std::task::Context::from_waker(&waker));
            begin.set();
            polled
        })
        .await
    });
    begun.wait();
    waiter.cancel();
    assert!(rt.block_on(waiter).unwrap().unwrap_err().is_cancelled());
    let other = rt.spawn(yield_now());
    rt.block_on(rt.spawn(async move {
        yield_to(&other).await;
        yield_to(&task::current()).await;
        other.await.unwrap();
    }))
    .unwrap();
}
