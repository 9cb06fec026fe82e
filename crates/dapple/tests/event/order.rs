//! In which order callbacks run: in that of their submission, ahead of new events, and not for ever ahead.

use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use crate::common::{Alone, Event, in_both_worlds, rounds, runtime, start_thread, watched};
use dapple::event::{self, Callback, Registration};
use dapple::sched::Priority;
use dapple::sim::Sim;
use dapple::task::yield_now;
use dapple::time::{Duration, Instant};
use dapple::{Color, JoinHandle, Runtime};

/// The order in which callbacks and tasks of one color ran. Fails if two of them run at the same time.
#[derive(Clone)]
struct Log<T>(Arc<(Alone, Mutex<Vec<T>>)>);

impl<T: Clone> Log<T> {
    fn new() -> Log<T> {
        Log(Arc::new((Alone::default(), Mutex::new(Vec::new()))))
    }

    fn note(&self, what: T) {
        self.0.0.visit(|| self.0.1.lock().unwrap().push(what));
    }

    fn notes(&self) -> Vec<T> {
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

#[test]
fn callbacks_of_a_color_run_in_the_order_submitted() {
    in_both_worlds(30, || {
        let rt = runtime(4);
        for from_a_worker in [false, true] {
            let log = Log::new();
            let submit = {
                let log = log.clone();
                async move {
                    let (color, other) = (Color::new(), Color::new());
                    let mut handles = bustle(rounds(50, 10));
                    for i in 0..rounds(600, 60) {
                        let log = log.clone();
                        let callback = Callback::new(move || log.note(i)).color(&color);
                        // However it is made.
                        handles.push(match i % 3 {
                            0 => event::now(callback),
                            1 => event::now(callback.name("named")),
                            _ => event::now(callback.or_else(|| unreachable!("nothing is refused"))),
                        });
                        event::now(Callback::new(|| ()).color(&other)).detach();
                    }
                    for handle in handles {
                        handle.await.unwrap();
                    }
                }
            };
            if from_a_worker {
                rt.block_on(rt.spawn(submit)).unwrap();
            } else {
                rt.block_on(submit);
            }
            assert_eq!(
                log.notes(),
                (0..rounds(600, 60)).collect::<Vec<_>>(),
                "from a worker: {from_a_worker}"
            );
        }
    });
}

#[test]
fn callbacks_submitted_by_a_callback_queue_at_the_end() {
    in_both_worlds(30, || {
        let rt = runtime(3);
        let log = Log::new();
        rt.block_on(async {
            let color = Color::new();
            let (inner, own) = (log.clone(), color.clone());
            // All of the first generation are in line before one of them runs.
            let first = event::now(
                Callback::new(move || {
                    let generation = |log: &Log<u32>, n: u32| {
                        let (log, color) = (log.clone(), own.clone());
                        Callback::new(move || {
                            log.note(n);
                            let log = log.clone();
                            event::now(Callback::new(move || log.note(n + 10)).color(&color))
                        })
                        .color(&own)
                    };
                    (0..10).map(|n| event::now(generation(&inner, n))).collect::<Vec<_>>()
                })
                .color(&color),
            );
            for child in first.await.unwrap() {
                child.await.unwrap().await.unwrap();
            }
        });
        assert_eq!(log.notes(), (0..20).collect::<Vec<_>>());
    });
}

#[test]
fn callbacks_without_a_color_run_in_order_of_submission() {
    in_both_worlds(30, || {
        let rt = runtime(3);
        let log = Log::new();
        let submitters = 3;
        rt.block_on(async {
            let tasks: Vec<_> = (0..submitters)
                .map(|who| {
                    let log = log.clone();
                    dapple::spawn(async move {
                        let submit = |i| {
                            let log = log.clone();
                            event::now(Callback::new(move || log.note((who, i))))
                        };
                        let mut handles: Vec<_> = (0..20).map(submit).collect();
                        yield_now().await;
                        handles.extend((20..40).map(submit));
                        for handle in handles {
                            handle.await.unwrap();
                        }
                    })
                })
                .collect();
            for task in tasks {
                task.await.unwrap();
            }
        });
        for who in 0..submitters {
            let of_one = log.notes().into_iter().filter(|note| note.0 == who);
            assert_eq!(of_one.map(|note| note.1).collect::<Vec<_>>(), (0..40).collect::<Vec<_>>());
        }
    });
}

/// Calls back when something has come, and reads it.
fn on_byte(near: UnixStream, color: &Color, mut callback: impl FnMut() + Send + 'static) -> Registration {
    let fd = near.try_clone().unwrap();
    let read = move || {
        assert_eq!((&near).read(&mut [0; 1]).unwrap(), 1);
        callback();
    };
    event::readable(&fd, Callback::new(read).color(color)).unwrap()
}

/// Submits one after the other, each by the one before it.
fn chain(log: &Log<&'static str>, color: &Color, left: usize) {
    if left > 0 {
        let (log, own) = (log.clone(), color.clone());
        let link = move || {
            log.note("now");
            chain(&log, &own, left - 1);
        };
        event::now(Callback::new(link).color(color)).detach();
    }
}

/// On one worker alone, which asks the kernel for events between turns, not within.
#[dapple::test(workers = 1)]
async fn callbacks_go_ahead_of_new_events() {
    for color in [Color::main(), Color::new()] {
        let (log, seen) = (Log::new(), Event::default());
        let (near, mut far) = UnixStream::pair().unwrap();
        let reading = on_byte(near, &color, {
            let (log, seen) = (log.clone(), seen.clone());
            move || {
                log.note("event");
                seen.set();
            }
        });
        let (begin, own) = (log.clone(), color.clone());
        let started = move || {
            far.write_all(b"!").unwrap();
            chain(&begin, &own, 30);
            far // stays open
        };
        let _far = event::now(Callback::new(started).color(&color)).await.unwrap();
        seen.happened().await;
        assert_eq!(log.notes(), [vec!["now"; 30], vec!["event"]].concat());
        reading.withdraw().await.unwrap();
    }
}

/// A callback that submits itself again until `stop` is set.
fn without_end(color: &Color, stop: &Arc<AtomicBool>) {
    if !stop.load(SeqCst) {
        let (own, stop) = (color.clone(), stop.clone());
        event::now(Callback::new(move || without_end(&own, &stop)).color(color)).detach();
    }
}

/// If events starved, this would not end.
#[test]
fn callbacks_without_end_do_not_starve_events() {
    watched(|| {
        for workers in [1, 2] {
            for busy in [1, 5] {
                runtime(workers).block_on(async {
                    let color = Color::new();
                    // In the color of the event, in the main color, and in others, on each worker.
                    let colors: Vec<_> = [color.clone(), Color::main()]
                        .into_iter()
                        .chain((0..busy).map(|_| Color::new()))
                        .collect();
                    let stop = Arc::new(AtomicBool::new(false));
                    colors.iter().for_each(|color| without_end(color, &stop));
                    let (near, mut far) = UnixStream::pair().unwrap();
                    let (seen, timed) = (Event::default(), Event::default());
                    let reading = on_byte(near, &color, {
                        let seen = seen.clone();
                        move || seen.set()
                    });
                    let timer = event::after(
                        Duration::from_millis(1),
                        Callback::new({
                            let timed = timed.clone();
                            move || timed.set()
                        })
                        .color(&color),
                    );
                    far.write_all(b"!").unwrap();
                    seen.happened().await;
                    timed.happened().await;
                    stop.store(true, SeqCst);
                    reading.withdraw().await.unwrap();
                    timer.withdraw().await.unwrap();
                });
            }
        }
    });
}

/// Two that are always ready take turns, and others of their color come between.
#[test]
fn what_is_always_ready_lets_others_of_its_color_run() {
    watched(|| {
        runtime(2).block_on(async {
            let (color, log, done) = (Color::new(), Log::new(), Event::default());
            let null = std::fs::File::open("/dev/null").unwrap();
            let registrations = color.call({
                let (color, log, done) = (color.clone(), log.clone(), done.clone());
                move || {
                    let always = |name: &'static str, left: usize| {
                        let (log, done, mut left) = (log.clone(), done.clone(), left);
                        let callback = move || {
                            log.note(name);
                            left -= 1;
                            if left > 0 {
                                return ControlFlow::Continue(());
                            }
                            done.set();
                            ControlFlow::Break(())
                        };
                        event::readable(&null, Callback::new(callback).color(&color)).unwrap()
                    };
                    let registrations = [always("a", 20), always("b", 20)];
                    chain(&log, &color, 20);
                    registrations
                }
            });
            let registrations = registrations.await.unwrap();
            done.happened().await;
            for registration in registrations {
                registration.withdraw().await.unwrap();
            }
            assert_eq!(log.notes()[..57], ["a", "b", "now"].repeat(19)[..]);
        });
    });
}

/// Threads outside of the runtime submit to a color, too.
#[test]
fn from_outside_of_the_runtime() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (color, log) = (rt.handle().color(), Log::new());
        let thread = start_thread({
            let log = log.clone();
            move || {
                let submit = |i| {
                    let log = log.clone();
                    event::now(Callback::new(move || log.note(i)).color(&color))
                };
                (0..20).map(submit).collect::<Vec<_>>()
            }
        });
        for handle in thread.join().unwrap() {
            rt.block_on(handle).unwrap();
        }
        assert_eq!(log.notes(), (0..20).collect::<Vec<_>>());
    });
}

