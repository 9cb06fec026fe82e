//! Limits: what is refused, when, and that everything is either begun once or refused once.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use dapple::limit::{Limit, Refuse};
use dapple::sched::Priority;
use dapple::sim::{self, Sim};
use dapple::task::{Builder, yield_now};
use dapple::time::{Instant, sleep};
use dapple::{Color, JoinHandle, event};

const MS: Duration = Duration::from_millis(1);

/// The actions, in the order in which they were done.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// Submits `count` calls to a color, each of which says that it was called or refused.
fn submit(color: &Color, log: &Log, names: std::ops::Range<u32>) -> Vec<JoinHandle<()>> {
    let submit = |name| {
        let (called, refused) = (log.clone(), log.clone());
        Builder::new()
            .color(color)
            .or_else(move || refused.add(format!("no {name}")))
            .spawn(async move { called.add(format!("{name}")) })
    };
    names.map(submit).collect()
}

async fn refused_of(handles: Vec<JoinHandle<()>>) -> Vec<usize> {
    let mut refused = Vec::new();
    for (index, handle) in handles.into_iter().enumerate() {
        match handle.await {
            Ok(()) => {}
            Err(error) if error.is_refused() => refused.push(index),
            Err(error) => panic!("neither called nor refused: {error}"),
        }
    }
    refused
}

#[test]
fn beyond_the_depth_the_oldest_is_refused_ahead_of_the_line() {
    Sim::new(1).workers(2).explore(0..200, || async {
        let (color, log) = (Color::new(), Log::default());
        let limit = Limit::new().depth(3);
        color.set_limit(limit.clone());
        let gate = color.call(|| sim::work(10 * MS)); // keeps the color busy
        sleep(MS).await.unwrap();
        let handles = submit(&color, &log, 0..5);
        gate.await.unwrap();
        assert_eq!(refused_of(handles).await, [0, 1]);
        assert_eq!(log.take(), ["no 0", "no 1", "2", "3", "4"]);
        let counts = limit.stats();
        assert_eq!((counts.waiting, counts.running, counts.refused), (0, 0, 2));
    });
}

#[test]
fn the_newest_is_refused_and_its_drop_closure_goes_first() {
    Sim::new(1).workers(2).explore(0..200, || async {
        let (color, log) = (Color::new(), Log::default());
        color.set_limit(Limit::new().depth(3).refusing(Refuse::Newest));
        let gate = color.call(|| sim::work(10 * MS));
        sleep(MS).await.unwrap();
        let handles = submit(&color, &log, 0..6);
        gate.await.unwrap();
        assert_eq!(refused_of(handles).await, [3, 4, 5]);
        assert_eq!(log.take(), ["no 3", "no 4", "no 5", "0", "1", "2"]);
    });
}

#[test]
fn what_a_turn_submits_to_its_own_color_is_counted_too() {
    Sim::new(1).workers(2).explore(0..100, || async {
        let (color, log) = (Color::new(), Log::default());
        color.set_limit(Limit::new().depth(2).refusing(Refuse::Newest));
        let (own, inside) = (color.clone(), log.clone());
        let handles = color.call(move || submit(&own, &inside, 0..4)).await.unwrap();
        assert_eq!(refused_of(handles).await, [2, 3]);
        assert_eq!(log.take(), ["no 2", "no 3", "0", "1"]);
    });
}

#[test]
fn a_limit_is_shared_by_its_colors() {
    Sim::new(1).workers(1).explore(0..100, || async {
        let limit = Limit::new().depth(4);
        let log = Log::default();
        let mut handles = Vec::new();
        for name in 0..10 {
            let color = Color::new();
            color.set_limit(limit.clone());
            handles.extend(submit(&color, &log, name..name + 1));
        }
        // One worker, which is busy with this here until now.
        assert_eq!(refused_of(handles).await.len(), 6);
        assert_eq!(limit.stats().refused, 6);
    });
}

