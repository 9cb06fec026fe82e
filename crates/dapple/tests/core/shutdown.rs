//! The end of a runtime: clean if tasks end by themselves, bounded and with names if they do not.
#![expect(clippy::async_yields_async, reason = "handles are handed over, to be awaited elsewhere")]

use std::future::pending;

use crate::common::{
    Drops, Event, Guard, foreign_block_on, in_both_worlds, in_virtual_time, rounds, runtime, start_thread,
    watched,
};
use dapple::sim;
use dapple::task::{Builder, yield_now};
use dapple::time::{Duration, Instant};
use dapple::{Color, JoinHandle, Runtime, runtime::Shutdown};

/// Long enough for anything that ends by itself.
const LONG: Duration = Duration::from_secs(50);
const SHORT: Duration = Duration::from_millis(20);
/// How long a runtime waits for its threads to leave.
const LEAVE: Duration = Duration::from_secs(1);
/// The longest pause between two checks of a shutdown whether all tasks have ended, and a little more.
const PAUSE: Duration = Duration::from_millis(6);

/// In a simulation: `took` is at least `least`, and little more.
#[track_caller]
fn assert_took(took: Duration, least: Duration) {
    if sim::is_simulated() {
        assert!(took >= least && took < least + PAUSE, "{took:?}, where {least:?} was right");
    }
}

fn names(report: &Shutdown) -> Vec<&str> {
    let mut names: Vec<&str> = report.still_running.iter().map(|task| task.name.as_str()).collect();
    names.sort_unstable();
    names
}

/// Runs until it is cancelled; returns whether a wait that begins afterwards is cancelled.
async fn until_cancelled(guard: Guard, begun: Event) -> bool {
    let _kept = guard;
    let other = dapple::spawn(async {});
    begun.set();
    while !dapple::task::current().is_cancelled() {
        yield_now().await;
    }
    // A wait that begins after the cancel is cancelled, even if its result is there.
    other.await.is_err_and(|error| error.is_cancelled())
}

#[test]
fn it_is_clean_when_tasks_end_on_cancel() {
    in_both_worlds(20, || {
        let (rt, drops) = (runtime(2), Drops::default());
        let color = rt.handle().color();
        let mut handles = Vec::new();
        for i in 0..50 {
            let begun = Event::default();
            let task = until_cancelled(drops.guard(), begun.clone());
            handles.push(if i % 2 == 0 { rt.spawn(task) } else { color.spawn(task) });
            begun.wait();
        }
        let report = rt.shutdown(LONG);
        assert!(report.is_clean(), "{report}");
        assert_eq!(report.to_string(), "all tasks ended in time");
        assert_eq!(drops.count(), 50);
        for handle in handles {
            assert!(foreign_block_on(handle).unwrap(), "its wait was cancelled, and it went on");
        }
    });
}

#[test]
fn what_is_spawned_while_cancelling_is_born_cancelled() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let begun = Event::default();
        let begin = begun.clone();
        let parent = rt.spawn(async move {
            begin.set();
            while !dapple::task::current().is_cancelled() {
                yield_now().await;
            }
            dapple::spawn(async {
                assert!(dapple::task::current().is_cancelled());
                dapple::spawn(async {}).await.unwrap_err().is_cancelled()
            })
        });
        begun.wait();
        assert!(rt.shutdown(LONG).is_clean());
        let child = foreign_block_on(parent).unwrap();
        assert!(foreign_block_on(child).unwrap(), "its wait was cancelled");
    });
}

#[test]
fn what_does_not_end_is_named_and_dropped() {
    in_both_worlds(20, || {
        let (rt, drops) = (runtime(2), Drops::default());
        let stubborn = |name: String, guard: Guard| {
            Builder::new().name(name).spawn(async move {
                let _kept = guard;
                pending::<()>().await;
            })
        };
        let handles: Vec<JoinHandle<()>> = rt.block_on(async {
            let mut handles: Vec<_> = (0..3).map(|i| stubborn(format!("s{i}"), drops.guard())).collect();
            let (color, guard) = (Color::new(), drops.guard());
            handles.push(Builder::new().name("colored").color(&color).spawn(async move {
                let _kept = guard;
                pending::<()>().await;
            }));
            handles
        });
        let begun = Instant::now();
        let report = rt.shutdown(SHORT);
        assert_took(begun.elapsed(), SHORT);
        assert!(!report.is_clean());
        assert_eq!(names(&report), ["colored", "s0", "s1", "s2"]);
        let text = report.to_string();
        assert!(text.starts_with("4 tasks were still running") && text.contains("s1 in color"), "{text}");
        assert_eq!(drops.count(), 4, "dropped by the time of the report");
        for handle in handles {
            assert!(foreign_block_on(handle).unwrap_err().is_gone());
        }
    });
}

