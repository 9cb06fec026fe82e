//! Order of colors: runnables of one color run one after the other, in order; different colors overlap.
#![expect(clippy::async_yields_async, reason = "handles are handed over, to be awaited elsewhere")]

use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use crate::common::{Alone, Event, in_both_worlds, rounds, runtime, start_thread, watched};
use dapple::task::yield_now;
use dapple::{Color, JoinHandle};

/// The order in which runnables of one color ran. They must never overlap.
#[derive(Clone, Default)]
struct Log(Arc<(Alone, Mutex<Vec<usize>>)>);

impl Log {
    fn note(&self, i: usize) {
        self.0.0.visit(|| self.0.1.lock().unwrap().push(i));
    }

    fn notes(&self) -> Vec<usize> {
        self.0.1.lock().unwrap().clone()
    }
}

/// Tasks of other colors, so that there is something to steal and to be held up by.
fn bustle(tasks: usize) -> Vec<JoinHandle<()>> {
    let busy = || async {
        for _ in 0..20 {
            yield_now().await;
        }
    };
    (0..tasks).map(|_| dapple::spawn(busy())).collect()
}

async fn join_all<T>(handles: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut outputs = Vec::new();
    for handle in handles {
        outputs.push(handle.await.unwrap());
    }
    outputs
}

#[test]
fn same_color_runs_in_order_of_submission() {
    in_both_worlds(20, || {
        let rt = runtime(4);
        for (round, from_a_worker) in [false, true].into_iter().cycle().take(rounds(20, 2)).enumerate() {
            let log = Log::default();
            let submit = {
                let log = log.clone();
                async move {
                    let color = Color::new();
                    let mut handles = bustle(rounds(50, 10));
                    for i in 0..rounds(500, 50) {
                        let log = log.clone();
                        handles.push(match i % 3 {
                            0 => color.spawn(async move { log.note(i) }),
                            _ => color.call(move || log.note(i)),
                        });
                        if i % 64 == round {
                            yield_now().await;
                        }
                    }
                    join_all(handles).await;
                }
            };
            if from_a_worker {
                rt.block_on(rt.spawn(submit)).unwrap();
            } else {
                rt.block_on(submit);
            }
            assert_eq!(
                log.notes(),
                (0..rounds(500, 50)).collect::<Vec<_>>(),
                "from a worker: {from_a_worker}"
            );
        }
    });
}

#[test]
fn order_holds_between_threads_that_hand_over() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (color, log) = (rt.handle().color(), Log::default());
        let mut last = None;
        for i in 0..rounds(200, 20) {
            let (color, log) = (color.clone(), log.clone());
            // Each thread submits after the one before it has.
            last = start_thread(move || Some(color.call(move || log.note(i)))).join().unwrap();
        }
        rt.block_on(last.unwrap()).unwrap();
        assert_eq!(log.notes(), (0..rounds(200, 20)).collect::<Vec<_>>());
    });
}

/// The tasks of each poll go on in the order in which they were woken.
#[test]
fn tasks_that_yield_take_turns_in_order() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let log = Log::default();
        rt.block_on(async {
            let color = Color::new();
            // All are in line before the first one runs.
            let handles = color.call({
                let (color, log) = (color.clone(), log.clone());
                move || {
                    let each = |i| {
                        let log = log.clone();
                        color.spawn(async move {
                            for _ in 0..5 {
                                log.note(i);
                                yield_now().await;
                            }
                        })
                    };
                    (0..100).map(each).collect::<Vec<_>>()
                }
            });
            join_all(handles.await.unwrap()).await;
        });
        let rounds: Vec<usize> = (0..5).flat_map(|_| 0..100).collect();
        assert_eq!(log.notes(), rounds);
    });
}

/// Others submit while one of the color is running, which then submits too, and yields.
#[test]
fn a_running_task_spawns_behind_tasks_from_outside() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (color, log) = (rt.handle().color(), Log::default());
        let (running, submitted) = (Event::default(), Event::default());
        let first = color.spawn({
            let (color, log) = (color.clone(), log.clone());
            let (running, submitted) = (running.clone(), submitted.clone());
            async move {
                running.set();
                submitted.wait();
                let last = log.clone();
                let own = color.call(move || last.note(3));
                yield_now().await; // behind both
                log.note(4);
                own
            }
        });
        running.wait();
        for i in 0..3 {
            let log = log.clone();
            color.call(move || log.note(i)).detach();
        }
        submitted.set();
        rt.block_on(async { first.await.unwrap().await.unwrap() });
        assert_eq!(log.notes(), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn a_stolen_lane_keeps_its_order() {
    watched(|| {
        let rt = runtime(2);
        let log = Log::default();
        let home = rt.spawn({
            let log = log.clone();
            async move {
                let color = Color::new();
                let done = Event::default();
                for i in 0..200 {
                    let log = log.clone();
                    color.call(move || log.note(i)).detach();
                }
                let last = color.call({
                    let done = done.clone();
                    move || {
                        done.set();
                        thread::current().id()
                    }
                });
                done.wait(); // this worker is stuck until another one has run the lane
                (thread::current().id(), last.await.unwrap())
            }
        });
        let (here, there) = rt.block_on(home).unwrap();
        assert_ne!(here, there, "the lane was stolen");
        assert_eq!(log.notes(), (0..200).collect::<Vec<_>>());
    });
}

#[test]
fn panics_neither_break_the_order_nor_stop_the_lane() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let log = Log::default();
        rt.block_on(async {
            let color = Color::new();
            let each = |i: usize| {
                let log = log.clone();
                color.spawn(async move {
                    log.note(i);
                    yield_now().await;
                    assert!(!i.is_multiple_of(3), "as asked");
                    i
                })
            };
            let handles: Vec<_> = (0..300).map(each).collect();
            for (i, handle) in handles.into_iter().enumerate() {
                match handle.await {
                    Ok(output) => assert_eq!((output, false), (i, i.is_multiple_of(3))),
                    Err(error) => assert!(error.is_panic() && i.is_multiple_of(3)),
                }
            }
        });
        let first: Vec<usize> = log.notes();
        assert_eq!(first, (0..300).collect::<Vec<_>>());
    });
}

