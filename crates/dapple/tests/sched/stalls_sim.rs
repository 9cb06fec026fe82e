//! Workers that are stuck in a runnable, in virtual time: all other tasks go on, and the spares rest afterwards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use dapple::sched::{LongestLane, ShortestQueue};
use dapple::sim::{self, Sim};
use dapple::task::yield_now;
use dapple::time::{Duration, Instant, sleep};
use dapple::{Color, Handle, JoinHandle, runtime::Metrics, spawn};

const MS: Duration = Duration::from_millis(1);
/// The delay that a stall may cause to waiting tasks: 10 ms, and the time in which a spare wakes up.
const NOTICED: Duration = Duration::from_millis(11);
const SEEDS: std::ops::Range<u64> = 0..25;

fn sim(workers: usize) -> Sim {
    Sim::new(0).workers(workers).max_spares(64)
}

fn metrics() -> Metrics {
    Handle::current().metrics()
}

/// A task that sleeps for a millisecond at a time until `stop` is set. Returns its largest delay.
fn beat(stop: &Arc<AtomicBool>) -> JoinHandle<Duration> {
    let stop = stop.clone();
    spawn(async move {
        let mut worst = Duration::ZERO;
        while !stop.load(Ordering::Relaxed) {
            let due = Instant::now() + MS;
            sleep(MS).await.unwrap();
            worst = worst.max(Instant::now().duration_since(due));
        }
        worst
    })
}

/// Runs `heavy` beside eight such tasks, none of which may be later than `bound`.
async fn no_task_is_late_beside<T>(heavy: impl Future<Output = T>, bound: Duration) -> T {
    let stop = Arc::new(AtomicBool::new(false));
    let beats: Vec<_> = (0..8).map(|_| beat(&stop)).collect();
    sleep(5 * MS).await.unwrap();
    let result = heavy.await;
    stop.store(true, Ordering::Relaxed);
    for beat in beats {
        let worst = beat.await.unwrap();
        assert!(worst < bound, "{worst:?} late");
    }
    result
}

/// Waits until no spare is running.
async fn all_rest() {
    while metrics().spares_running > 0 {
        sleep(MS).await.unwrap();
    }
}

#[test]
fn other_tasks_run_beside_a_stuck_worker() {
    for workers in [1, 2, 4] {
        sim(workers).explore(SEEDS, || async move {
            let heavy = async { spawn(async { sim::work(200 * MS) }).await.unwrap() };
            no_task_is_late_beside(heavy, NOTICED).await;
            all_rest().await;
            let metrics = metrics();
            // Where there is another worker, it may be all that it takes.
            assert!(metrics.stalls >= 1 && metrics.spares_sent >= u64::from(workers == 1), "{metrics:?}");
            assert!(metrics.longest_stall >= 180 * MS, "{metrics:?}");
            assert_eq!(metrics.stalls_unrelieved, 0);
        });
    }
}

#[test]
fn without_spares_other_tasks_wait() {
    let late = sim(1).max_spares(0).run(async {
        let stop = Arc::new(AtomicBool::new(false));
        let beat = beat(&stop);
        sleep(5 * MS).await.unwrap();
        spawn(async { sim::work(200 * MS) }).await.unwrap();
        stop.store(true, Ordering::Relaxed);
        (beat.await.unwrap(), metrics().stalls)
    });
    assert!(late.0 > 150 * MS, "{late:?}");
}

/// Each of those who stand in may take up the next that gets stuck before anything else.
#[test]
fn other_tasks_run_when_all_workers_and_spares_are_stuck() {
    for workers in [1, 2, 4] {
        sim(workers).explore(SEEDS, || async {
            let heavy = async {
                let heavy: Vec<_> = (0..8).map(|_| spawn(async { sim::work(300 * MS) })).collect();
                for heavy in heavy {
                    heavy.await.unwrap();
                }
            };
            no_task_is_late_beside(heavy, 8 * NOTICED).await;
            all_rest().await;
            assert!(metrics().spares.len() <= 8, "{:?}", metrics());
        });
    }
}

#[test]
fn spares_are_used_again_and_rest_in_between() {
    sim(1).explore(SEEDS, || async {
        for round in 0..5 {
            no_task_is_late_beside(async { spawn(async { sim::work(60 * MS) }).await.unwrap() }, NOTICED)
                .await;
            all_rest().await;
            assert_eq!(metrics().spares.len(), 1, "round {round}: {:?}", metrics());
        }
        assert!(metrics().spares_sent >= 5, "{:?}", metrics());
        // The spares rest, and the worker does everything by itself.
        let runs = || metrics().spares.iter().map(|spare| spare.runs).sum::<u64>();
        let before = runs();
        let tasks: Vec<_> = (0..100).map(|_| spawn(async { yield_now().await })).collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(runs(), before);
    });
}