/// A runtime with a task that does not return from its poll, others that wait, and a call that
/// blocks. All are dropped once `release` is set, and none before.
fn stuck(drops: &Drops) -> (Runtime, Event, Vec<JoinHandle<()>>) {
    let rt = runtime(2);
    let release = Event::default();
    let mut handles = Vec::new();
    rt.block_on(async {
        for name in ["stuck in poll", "stuck in color", "stuck in blocking"] {
            let (guard, begun, go) = (drops.guard(), Event::default(), release.clone());
            let begin = begun.clone();
            let block = move || {
                let _kept = guard;
                begin.set();
                go.wait();
            };
            let builder = Builder::new().name(name);
            handles.push(match name {
                "stuck in poll" => builder.spawn(async move { block() }),
                "stuck in color" => builder.color(&Color::new()).spawn(async move { block() }),
                _ => builder.blocking(block),
            });
            begun.wait();
        }
    });
    for name in ["waits 0", "waits 1"] {
        let guard = drops.guard();
        // Both workers are stuck: these do not even begin.
        handles.push(rt.block_on(async {
            Builder::new().name(name).spawn(async move {
                let _kept = guard;
                pending::<()>().await;
            })
        }));
    }
    (rt, release, handles)
}

const ALL_STUCK: [&str; 5] = ["stuck in blocking", "stuck in color", "stuck in poll", "waits 0", "waits 1"];

#[test]
fn it_ends_in_bounded_time_with_tasks_that_block_their_threads() {
    in_both_worlds(20, || {
        let drops = Drops::default();
        let (rt, release, handles) = stuck(&drops);
        let begun = Instant::now();
        let report = rt.shutdown(SHORT);
        assert_took(begun.elapsed(), SHORT + LEAVE);
        assert_eq!(names(&report), ALL_STUCK);
        assert_eq!(drops.count(), 0, "what is stuck goes on");
        release.set();
        for (handle, name) in handles.into_iter().zip(["ok", "ok", "ok", "gone", "gone"]) {
            assert_eq!(foreign_block_on(handle).is_ok(), name == "ok");
        }
        assert_eq!(drops.count(), 5, "each was dropped once");
    });
}

#[test]
fn dropping_a_runtime_with_stuck_tasks_does_not_hang() {
    in_both_worlds(20, || {
        let drops = Drops::default();
        let (rt, release, handles) = stuck(&drops);
        let begun = Instant::now();
        drop(rt);
        assert_took(begun.elapsed(), LEAVE);
        assert_eq!(drops.count(), 0);
        release.set();
        handles.into_iter().for_each(|handle| drop(foreign_block_on(handle)));
        assert_eq!(drops.count(), 5);
    });
}

#[test]
fn dropping_a_runtime_drops_each_future_once() {
    in_both_worlds(20, || {
        for round in 0..rounds(50, 2) {
            let (rt, drops) = (runtime(2), Drops::default());
            let color = rt.handle().keyed_color("k");
            let never = Event::default();
            let task = |i: u32| {
                let (guard, never) = (drops.guard(), never.clone());
                async move {
                    let _kept = guard;
                    for _ in 0..i % 4 {
                        yield_now().await;
                    }
                    match i % 3 {
                        0 => never.happened().await,
                        1 => loop {
                            yield_now().await;
                        },
                        _ => {}
                    }
                }
            };
            let count = rounds(200, 40) + round;
            for i in 0..count {
                let handle = match i % 5 {
                    0 | 1 => rt.spawn(task(i)),
                    2 | 3 => color.spawn(task(i)),
                    _ => rt.handle().color().spawn(task(i)),
                };
                handle.detach();
            }
            drop(rt);
            assert_eq!(drops.count(), count as usize);
            never.set(); // wakes tasks that are gone
        }
    });
}

