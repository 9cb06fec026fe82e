//! Priorities: urgent tasks go first, the others still get their share, and order within a color always wins.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{in_both_worlds, rounds, runtime, watched};
use dapple::sched::Priority;
use dapple::sim::{Sim, work};
use dapple::task::{Builder, yield_now};
use dapple::{Color, JoinHandle};

const SHORT: Duration = Duration::from_micros(10);

type Log = Arc<Mutex<Vec<&'static str>>>;

/// A closure that does a little work and notes its name.
fn note(log: &Log, who: &'static str) -> impl FnOnce() + Send + 'static {
    let log = log.clone();
    move || {
        work(SHORT);
        log.lock().unwrap().push(who);
    }
}

async fn all(handles: Vec<JoinHandle<()>>) {
    for handle in handles {
        handle.await.unwrap();
    }
}

fn place(log: &Log, who: &str) -> usize {
    log.lock().unwrap().iter().position(|ran| *ran == who).expect("it ran")
}

#[test]
fn tasks_go_by_their_priority_whatever_the_order_of_their_spawns() {
    Sim::new(0).workers(1).explore(0..50, || async {
        let log = Log::default();
        let mut handles = Vec::new();
        for (who, priority) in [
            ("low", Priority::Low),
            ("normal", Priority::Normal),
            ("high", Priority::High),
            ("urgent", Priority::Urgent),
        ] {
            for _ in 0..10 {
                let note = note(&log, who);
                handles.push(Builder::new().priority(priority).spawn(async move { note() }));
            }
        }
        all(handles).await;
        let log = log.lock().unwrap();
        // Of the first ten picks at most three are for tasks of low priority that have waited.
        let first = log.iter().take(10).filter(|who| **who == "urgent").count();
        assert!(first >= 7, "{log:?}");
        assert!(log.iter().rposition(|who| *who == "urgent") < log.iter().rposition(|who| *who == "low"));
        let last_ten = log.iter().rev().take(10).filter(|who| **who == "low").count();
        assert!(last_ten >= 9, "{log:?}");
    });
}

#[test]
fn a_color_takes_the_priority_of_its_most_urgent_task_and_keeps_order() {
    Sim::new(0).workers(1).explore(0..50, || async {
        let log = Log::default();
        let color = Color::new();
        let mut handles: Vec<_> = (0..50)
            .map(|_| {
                dapple::spawn({
                    let note = note(&log, "other");
                    async move { note() }
                })
            })
            .collect();
        handles.push(color.call(note(&log, "first in line")));
        handles.push(color.call(note(&log, "second in line")));
        let urgent = note(&log, "urgent");
        let builder = Builder::new().color(&color).priority(Priority::Urgent);
        handles.push(builder.spawn(async move { urgent() }));
        handles.push(color.call(note(&log, "last in line")));
        all(handles).await;
        assert!(place(&log, "urgent") < 8, "{:?}", log.lock().unwrap());
        let places =
            ["first in line", "second in line", "urgent", "last in line"].map(|who| place(&log, who));
        assert!(places.is_sorted(), "{places:?}");
    });
}

#[test]
fn a_color_in_line_that_becomes_urgent_goes_ahead() {
    Sim::new(0).workers(1).explore(0..50, || async {
        let log = Log::default();
        let color = Color::new();
        let other = note(&log, "other");
        let mut handles = vec![dapple::spawn(async move { other() })];
        handles.extend((0..50).map(|_| Color::new().call(note(&log, "other"))));
        handles.push(color.call(note(&log, "urgent")));
        color.set_priority(Priority::Urgent);
        all(handles).await;
        assert!(place(&log, "urgent") < 4, "{:?}", log.lock().unwrap());
    });
}

#[test]
fn a_color_with_only_low_tasks_runs_after_other_colors() {
    Sim::new(0).workers(1).explore(0..20, || async {
        let log = Log::default();
        let color = Color::new();
        let low = |who| {
            let note = note(&log, who);
            Builder::new().color(&color).priority(Priority::Low).spawn(async move { note() })
        };
        let mut handles: Vec<_> = (0..100).map(|_| low("low")).collect();
        handles.extend((0..50).map(|_| Color::new().call(note(&log, "other"))));
        all(handles).await;
        let log = log.lock().unwrap();
        let early = log.iter().take(50).filter(|who| **who == "low").count();
        assert!(early <= 4, "{log:?}");
    });
}

/// Runs tasks of one priority for ever, each in a color of its own, and counts them.
fn stream(priority: Priority, stop: &Arc<AtomicBool>) -> (Arc<AtomicUsize>, Vec<JoinHandle<()>>) {
    let count = Arc::new(AtomicUsize::new(0));
    let one = || {
        let (count, stop) = (count.clone(), stop.clone());
        Builder::new().priority(priority).spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                work(SHORT);
                count.fetch_add(1, Ordering::Relaxed);
                yield_now().await;
            }
        })
    };
    let handles = (0..8).map(|_| one()).collect();
    (count, handles)
}