/// Priority is a hint, but a good one: of the callbacks in one worker's queue, the most urgent run first, both for
/// `event::now` and for timers.
#[test]
fn what_is_urgent_goes_first() {
    for seed in 0..50 {
        Sim::new(seed).workers(1).steady().run(async {
            for at_a_time in [false, true] {
                let (log, all) = (Arc::new(Mutex::new(Vec::new())), Event::default());
                let note = |priority| {
                    let (log, all) = (log.clone(), all.clone());
                    let note = move || {
                        let mut log = log.lock().unwrap();
                        log.push(priority);
                        if log.len() == 40 {
                            all.set();
                        }
                    };
                    Callback::new(note).color(&Color::new()).priority(priority)
                };
                let due = Instant::now() + Duration::from_millis(1);
                for i in 0..40 {
                    let callback = note(Priority::ALL[i % 4]);
                    match at_a_time {
                        false => event::now(callback).detach(),
                        true => event::at(due, callback).detach(),
                    }
                }
                all.happened().await;
                let log = log.lock().unwrap();
                // Not all ten: now and then a less urgent callback runs first, so that it does not wait for ever.
                let early = log[..10].iter().filter(|&&priority| priority == Priority::Urgent).count();
                assert!(early >= 7, "{log:?}");
                let low = log.iter().rev().take(10).filter(|&&priority| priority == Priority::Low).count();
                assert!(low >= 7, "{log:?}");
            }
        });
    }
}

