//! Virtual time: the scheduler on simulated workers, by seed.

use std::time::Duration;

use dapple::sim::{self, Sim};
use dapple::time::{Instant, sleep};

#[test]
fn an_hour_takes_no_time() {
    let begun = std::time::Instant::now();
    let late = Sim::new(1).run(async {
        let begun = Instant::now();
        sleep(Duration::from_secs(3600)).await.unwrap();
        begun.elapsed()
    });
    assert_eq!(late.as_secs(), 3600);
    eprintln!("{:?}", begun.elapsed());
}

#[test]
fn workers_share_the_work() {
    for workers in [1, 2, 3, 8, 64] {
        let took = Sim::new(7).workers(workers).steady().run(async move {
            let begun = Instant::now();
            let tasks: Vec<_> = (0..workers * 10)
                .map(|_| dapple::spawn(async { sim::work(Duration::from_millis(1)) }))
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
            begun.elapsed()
        });
        eprintln!("{workers} {took:?}");
        assert!(took >= Duration::from_millis(10) && took < Duration::from_millis(11), "{workers}: {took:?}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = |seed| {
        Sim::new(seed).workers(4).run_traced(async {
            let (sender, mut receiver) = dapple::channel::mpsc::bounded(4);
            for i in 0..10u64 {
                let sender = sender.clone();
                dapple::spawn(async move {
                    for j in 0..10u64 {
                        sim::work(Duration::from_micros(i * 3 + j));
                        sender.send(i * 100 + j).await.unwrap();
                    }
                })
                .detach();
            }
            drop(sender);
            let mut got = Vec::new();
            while let Ok(value) = receiver.recv().await {
                got.push(value);
            }
            got
        })
    };
    let (first, trace) = run(5);
    let (second, again) = run(5);
    assert_eq!(first, second);
    assert_eq!(trace.to_string(), again.to_string());
    let (third, _) = run(6);
    assert_ne!(first, third);
    eprintln!("{trace}");
}

#[test]
fn a_deadlock_is_named() {
    let failure = Sim::new(1)
        .try_run(async {
            let a = std::sync::Arc::new(dapple::sync::Mutex::new(()));
            let _guard = a.lock().await.unwrap();
            let b = a.clone();
            dapple::spawn(async move { drop(b.lock().await) }).await.unwrap();
        })
        .unwrap_err();
    eprintln!("{failure}");
    assert!(failure.why().contains("deadlock"));
}

#[test]
fn a_sleep_for_ever_is_a_deadlock() {
    let failure = Sim::new(1).try_run(async { sleep(Duration::MAX).await }).unwrap_err();
    assert!(failure.why().contains("waits for a time"), "{failure}");
    assert!(failure.why().contains("deadlock"), "{failure}");
    let years = Duration::from_secs(200 * 365 * 24 * 3600);
    Sim::new(1).run(async move { sleep(years).await.unwrap() });
}

#[test]
fn no_work_at_all_lets_others_come_between() {
    let twice = |seed| {
        Sim::new(seed).run(async {
            let taken = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
            let take = |taken: std::sync::Arc<std::sync::atomic::AtomicUsize>| async move {
                let seen = taken.load(std::sync::atomic::Ordering::Relaxed);
                sim::work(Duration::ZERO);
                taken.store(seen + 1, std::sync::atomic::Ordering::Relaxed);
            };
            let tasks: Vec<_> = (0..4).map(|_| dapple::spawn(take(taken.clone()))).collect();
            for task in tasks {
                task.await.unwrap();
            }
            taken.load(std::sync::atomic::Ordering::Relaxed)
        })
    };
    let counts: Vec<_> = (0..200).map(twice).collect();
    assert!(counts.contains(&4), "never one after the other");
    assert!(counts.iter().filter(|count| **count < 4).count() > 20, "hardly ever between: {counts:?}");
}