#[test]
fn memory_of_the_refused_is_gone() {
    struct Load(#[expect(dead_code, reason = "it is there to be counted")] Arc<()>);
    Sim::new(1).workers(2).explore(0..100, || async {
        let alive = Arc::new(());
        let color = Color::new();
        color.set_limit(Limit::new().depth(10));
        let gate = color.call(|| sim::work(10 * MS));
        sleep(MS).await.unwrap();
        for _ in 0..1000 {
            let load = Load(alive.clone());
            color.call(move || drop(load)).detach();
        }
        gate.await.unwrap();
        color.call(|| ()).await.unwrap();
        assert_eq!(Arc::strong_count(&alive), 1);
    });
}

/// A server with `workers` workers. Each request takes a worker for a millisecond; requests come evenly, `load` times
/// as many as can be served, each in a color of its own. Returns how long the served requests have waited, in
/// milliseconds, and how many were refused, from the third second on.
async fn serve(limit: Limit, workers: u32, load: f64) -> (Vec<u64>, usize) {
    const SECONDS: u32 = 6;
    let gap = Duration::from_secs_f64(0.001 / f64::from(workers) / load);
    let (served, refused) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
    let begun = Instant::now();
    let mut next = begun;
    while begun.elapsed() < Duration::from_secs(SECONDS.into()) {
        next += gap;
        dapple::time::sleep_until(next).await.unwrap();
        let is_late = begun.elapsed() > Duration::from_secs(3);
        let (served, refused) = (served.clone(), refused.clone());
        let since = Instant::now();
        Builder::new()
            .limit(limit.clone())
            .or_else(move || _ = refused.fetch_add(usize::from(is_late), SeqCst))
            .spawn(async move {
                if is_late {
                    served.lock().unwrap().push(since.elapsed().as_millis() as u64);
                }
                sim::work(MS);
            })
            .detach();
    }
    while limit.stats().waiting > 0 {
        sleep(MS).await.unwrap();
    }
    limit.drained().await.unwrap();
    let served = std::mem::take(&mut *served.lock().unwrap());
    (served, refused.load(SeqCst))
}

fn http() -> Limit {
    Limit::new().delay(50 * MS, 500 * MS)
}

#[test]
fn below_capacity_no_task_is_refused() {
    Sim::new(1).workers(2).explore(0..3, || async {
        let (served, refused) = serve(http(), 2, 0.8).await;
        assert_eq!(refused, 0);
        assert!(served.len() > 4500, "{}", served.len());
    });
}

#[test]
fn above_capacity_served_tasks_wait_briefly_and_throughput_holds() {
    for load in [1.5, 4.0, 10.0] {
        Sim::new(1).workers(2).explore(0..3, || async move {
            let (served, refused) = serve(http(), 2, load).await;
            let mut waited = served.clone();
            waited.sort_unstable();
            let p99 = waited[waited.len() * 99 / 100];
            assert!(p99 <= 50, "{load}: {p99} ms at 99%, of {}", served.len());
            assert!(served.len() > 5400, "{load}: {} in three seconds", served.len());
            assert!(refused as f64 > (load - 1.0) * 5400.0, "{load}: {refused} refused");
        });
    }
}

#[test]
fn a_burst_passes() {
    Sim::new(1).workers(2).explore(0..20, || async {
        let limit = http();
        // Four hundred milliseconds of work at once, then time to breathe; ten times over.
        let mut handles = Vec::new();
        for _ in 0..10 {
            for _ in 0..800 {
                handles.push(Builder::new().limit(limit.clone()).spawn(async { sim::work(MS) }));
            }
            sleep(1000 * MS).await.unwrap();
        }
        assert_eq!(refused_of(handles).await, [0_usize; 0]);
        assert!(!limit.is_over());
    });
}

#[test]
fn the_wait_of_a_color_counts_for_tasks_that_it_spawns() {
    Sim::new(1).workers(1).explore(0..20, || async {
        let limit = Limit::new().delay(MS, 10 * MS);
        // Connections, each in a color, that ask at each wake-up whether they may begin.
        let (begun, refused) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..100 {
            let (begun, refused, limit) = (begun.clone(), refused.clone(), limit.clone());
            let color = Color::new();
            color.set_limit(Limit::new());
            let asks = limit.clone();
            color
                .spawn(async move {
                    for _ in 0..20 {
                        sleep(MS).await.unwrap();
                        match asks.try_admit() {
                            Ok(_admitted) => {
                                begun.fetch_add(1, SeqCst);
                                sim::work(MS);
                            }
                            Err(_) => _ = refused.fetch_add(1, SeqCst),
                        }
                    }
                })
                .detach();
        }
        sleep(Duration::from_secs(3)).await.unwrap();
        let (begun, refused) = (begun.load(SeqCst), refused.load(SeqCst));
        assert_eq!(begun + refused, 2000);
        assert!(refused > 500, "{begun} begun, {refused} refused");
        assert_eq!(limit.stats().running, 0);
    });
}

#[test]
fn no_more_run_than_may_and_all_get_to() {
    Sim::new(1).workers(4).explore(0..100, || async {
        let limit = Limit::new().concurrency(3);
        let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let handles: Vec<_> = (0..50)
            .map(|_| {
                let (running, most) = (running.clone(), most.clone());
                Builder::new().limit(limit.clone()).spawn(async move {
                    most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
                    for _ in 0..sim::random() % 4 {
                        yield_now().await;
                        sleep(MS * (sim::random() % 3) as u32).await.unwrap();
                    }
                    running.fetch_sub(1, SeqCst);
                })
            })
            .collect();
        assert_eq!(refused_of(handles).await, [0_usize; 0]);
        assert!(most.load(SeqCst) <= 3, "{most:?} at once");
        assert_eq!(limit.stats().running, 0);
    });
}

#[test]
fn a_held_task_leaves_its_color_to_others() {
    Sim::new(1).workers(2).explore(0..100, || async {
        let limit = Limit::new().concurrency(1);
        let (color, log) = (Color::new(), Log::default());
        let first = Builder::new().limit(limit.clone()).spawn(async { sleep(10 * MS).await.unwrap() });
        sleep(MS).await.unwrap();
        let free = color.spawn({
            let log = log.clone();
            async move {
                sleep(5 * MS).await.unwrap(); // it has begun before the color had a limit
                log.add("goes on");
            }
        });
        yield_now().await;
        sleep(MS).await.unwrap();
        color.set_limit(limit.clone());
        let held = submit(&color, &log, 7..8);
        free.await.unwrap();
        first.await.unwrap();
        assert_eq!(refused_of(held).await, [0_usize; 0]);
        assert_eq!(log.take(), ["goes on", "7"]);
    });
}

#[test]
fn beyond_the_depth_the_oldest_held_tasks_are_refused() {
    Sim::new(1).workers(1).explore(0..100, || async {
        let limit = Limit::new().concurrency(1).depth(2);
        let log = Log::default();
        let first = Builder::new().limit(limit.clone()).spawn(async { sleep(50 * MS).await.unwrap() });
        sleep(MS).await.unwrap();
        let mut handles = Vec::new();
        for name in 0..5 {
            let color = Color::new();
            color.set_limit(limit.clone());
            handles.extend(submit(&color, &log, name..name + 1));
            sleep(MS).await.unwrap();
        }
        assert_eq!(log.take(), ["no 0", "no 1", "no 2"]); // while the first still runs
        first.await.unwrap();
        assert_eq!(refused_of(handles).await, [0, 1, 2]);
        assert_eq!(log.take(), ["3", "4"]);
    });
}

#[test]
fn when_a_held_task_ends_the_next_gets_its_place() {
    Sim::new(1).workers(3).explore(0..300, || async {
        let limit = Limit::new().concurrency(2).depth(1000);
        let ended = Arc::new(AtomicUsize::new(0));
        let mut handles = Vec::new();
        for _ in 0..40 {
            let count = ended.clone();
            let dropped = ended.clone();
            let task = Builder::new()
                .limit(limit.clone())
                .or_else(move || _ = dropped.fetch_add(1, SeqCst))
                .spawn(async move {
                    count.fetch_add(1, SeqCst);
                    match sim::random() % 4 {
                        0 => panic!("on purpose"),
                        1 => sleep(MS).await.unwrap_or_default(),
                        2 => yield_now().await,
                        _ => {}
                    }
                });
            match sim::random() % 6 {
                0 => task.abort(),
                1 => task.cancel(),
                _ => {}
            }
            handles.push(task);
            if sim::random().is_multiple_of(3) {
                yield_now().await;
            }
        }
        for handle in handles {
            let _ = handle.await;
        }
        assert_eq!(ended.load(SeqCst), 40);
        let counts = limit.stats();
        assert_eq!((counts.waiting, counts.running), (0, 0));
    });
}

#[test]
fn close_refuses_waiting_tasks_and_drained_waits_for_begun_tasks() {
    Sim::new(1).workers(2).explore(0..100, || async {
        let limit = Limit::new().concurrency(2);
        let (log, color) = (Log::default(), Color::new());
        let work: Vec<_> = (0..2)
            .map(|_| Builder::new().limit(limit.clone()).spawn(async { sleep(20 * MS).await.unwrap() }))
            .collect();
        sleep(MS).await.unwrap();
        color.set_limit(limit.clone());
        let held = submit(&color, &log, 0..3);
        sleep(MS).await.unwrap();
        let begun = Instant::now();
        limit.drained().await.unwrap();
        assert!(begun.elapsed() >= 17 * MS, "{:?}", begun.elapsed());
        assert_eq!(refused_of(held).await, [0, 1, 2]);
        assert_eq!(refused_of(submit(&color, &log, 3..4)).await, [0]);
        assert_eq!(log.take(), ["no 0", "no 1", "no 2", "no 3"]);
        assert_eq!(refused_of(work).await, [0_usize; 0]);
        assert!(limit.try_admit().is_err());
    });
}

#[test]
fn callbacks_are_refused_with_their_drop_closures() {
    Sim::new(1).workers(2).explore(0..50, || async {
        let (color, log) = (Color::new(), Log::default());
        color.set_limit(Limit::new().depth(1).refusing(Refuse::Newest));
        let gate = color.call(|| sim::work(10 * MS));
        sleep(MS).await.unwrap();
        let callback = |name: &'static str| {
            let (called, refused) = (log.clone(), log.clone());
            let callback =
                event::Callback::new(move || called.add(name)).color(&color).priority(Priority::High);
            event::now(callback.or_else(move || refused.add(format!("no {name}"))))
        };
        let handles = vec![callback("first"), callback("second")];
        gate.await.unwrap();
        assert_eq!(refused_of(handles).await, [1]);
        assert_eq!(log.take(), ["no second", "first"]);
    });
}