#[test]
fn each_priority_has_the_share_that_is_promised() {
    Sim::new(0).workers(2).explore(0..20, || async {
        let stop = Arc::new(AtomicBool::new(false));
        let streams = Priority::ALL.map(|priority| stream(priority, &stop));
        dapple::time::sleep(Duration::from_millis(200)).await.unwrap();
        let counts = streams.each_ref().map(|(count, _)| count.load(Ordering::Relaxed));
        stop.store(true, Ordering::Relaxed);
        for (_, handles) in streams {
            all(handles).await;
        }
        let total: usize = counts.iter().sum();
        let [low, normal, high, urgent] = counts.map(|count| count as f64 / total as f64);
        assert!(low >= 0.9 / 64.0, "{counts:?}");
        assert!(normal >= 0.9 * (1.0 / 16.0 - 1.0 / 64.0), "{counts:?}");
        assert!(high >= 0.9 * (1.0 / 4.0 - 1.0 / 16.0), "{counts:?}");
        assert!(urgent > 0.6 && urgent < 0.85, "{counts:?}");
    });
}

#[test]
fn a_lane_with_a_priority_is_run_by_any_free_worker() {
    // One worker is held up in a task; the other runs what it has made runnable.
    watched(|| {
        let rt = runtime(2);
        rt.block_on(async {
            let done = Arc::new(AtomicBool::new(false));
            let is_done = done.clone();
            let held_up = dapple::spawn(async move {
                let urgent = Builder::new().priority(Priority::Urgent);
                drop(urgent.spawn(async move { done.store(true, Ordering::Release) }));
                while !is_done.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            });
            held_up.await.unwrap();
        });
    });
}

/// Random work in colors of random priority, by tasks that change both; some are aborted, and some panic.
async fn turmoil(seed: u64, tasks: usize) {
    let mut random = seed.wrapping_mul(2).wrapping_add(1);
    let mut next = move |n: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % n
    };
    let colors: Vec<_> =
        (0..8).map(|_| (Color::new(), Arc::new((crate::common::Alone::default(), Mutex::new(0))))).collect();
    let mut handles = Vec::new();
    for number in 0..tasks {
        let (color, state) = &colors[next(8) as usize];
        let priority = Priority::ALL[next(4) as usize];
        if next(10) == 0 {
            color.set_priority(Priority::ALL[next(4) as usize]);
        }
        let (state, fate, again) = (state.clone(), next(20), next(3));
        let body = async move {
            for _ in 0..=again {
                state.0.visit(|| *state.1.lock().unwrap() = number);
                yield_now().await;
            }
            assert!(fate != 0, "on purpose");
        };
        let handle = match next(3) {
            0 => color.spawn(body),
            _ => Builder::new().color(color).priority(priority).spawn(body),
        };
        if fate == 1 {
            handle.abort();
        }
        handles.push((handle, fate));
        if next(16) == 0 {
            yield_now().await;
        }
    }
    drop(colors);
    for (handle, fate) in handles {
        match handle.await {
            Ok(()) => assert!(fate != 0),
            Err(error) => assert!((error.is_panic() && fate == 0) || (error.is_aborted() && fate == 1)),
        }
    }
}

#[test]
fn priorities_lose_no_task_and_no_color_overlaps_itself() {
    std::panic::set_hook(Box::new(|info| {
        if !info.to_string().contains("on purpose") {
            eprintln!("{info}");
        }
    }));
    Sim::new(0).workers(3).explore(0..200, || async { turmoil(dapple::sim::random(), 100).await });
    watched(|| {
        let rt = runtime(4);
        for seed in 0..rounds(200, 3) as u64 {
            rt.block_on(turmoil(seed, 300));
        }
        assert_eq!(rt.metrics().alive(), 0);
    });
}

#[test]
fn what_is_in_line_by_priority_when_a_runtime_ends_is_dropped() {
    in_both_worlds(20, || {
        let dropped = Arc::new(AtomicUsize::new(0));
        struct Count(Arc<AtomicUsize>);
        impl Drop for Count {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let rt = runtime(2);
        let color = rt.handle().color();
        for number in 0..100 {
            let count = Count(dropped.clone());
            let priority = Priority::ALL[number % 4];
            let builder = Builder::new().priority(priority).color(&color);
            drop(builder.spawn(async move {
                let _count = count;
                std::future::pending::<()>().await;
            }));
        }
        drop(rt);
        assert_eq!(dropped.load(Ordering::SeqCst), 100);
        color.set_priority(Priority::Urgent);
        assert!(color.call(|| ()).is_finished(), "the runtime is gone");
    });
}