#[test]
fn the_stuck_color_keeps_its_turn_and_its_order() {
    sim(2).explore(SEEDS, || async {
        let (color, seen) = (Color::new(), Arc::new(Mutex::new(Vec::new())));
        let calls: Vec<_> = (0..20)
            .map(|i| {
                let seen = seen.clone();
                color.call(move || {
                    seen.lock().unwrap().push((i, "begins"));
                    sim::work(if i % 7 == 0 { 40 * MS } else { Duration::ZERO });
                    seen.lock().unwrap().push((i, "ends"));
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap();
        }
        let all: Vec<_> = (0..20).flat_map(|i| [(i, "begins"), (i, "ends")]).collect();
        assert_eq!(*seen.lock().unwrap(), all);
    });
}

#[test]
fn a_main_color_that_is_stuck_holds_up_itself_alone() {
    for workers in [1, 2] {
        sim(workers).explore(SEEDS, || async {
            no_task_is_late_beside(async { sim::work(200 * MS) }, NOTICED).await;
            // Tasks elsewhere run while the main color is stuck; its own local task runs when it comes back.
            let woken = spawn(async {
                sleep(20 * MS).await.unwrap();
                Instant::now()
            });
            let local = dapple::spawn_local(async {
                sleep(20 * MS).await.unwrap();
                Instant::now()
            });
            yield_now().await;
            sim::work(100 * MS);
            let now = Instant::now();
            assert!(woken.await.unwrap() < now, "it did not wait for the main color");
            assert!(local.await.unwrap() >= now, "nobody else runs what is the main color's");
        });
    }
}

#[test]
fn tasks_spawned_and_woken_by_a_stuck_worker_run_meanwhile() {
    for workers in [1, 2] {
        sim(workers).explore(SEEDS, || async {
            let late = spawn(async {
                sim::work(50 * MS);
                let begun = Instant::now();
                // Into its slot, and into its ring.
                let tasks: Vec<_> = (0..3).map(|_| spawn(async { Instant::now() })).collect();
                let timer = spawn(async {
                    sleep(5 * MS).await.unwrap();
                    Instant::now()
                });
                sim::work(100 * MS);
                let mut worst = Duration::ZERO;
                for task in tasks {
                    worst = worst.max(task.await.unwrap().duration_since(begun));
                }
                (worst, timer.await.unwrap().duration_since(begun))
            });
            let (worst, timer) = late.await.unwrap();
            assert!(worst < 6 * MS && timer < 12 * MS, "{worst:?} {timer:?}");
        });
    }
}

#[test]
fn stalls_without_a_spare_are_counted_and_end() {
    sim(2).max_spares(2).explore(SEEDS, || async {
        let heavy: Vec<_> = (0..10).map(|_| spawn(async { sim::work(50 * MS) })).collect();
        let light = spawn(async { sleep(MS).await.unwrap() });
        for heavy in heavy {
            heavy.await.unwrap();
        }
        light.await.unwrap();
        assert!(metrics().stalls_unrelieved > 0, "{:?}", metrics());
        assert_eq!(metrics().spares.len(), 2);
        all_rest().await;
    });
}

#[test]
fn a_panic_in_a_stuck_task_affects_only_that_task() {
    sim(1).explore(SEEDS, || async {
        let heavy = async {
            let heavy: JoinHandle<()> = spawn(async {
                sim::work(50 * MS);
                panic!("stuck, and then this")
            });
            assert!(heavy.await.unwrap_err().is_panic());
        };
        no_task_is_late_beside(heavy, NOTICED).await;
        all_rest().await;
    });
}

#[test]
fn a_runtime_ends_while_workers_are_stuck_and_others_stand_in() {
    let ended = Arc::new(Mutex::new(0));
    sim(2).explore(SEEDS, || {
        let ended = ended.clone();
        async move {
            for _ in 0..4 {
                let ended = ended.clone();
                let stuck = spawn(async move {
                    sim::work(Duration::from_nanos(sim::random() % 300_000_000));
                    *ended.lock().unwrap() += 1;
                });
                stuck.detach();
            }
            spawn(async { while sleep(MS).await.is_ok() {} }).detach();
            sleep(Duration::from_nanos(sim::random() % 100_000_000)).await.unwrap();
        }
    });
    assert!(*ended.lock().unwrap() > 0);
}

#[test]
fn a_spare_serves_the_queue_of_the_stuck_worker_under_a_policy() {
    for workers in [1, 3] {
        let beside = || async {
            let heavy = async { spawn(async { sim::work(200 * MS) }).await.unwrap() };
            no_task_is_late_beside(heavy, NOTICED).await;
            all_rest().await;
        };
        sim(workers).policy(ShortestQueue).explore(SEEDS, beside);
        sim(workers).policy(LongestLane).explore(SEEDS, beside);
    }
}

#[test]
fn stall_after_is_how_long_others_wait() {
    sim(1).stall_after(2 * MS).explore(SEEDS, || async {
        let heavy = async { spawn(async { sim::work(50 * MS) }).await.unwrap() };
        no_task_is_late_beside(heavy, 3 * MS).await;
    });
}

#[test]
fn the_same_seed_is_the_same_run_with_spares_too() {
    for seed in 0..10 {
        let run = || {
            let sim = Sim::new(seed).workers(2).max_spares(8);
            let (sent, trace) = sim.run_traced(async {
                let heavy: Vec<_> = (0..4).map(|_| spawn(async { sim::work(40 * MS) })).collect();
                for heavy in heavy {
                    heavy.await.unwrap();
                }
                metrics().spares_sent
            });
            assert!(sent > 0);
            trace.to_string()
        };
        assert_eq!(run(), run());
    }
}