#[test]
fn what_is_aborted_in_line_does_not_run_and_the_others_keep_their_order() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (log, dropped, open) = (Log::default(), Log::default(), Event::default());
        rt.block_on(async {
            let color = Color::new();
            let blocked = open.clone();
            let first = color.call(move || blocked.wait());
            let each = |i: usize| {
                let (log, note_drop) = (log.clone(), NoteDrop(dropped.clone(), i));
                color.spawn(async move {
                    log.note(note_drop.1);
                    drop(note_drop);
                })
            };
            let handles: Vec<_> = (0..100).map(each).collect();
            handles.iter().step_by(2).for_each(JoinHandle::abort);
            assert_eq!(dropped.notes(), [], "an aborted future is dropped in its turn");
            open.set();
            first.await.unwrap();
            for (i, handle) in handles.into_iter().enumerate() {
                assert_eq!(handle.await.err().map(|e| e.is_aborted()), (i % 2 == 0).then_some(true));
            }
        });
        assert_eq!(log.notes(), (0..100).filter(|i| i % 2 == 1).collect::<Vec<_>>());
        assert_eq!(dropped.notes(), (0..100).collect::<Vec<_>>());
    });
}

/// Notes when it is dropped.
struct NoteDrop(Log, usize);

impl Drop for NoteDrop {
    fn drop(&mut self) {
        self.0.note(self.1);
    }
}

/// A turn that has begun may go on for a while; the rest of the lane is dropped unpolled. Both in order.
#[test]
fn at_shutdown_a_lane_ends_in_order() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (ended, handle) = (Log::default(), rt.handle());
        let color = handle.color();
        let first = color.call({
            let (color, ended) = (color.clone(), ended.clone());
            move || {
                let each = |i| {
                    let note = NoteDrop(ended.clone(), i);
                    color.spawn(async move { drop(note) })
                };
                let handles: Vec<JoinHandle<()>> = (0..1000).map(each).collect();
                drop(rt); // inside of its own task: does not wait
                handles
            }
        });
        let handles = crate::common::foreign_block_on(first).unwrap();
        let results: Vec<_> = handles.into_iter().map(crate::common::foreign_block_on).collect();
        let gone = results.iter().filter(|result| result.as_ref().is_err_and(|e| e.is_gone())).count();
        let ran = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(gone + ran, 1000);
        assert!(gone > 0, "a runtime that has ended does not run on");
        assert_eq!(ended.notes(), (0..1000).collect::<Vec<_>>());
    });
}

#[test]
fn different_colors_do_overlap() {
    type Spawn = fn(&dapple::Handle, Arc<Barrier>) -> JoinHandle<()>;
    let ways: [(&str, Spawn); 4] = [
        ("spawn", |rt, meet| rt.spawn(async move { _ = meet.wait() })),
        ("a new color", |rt, meet| rt.color().spawn(async move { _ = meet.wait() })),
        ("a key", |rt, meet| rt.keyed_color("one").call(move || _ = meet.wait())),
        ("promoted", |rt, meet| {
            rt.spawn(async move {
                let child = Color::current().spawn(async move { _ = meet.wait() });
                child.await.unwrap();
            })
        }),
    ];
    for (name, one) in ways {
        for (other_name, other) in ways {
            if (name, other_name) == ("a key", "a key") {
                continue;
            }
            watched(move || {
                println!("{name} beside {other_name}");
                let rt = runtime(2);
                let meet = Arc::new(Barrier::new(2));
                let both = [one(&rt.handle(), meet.clone()), other(&rt.handle(), meet)];
                rt.block_on(join_all(both.into()));
            });
        }
    }
}

#[test]
fn the_main_color_overlaps_with_others() {
    watched(|| {
        for on_a_worker in [false, true] {
            let meet = Arc::new(Barrier::new(2));
            let other = meet.clone();
            let root = async move {
                let handle = dapple::spawn(async move { _ = other.wait() });
                meet.wait();
                handle.await.unwrap();
            };
            if on_a_worker { dapple::run(root) } else { runtime(1).block_on(root) }
        }
    });
}

#[test]
fn a_spawned_task_can_run_before_its_parent_waits() {
    watched(|| {
        let rt = runtime(2);
        for _ in 0..20 {
            let parent = rt.spawn(async {
                let meet = Arc::new(Barrier::new(2));
                let other = meet.clone();
                let child = dapple::spawn(async move { _ = other.wait() });
                meet.wait(); // without an await: this worker is stuck
                child.await.unwrap();
            });
            rt.block_on(parent).unwrap();
        }
    });
}