#[test]
fn a_panicking_drop_closure_is_reported_to_its_handle_only() {
    Sim::new(1).workers(2).explore(0..50, || async {
        let color = Color::new();
        let limit = Limit::new();
        limit.close();
        color.set_limit(limit);
        let task = Builder::new().color(&color).or_else(|| panic!("on purpose")).spawn(async {});
        assert!(task.await.unwrap_err().is_panic());
        assert!(color.call(|| ()).await.unwrap_err().is_refused());
    });
}

#[test]
fn bounds_are_said_before_a_limit_is_used() {
    let limit = Limit::new();
    let in_use = limit.clone();
    let told = std::panic::catch_unwind(|| limit.depth(3)).unwrap_err();
    let told = told.downcast_ref::<&str>().copied().unwrap_or_default();
    assert!(told.contains("before it is cloned"), "{told}");
    assert!(std::panic::catch_unwind(|| Limit::new().depth(0)).is_err());
    assert!(std::panic::catch_unwind(|| Limit::new().concurrency(0)).is_err());
    assert!(std::panic::catch_unwind(|| Limit::new().delay(Duration::ZERO, MS)).is_err());
    assert!(std::panic::catch_unwind(|| Limit::new().delay(2 * MS, MS)).is_err());
    assert_eq!(in_use.stats().refused, 0);
}

