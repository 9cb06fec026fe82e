//! Observing a runtime from outside: its tasks, its counters, and whether it is idle.

use std::thread;
use std::time::Duration;

use crate::common::{Event, eventually, give_way, in_both_worlds, rounds, runtime, watched};
use dapple::task::{self, Builder, yield_now};
use dapple::{Color, Runtime, runtime::TaskState, sim};

#[test]
fn dump_tells_every_task_by_name_color_and_state() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let (release, held) = (Event::default(), Event::default());
        rt.block_on(async {
            let color = Color::new();
            let line = line!() + 1;
            let waits = Builder::new().name("waits").color(&color).spawn(std::future::pending::<()>());
            let plain = dapple::spawn(std::future::ready(()));
            plain.await.unwrap();
            let (hold, go) = (held.clone(), release.clone());
            let blocks = Builder::new().name("blocks").blocking(move || {
                hold.set();
                go.wait();
            });
            held.wait();
            let in_color = color.call(|| task::current().color_id()).await.unwrap();
            while !rt.dump().tasks.iter().any(|t| t.name == "waits" && t.state == TaskState::Waiting) {
                yield_now().await;
            }
            let dump = rt.dump();
            let find = |name: &str| dump.tasks.iter().find(|task| task.name == name).expect(name);
            let found = find("waits");
            assert_eq!((found.color, found.state), (in_color, TaskState::Waiting));
            let place = found.spawned_at.expect("a builder keeps the place");
            assert_eq!((place.file(), place.line()), (file!(), line));
            let found = find("blocks");
            assert_eq!((found.color, found.state), (0, TaskState::Blocking));
            let me = find(&task::current().name());
            assert_eq!((me.state, me.color), (TaskState::Runnable, task::current().color_id()));
            assert_eq!(dump.tasks.len(), 3, "{dump}");
            let text = dump.to_string();
            assert!(text.starts_with("3 tasks") && text.contains("waits in color #"), "{text}");
            assert!(text.contains("blocks in no color") && text.contains("observe.rs"), "{text}");
            release.set();
            blocks.await.unwrap();
            waits.abort();
            assert!(waits.await.unwrap_err().is_aborted());
        });
        eventually("nothing is left", || rt.dump().tasks.is_empty());
    });
}

#[test]
fn dump_works_beside_tasks_that_come_go_and_are_promoted() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let stop = Event::default();
        let stopped = stop.clone();
        let churn = rt.spawn(async move {
            while !stopped.is_set() {
                let promote = |i| {
                    let promote = async move {
                        yield_now().await;
                        let color = Color::current();
                        yield_now().await;
                        drop(color);
                    };
                    match i % 2 {
                        0 => dapple::spawn(promote),
                        _ => Builder::new().name(format!("named {i}")).spawn(promote),
                    }
                };
                let tasks: Vec<_> = (0..20).map(promote).collect();
                for task in tasks {
                    task.await.unwrap();
                }
            }
        });
        let mut seen = 0;
        for _ in 0..rounds(3000, 100) {
            let dump = rt.dump();
            let is_known = |name: &str| name.starts_with("named ") || name.contains("observe::");
            assert!(dump.tasks.iter().all(|task| is_known(&task.name)), "{dump}");
            seen += dump.tasks.len();
            if sim::is_simulated() {
                give_way();
            }
        }
        assert!(seen > 0);
        stop.set();
        rt.block_on(churn).unwrap();
    });
}

#[test]
fn metrics_count_events() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let before = rt.metrics();
        assert_eq!((before.workers.len(), before.alive()), (2, 0));
        rt.block_on(async {
            for _ in 0..100 {
                dapple::spawn(yield_now()).await.unwrap();
            }
            let forever = dapple::spawn(std::future::pending::<()>());
            assert_eq!(rt.metrics().alive(), 2, "the root and one that waits");
            forever.abort();
            assert!(forever.await.is_err());
        });
        let after = rt.metrics();
        assert_eq!((after.spawned, after.finished, after.alive()), (102, 102, 0));
        let runs: u64 = after.workers.iter().map(|worker| worker.runs).sum();
        assert!(runs >= 200, "each of 100 tasks is polled twice: {runs}");
        eventually("a worker has slept", || rt.metrics().workers.iter().any(|worker| worker.sleeps > 0));
        assert_eq!((after.blocking_threads, after.blocking_queued), (0, 0));
    });
}

/// Context switches and CPU time (in ticks) of the threads whose names start with `prefix`.
fn effort(prefix: &str) -> Vec<(String, String, String)> {
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap_or_default();
    let threads = std::fs::read_dir("/proc/self/task").unwrap().map(|entry| entry.unwrap().path());
    let ours = threads.filter(|thread| read(thread.join("comm")).starts_with(prefix));
    let effort = ours.map(|thread| {
        let status = read(thread.join("status"));
        let switches = status.lines().filter(|line| line.contains("ctxt_switches")).collect::<String>();
        let stat = read(thread.join("stat"));
        let times = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        (thread.display().to_string(), switches, times.collect())
    });
    effort.collect()
}

#[test]
#[cfg_attr(miri, ignore = "asks the kernel")]
fn an_idle_runtime_uses_no_cpu_and_is_never_woken() {
    watched(|| {
        let rt = Runtime::builder().workers(3).thread_name("idler").build().unwrap();
        rt.block_on(async {
            for _ in 0..100 {
                dapple::spawn(yield_now()).await.unwrap();
            }
            dapple::blocking(|| ()).await.unwrap();
        });
        eventually("all workers sleep", || rt.metrics().sleeping == 3);
        let counts = || {
            let metrics = rt.metrics();
            let each = metrics.workers.iter().map(|worker| (worker.runs, worker.sleeps, worker.steals));
            (each.collect::<Vec<_>>(), effort("idler"))
        };
        // Compares two moments some time apart, between which nothing may change. The pause is part of the test.
        let after_a_while = || {
            let before = counts();
            thread::sleep(Duration::from_millis(400));
            (counts() == before).then_some(before)
        };
        let at_rest = (0..20).find_map(|_| after_a_while()).expect("it comes to rest");
        assert!(at_rest.1.len() >= 4, "three workers, a thread of the pool, and whoever watches them");
        assert_eq!(after_a_while(), Some(at_rest), "and stays so");
    });
}

#[test]
fn a_dump_names_what_each_task_waits_for() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let (_sender, mut receiver) = dapple::channel::mpsc::unbounded::<()>();
        let named = |name: &'static str| dapple::task::Builder::new().name(name);
        rt.block_on(async {
            let tasks = [
                named("sleeper").spawn(async { _ = dapple::time::sleep(Duration::MAX).await }),
                named("listener").spawn(async move { _ = receiver.recv().await }),
            ];
            let waits_for = |name: &str| {
                let tasks = rt.dump().tasks;
                tasks.iter().find(|task| task.name == name).and_then(|task| task.waits_for)
            };
            eventually("both wait", || {
                waits_for("sleeper") == Some("a time") && waits_for("listener") == Some("a message")
            });
            assert!(rt.dump().to_string().contains("sleeper in "), "{}", rt.dump());
            assert!(rt.dump().to_string().contains(", for a time"), "{}", rt.dump());
            for task in tasks {
                task.abort();
            }
        });
    });
}
