//! Traces: which virtual worker ran which task, and when. The same seed gives the same text.

use std::sync::Arc;

use dapple::channel::{mpsc, oneshot, watch};
use dapple::sim::{self, Sim};
use dapple::sync::{Mutex, Notify, Semaphore};
use dapple::task::{Builder, yield_now};
use dapple::time::{Duration, interval, sleep};
use dapple::{Color, ColorCell, JoinHandle};
use futures_lite::future;

use crate::{join, micros};

async fn short() {
    let color = Color::new();
    let sum = Arc::new(ColorCell::in_color(&color, 0));
    let adders = (1..=4).map(|i| {
        let (color, sum) = (color.clone(), sum.clone());
        Builder::new().name(format!("adder {i}")).spawn(async move {
            sim::work(micros(10 * i));
            color.call(move || sum.with(|sum| *sum += i)).await.expect("it adds");
        })
    });
    let nap = Builder::new().name("nap").spawn(async { sleep(Duration::from_millis(1)).await });
    join(adders.collect::<Vec<_>>()).await;
    let sum = color.call(move || sum.with(|sum| *sum)).await;
    assert_eq!(sum.expect("it looks"), 10);
    assert_eq!(nap.await.expect("it sleeps"), Ok(()));
}

/// A bit of everything whose order could depend on more than on the seed.
async fn long() {
    let (sender, mut receiver) = mpsc::bounded::<u64>(3);
    for i in 0..8 {
        let sender = sender.clone();
        dapple::spawn(async move {
            for j in 0..5 {
                sim::work(Duration::from_nanos(sim::random() % 3_000));
                sender.send(i * 10 + j).await.expect("somebody receives");
            }
        })
        .detach();
    }
    drop(sender);

    // Colors by key, and blocking calls, which are on threads of their own.
    let counts: Vec<JoinHandle<u64>> = (0..40_u64)
        .map(|i| match i % 4 {
            0 => dapple::blocking(move || {
                sim::work(micros(i));
                i
            }),
            _ => Color::keyed(&(i % 7)).spawn(async move {
                sim::work(micros(i % 5));
                yield_now().await;
                i
            }),
        })
        .collect();

    // Waiting for one of two things, of which the other is dropped.
    let mut waiters = Vec::new();
    let (mutex, gate) = (Arc::new(Mutex::new(0)), Arc::new(Semaphore::new(2)));
    for i in 0..10 {
        let (mutex, gate) = (mutex.clone(), gate.clone());
        waiters.push(dapple::spawn(async move {
            let _permit = gate.acquire().await.expect("it is open");
            let in_time = async {
                *mutex.lock().await.expect("nobody cancels it") += 1;
                sleep(micros(300 * i)).await.is_ok()
            };
            let too_late = async { sleep(micros(1_500)).await.is_err() };
            future::or(in_time, too_late).await
        }));
    }

    // A task that stays on this thread.
    let (news, mut seen) = watch::channel(0);
    let local = dapple::spawn_local(async move {
        let mut last = 0;
        while seen.changed().await.is_ok() {
            last = *seen.borrow_and_update();
        }
        last
    });
    let mut ticks = interval(micros(400));
    for i in 1..=5 {
        ticks.tick().await.expect("nobody cancels it");
        news.send(i).expect("somebody looks");
    }
    drop(news);
    assert_eq!(local.await.expect("it ends with the news"), 5);

    // One is cancelled, one is dropped; both tell.
    let (told, telling) = oneshot::channel();
    let cancelled = dapple::spawn(async move {
        let was_cancelled = sleep(Duration::from_secs(1)).await.is_err();
        told.send(was_cancelled).expect("somebody listens");
    });
    yield_now().await;
    cancelled.cancel();
    assert_eq!(telling.await, Ok(true));
    let mut got = 0;
    while let Ok(value) = receiver.recv().await {
        got += value;
    }
    assert_eq!(got, (0..8).map(|i| i * 50 + 10).sum());
    assert_eq!(join(counts).await.iter().sum::<u64>(), (0..40).sum());
    join(waiters).await;

    // These wait for an event that never comes: they are cancelled at the end of the run, and do some last work then.
    let never = Arc::new(Notify::new());
    for i in 0..20_u64 {
        let never = never.clone();
        dapple::spawn(async move {
            let _ = future::or(async { never.notified().await.is_err() }, async {
                sleep(Duration::from_secs(i + 1)).await.is_err()
            })
            .await;
            sim::work(micros(i));
            yield_now().await;
        })
        .detach();
    }
    yield_now().await;
}

pub(crate) fn trace(seed: u64, is_long: bool) {
    let sim = Sim::new(seed);
    let ((), trace) =
        if is_long { sim.workers(6).run_traced(long()) } else { sim.workers(2).run_traced(short()) };
    print!("{trace}");
}