#[test]
fn spawning_from_other_threads_during_shutdown_loses_no_task() {
    in_both_worlds(20, || {
        for _ in 0..rounds(20, 2) {
            let (rt, drops) = (runtime(2), Drops::default());
            let (handle, color, spawned) = (rt.handle(), rt.handle().color(), Event::default());
            let (guards, begin) = (drops.clone(), spawned.clone());
            let spawner = start_thread(move || {
                let mut count = 0;
                let mut results = Vec::new();
                loop {
                    let (one, two, three) = (guards.guard(), guards.guard(), guards.guard());
                    let last = handle.spawn(async move { drop(one) });
                    results.push(color.spawn(async move { drop(two) }));
                    results.push(handle.blocking(move || drop(three)));
                    count += 3;
                    begin.set();
                    if foreign_block_on(last).is_err_and(|error| error.is_gone()) {
                        return (count, results);
                    }
                }
            });
            spawned.wait();
            drop(rt);
            let (count, results) = spawner.join().unwrap();
            for result in results {
                assert!(foreign_block_on(result).map_or_else(|error| error.is_gone(), |()| true));
            }
            assert_eq!(drops.count(), count);
        }
    });
}

#[test]
fn shutdown_waits_for_blocking_calls() {
    in_virtual_time(50, || {
        let (rt, drops) = (runtime(1), Drops::default());
        let (begun, guard) = (Event::default(), drops.guard());
        let begin = begun.clone();
        let call = rt.handle().blocking(move || {
            let _kept = guard;
            begin.set();
            sim::work(SHORT); // there is no event for the start of the shutdown
        });
        begun.wait();
        let begun = Instant::now();
        assert!(rt.shutdown(LONG).is_clean());
        assert_took(begun.elapsed(), SHORT - Duration::from_millis(1));
        assert_eq!(drops.count(), 1);
        assert!(foreign_block_on(call).is_ok());
    });
}

/// A runtime with one blocking call, which runs until `release` is set.
fn blocked() -> (Runtime, Event, JoinHandle<()>) {
    let (rt, release, begun) = (runtime(2), Event::default(), Event::default());
    let (go, begin) = (release.clone(), begun.clone());
    let call = rt.block_on(async {
        Builder::new().name("call").blocking(move || {
            begin.set();
            go.wait();
        })
    });
    begun.wait();
    (rt, release, call)
}

/// The shutdown of a runtime whose worker is stuck in a poll begins first, and takes `LEAVE`. The shutdown of a runtime with
/// a blocking call begins later and ends earlier. The call is released after both.
#[test]
fn a_blocking_call_that_runs_is_named_and_not_waited_for() {
    for timeout in [Some(Duration::ZERO), None] {
        watched(move || {
            let (stuck_rt, stuck_release, stuck_handles) = stuck(&Drops::default());
            let (rt, release, call) = blocked();
            let (begun, is_over) = (Event::default(), Event::default());
            let (begin, over) = (begun.clone(), is_over.clone());
            let other = start_thread(move || {
                begin.set();
                drop(stuck_rt);
                over.set();
            });
            let waits = rt.block_on(async { Builder::new().name("waits").spawn(pending::<()>()) });
            begun.wait();
            std::thread::sleep(SHORT); // so that the other shutdown, if it took as long, would end first
            match timeout {
                Some(timeout) => assert_eq!(names(&rt.shutdown(timeout)), ["call", "waits"]),
                None => drop(rt),
            }
            assert!(!is_over.is_set(), "it took as long as the end of a runtime whose worker is stuck");
            assert!(foreign_block_on(waits).unwrap_err().is_gone(), "what waits was dropped");
            other.join().unwrap();
            release.set();
            stuck_release.set();
            assert!(foreign_block_on(call).is_ok(), "the call went on");
            stuck_handles.into_iter().for_each(|handle| drop(foreign_block_on(handle)));
        });
    }
}

#[test]
fn an_endless_timeout_is_no_overflow() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        rt.spawn(until_cancelled(Drops::default().guard(), Event::default())).detach();
        assert!(rt.shutdown(Duration::MAX).is_clean());
    });
}
