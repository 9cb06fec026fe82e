//! A runtime from its start to its end: entering it, several at once, asking it, idling.

mod common;

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::Duration;

use common::{Drops, Event, eventually, runtime, watched};
use dapple::task::{self, Builder, yield_now};
use dapple::{Color, Runtime, TaskState};

#[dapple::main]
async fn entry() -> u32 {
    dapple::spawn(async { 6 * 7 }).await.unwrap()
}

#[dapple::main(workers = 1)]
async fn fallible_entry() -> Result<(), String> {
    Err(format!("on {:?}", thread::current().name()))?;
    Ok(())
}

#[test]
fn main_returns_what_its_body_does() {
    assert_eq!(entry(), 42);
    assert!(fallible_entry().unwrap_err().starts_with("on "));
}

/// With one worker, what is spawned runs on the thread of the test itself.
#[dapple::test(workers = 1)]
async fn run_makes_its_thread_the_first_worker() {
    let there = dapple::spawn(async { thread::current().id() }).await.unwrap();
    assert_eq!(there, thread::current().id());
}

#[dapple::test(workers = 3)]
async fn a_test_has_the_workers_that_it_asks_for() {
    let meet = Arc::new(Barrier::new(3));
    let tasks =
        [meet.clone(), meet.clone(), meet].map(|meet| dapple::spawn(async move { drop(meet.wait()) }));
    for task in tasks {
        task.await.unwrap();
    }
}

#[test]
fn run_and_block_on_borrow_and_return_what_is_not_send() {
    watched(|| {
        let rt = runtime(1);
        let (count, mut text) = (Cell::new(0), String::new());
        let from_run = dapple::run(async {
            count.set(count.get() + 1);
            yield_now().await;
            Rc::new(1)
        });
        let from_block_on = rt.block_on(async {
            count.set(count.get() + 1);
            text.push('x');
            yield_now().await;
            Rc::new(2)
        });
        assert_eq!((*from_run, *from_block_on, count.get(), text.as_str()), (1, 2, 2, "x"));
    });
}

#[test]
fn several_runtimes_live_side_by_side() {
    watched(|| {
        let names = ["one", "two", "three"];
        let build = |name: &&str| Runtime::builder().workers(2).thread_name(*name).build().unwrap();
        let runtimes: Vec<Runtime> = names.iter().map(build).collect();
        for (rt, name) in runtimes.iter().zip(names) {
            for _ in 0..20 {
                let where_it_ran = rt.spawn(async { thread::current().name().unwrap().to_owned() });
                let ran_on = runtimes[0].block_on(where_it_ran).unwrap();
                assert!(ran_on == format!("{name}-0") || ran_on == format!("{name}-1"), "{ran_on}");
            }
        }
        // Each goes for itself.
        let mut runtimes = runtimes.into_iter();
        drop(runtimes.next());
        for rt in runtimes {
            assert_eq!(rt.block_on(async { dapple::spawn(async { 1 }).await.unwrap() }), 1);
        }
    });
}

#[test]
fn block_on_works_from_many_threads_at_once() {
    watched(|| {
        let rt = runtime(2);
        let meet = Barrier::new(8);
        let main_colors: HashSet<Color> = thread::scope(|scope| {
            let enter = |_| {
                scope.spawn(|| {
                    rt.block_on(async {
                        meet.wait(); // all are inside
                        for i in 0..200 {
                            let local = dapple::spawn_local(async move { i });
                            assert_eq!(dapple::spawn(async move { i }).await.unwrap(), local.await.unwrap());
                        }
                        Color::main()
                    })
                })
            };
            let threads: Vec<_> = (0..8).map(enter).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(main_colors.len(), 8);
    });
}

#[test]
fn local_tasks_and_their_outputs_live_and_die_on_their_thread() {
    /// Tells where it is dropped.
    struct Mark(mpsc::Sender<thread::ThreadId>, #[expect(dead_code, reason = "not Send")] Rc<()>);
    impl Drop for Mark {
        fn drop(&mut self) {
            self.0.send(thread::current().id()).unwrap();
        }
    }
    watched(|| {
        let rt = runtime(2);
        let (send, receive) = mpsc::channel();
        let mark = || Mark(send.clone(), Rc::new(()));
        let body = async || {
            let ended = dapple::spawn_local({
                let mark = mark();
                async move { mark }
            });
            dapple::spawn_local({
                let mark = mark();
                async move { mark }
            })
            .detach();
            let (leak, leaked) = mpsc::channel();
            dapple::spawn_local({
                let mark = mark();
                async move {
                    let _kept = mark;
                    std::future::poll_fn(|cx| {
                        leak.send(cx.waker().clone()).unwrap();
                        std::task::Poll::<()>::Pending
                    })
                    .await;
                }
            })
            .detach();
            dapple::spawn_local({
                let mark = mark();
                async move { drop(mark) }
            })
            .abort();
            yield_now().await;
            let waker = dapple::spawn(async move { leaked.recv().unwrap() }).await.unwrap();
            // Woken from elsewhere just when the block is over.
            let waker = thread::spawn(move || {
                waker.wake_by_ref();
                waker
            });
            (ended, waker)
        };
        for on_a_worker in [false, true] {
            let (ended, waker) = if on_a_worker { dapple::run(body()) } else { rt.block_on(body()) };
            drop(ended);
            drop(waker.join().unwrap());
            let dropped_on: Vec<_> = receive.try_iter().collect();
            assert_eq!(dropped_on, [thread::current().id(); 4], "on a worker: {on_a_worker}");
        }
    });
}

#[test]
fn what_is_left_when_run_returns_is_dropped() {
    watched(|| {
        let drops = Drops::default();
        let guards = || (drops.guard(), drops.guard(), drops.guard());
        let (a, b, c) = guards();
        dapple::run(async {
            // Ends by itself when cancelled.
            dapple::spawn(async move {
                let _kept = a;
                assert!(dapple::spawn(std::future::pending::<()>()).await.unwrap_err().is_cancelled());
            })
            .detach();
            Color::new()
                .spawn(async move {
                    let _kept = b;
                    std::future::pending::<()>().await;
                })
                .detach();
            dapple::spawn_local(async move {
                let _kept = c;
                std::future::pending::<()>().await;
            })
            .detach();
        });
        assert_eq!(drops.count(), 3);
    });
}

#[test]
fn dump_tells_every_task_by_name_color_and_state() {
    watched(|| {
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
            assert!(text.contains("blocks in no color") && text.contains("runtime.rs"), "{text}");
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
    watched(|| {
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
        for _ in 0..if cfg!(miri) { 10 } else { 3000 } {
            let dump = rt.dump();
            let is_known = |name: &str| name.starts_with("named ") || name.contains("runtime::");
            assert!(dump.tasks.iter().all(|task| is_known(&task.name)), "{dump}");
            seen += dump.tasks.len();
        }
        assert!(seen > 0);
        stop.set();
        rt.block_on(churn).unwrap();
    });
}

#[test]
fn metrics_count_what_happened() {
    watched(|| {
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
        assert!(after.workers.iter().any(|worker| worker.sleeps > 0));
        assert_eq!((after.blocking_threads, after.blocking_queued), (0, 0));
    });
}

/// Context switches and CPU time (in ticks) of the threads whose names start so.
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
        // How things are after a while in which nothing has changed. The time is what this is about.
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