/// How many callbacks, each in a color of its own and submitted by the one before it, run between a byte's being there
/// and the callback that reads it.
fn callbacks_ahead_of_an_event(rt: &Runtime) -> usize {
    fn link(ahead: &Arc<AtomicUsize>, seen: &Event) {
        if !seen.is_set() {
            ahead.fetch_add(1, SeqCst);
            let (ahead, seen) = (ahead.clone(), seen.clone());
            event::now(Callback::new(move || link(&ahead, &seen)).color(&Color::new())).detach();
        }
    }
    rt.block_on(async {
        let (near, mut far) = UnixStream::pair().unwrap();
        let (ahead, seen, color) = (Arc::new(AtomicUsize::new(0)), Event::default(), Color::new());
        let reading = on_byte(near, &color, {
            let seen = seen.clone();
            move || seen.set()
        });
        color.call(|| ()).await.unwrap(); // it waits
        let (begun, until) = (ahead.clone(), seen.clone());
        let start = move || {
            far.write_all(b"!").unwrap();
            link(&begun, &until);
            far // stays open
        };
        let _far = event::now(Callback::new(start).color(&Color::new())).await.unwrap();
        seen.happened().await;
        reading.withdraw().await.unwrap();
        ahead.load(SeqCst)
    })
}

#[test]
fn how_soon_events_are_asked_for_can_be_set() {
    watched(|| {
        let ahead = |priority| {
            let rt = Runtime::builder().workers(1).event_priority(priority).build().unwrap();
            (0..20).map(|_| callbacks_ahead_of_an_event(&rt)).collect::<Vec<_>>()
        };
        // Before each runnable: nothing but what is in line gets ahead.
        let urgent = ahead(Priority::Urgent);
        assert!(urgent.iter().all(|&n| n <= 4), "{urgent:?}");
        // Rarely: unless the thread was held up, which it is not every time.
        let low = ahead(Priority::Low);
        assert!(low.iter().any(|&n| n > 50), "{low:?}");
    });
}