/// However many tasks there are, each is run: no task waits for ever in the shared line.
#[test]
fn of_many_that_are_always_ready_none_is_passed_over() {
    const TASKS: usize = 5000;
    Sim::new(1).workers(2).explore(0..3, || async {
        let rounds: Arc<Vec<AtomicUsize>> = Arc::new((0..TASKS).map(|_| AtomicUsize::new(0)).collect());
        for task in 0..TASKS {
            let rounds = rounds.clone();
            dapple::spawn(async move {
                while rounds[task].fetch_add(1, SeqCst) < 100 {
                    yield_now().await;
                }
            })
            .detach();
        }
        let done = |wanted: usize| rounds.iter().filter(|round| round.load(SeqCst) >= wanted).count();
        while done(20) == 0 {
            sleep(MS / 10).await.unwrap();
        }
        assert_eq!(done(2), TASKS, "while one has had 20 turns, some have had none or one");
    });
}

/// One that was held back and is to be refused in the place of a newcomer may end in another way first.
#[test]
fn a_task_refused_for_a_newcomer_is_counted_once() {
    Sim::new(1).workers(3).explore(0..200, || async {
        let limit = Limit::new().concurrency(1).depth(2).delay(MS, 2 * MS);
        let mut handles = Vec::new();
        for _ in 0..60 {
            let task =
                Builder::new().limit(limit.clone()).spawn(async { sleep(MS).await.unwrap_or_default() });
            handles.push(task);
            match sim::random() % 4 {
                0 => handles[sim::random() as usize % handles.len()].abort(),
                1 => sleep(MS / 4).await.unwrap(),
                2 => yield_now().await,
                _ => {}
            }
        }
        if sim::random().is_multiple_of(2) {
            limit.close();
        }
        for handle in handles {
            let _ = handle.await;
        }
        let counts = limit.stats();
        assert_eq!((counts.waiting, counts.running), (0, 0));
    });
}
