//! Which color something runs in: keys, the main color, the current one, and promotion to a lane.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::task::Waker;
use std::thread;

use crate::common::{Alone, Event, give_way, in_both_worlds, rounds, runtime, start_thread, watched};
use dapple::Color;
use dapple::task::{self, yield_now};

mod accounts {
    pub(crate) fn color() -> dapple::Color {
        dapple::Color::keyed("user 7")
    }
}

mod mail {
    pub(crate) fn color() -> dapple::Color {
        dapple::Color::keyed(&String::from("user 7"))
    }
}

#[test]
fn the_same_key_is_the_same_color_for_all() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        rt.block_on(async {
            let here = accounts::color();
            assert_eq!(here, mail::color());
            assert_ne!(here, Color::keyed("user 8"));
            assert_eq!(dapple::spawn(async { mail::color() }).await.unwrap(), here);
            assert_eq!(dapple::blocking(mail::color).await.unwrap(), here);
            assert_eq!(here.call(Color::current).await.unwrap(), here);
            let handle = rt.handle();
            let there = start_thread(move || handle.keyed_color("user 7")).join().unwrap();
            assert_eq!(there, here);
        });
    });
}

#[test]
fn a_key_is_the_same_color_even_if_all_ask_at_once() {
    watched(|| {
        let rt = runtime(2);
        for key in 0..200_u32 {
            let start = Arc::new(Barrier::new(3));
            let ask = || {
                let (handle, start) = (rt.handle(), start.clone());
                thread::spawn(move || {
                    start.wait();
                    handle.keyed_color(&key)
                })
            };
            let threads = [ask(), ask(), ask()];
            let colors: HashSet<Color> = threads.map(|thread| thread.join().unwrap()).into();
            assert_eq!(colors.len(), 1);
        }
    });
}

#[test]
fn a_key_serializes_while_held_and_is_forgotten_between_uses() {
    in_both_worlds(20, || {
        let (rt, times) = (runtime(4), rounds(500, 10));
        let (alone, ran) = (Arc::new(Alone::default()), Arc::new(AtomicUsize::new(0)));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let (handle, alone, ran) = (rt.handle(), alone.clone(), ran.clone());
                start_thread(move || {
                    for _ in 0..times {
                        let (alone, ran) = (alone.clone(), ran.clone());
                        // The color goes out of scope at once: only the call holds it.
                        let call = handle.keyed_color("k").call(move || {
                            alone.visit(|| ran.store(ran.load(Ordering::Relaxed) + 1, Ordering::Relaxed));
                        });
                        crate::common::foreign_block_on(call).unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(ran.load(Ordering::SeqCst), 4 * times);
    });
}

#[test]
fn keys_are_told_apart_by_runtime() {
    watched(|| {
        let (one, other) = (runtime(1), runtime(1));
        let (a, b) = (one.handle().keyed_color("k"), other.handle().keyed_color("k"));
        assert_ne!(a, b);
        let meet = Arc::new(Barrier::new(2));
        let calls = [a, b].map(|color| {
            let meet = meet.clone();
            color.call(move || _ = meet.wait())
        });
        calls.into_iter().for_each(|call| crate::common::foreign_block_on(call).unwrap());
    });
}

#[test]
fn the_main_color_is_that_of_the_innermost_block_on() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let (outer, inner) = rt.block_on(async {
            let outer = Color::main();
            assert_eq!(outer, Color::current());
            assert_eq!(dapple::spawn_local(async { Color::main() }).await.unwrap(), outer);
            let inner = rt.block_on(async { Color::main() });
            assert_eq!(Color::main(), outer);
            (outer, inner)
        });
        assert_ne!(outer, inner);
        // Its block_on is over: what is sent there has nowhere to run.
        assert!(crate::common::foreign_block_on(outer.call(|| ())).is_err());
    });
}

#[test]
fn others_can_send_to_a_main_color() {
    watched(|| {
        let rt = runtime(1);
        let here = thread::current().id();
        let ran_on = rt.block_on(async {
            let main = Color::main();
            dapple::spawn(async move { main.call(|| thread::current().id()).await.unwrap() }).await
        });
        assert_eq!(ran_on.unwrap(), here);
    });
}

#[test]
fn the_current_color_stays_the_same_for_a_task() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let task = rt.spawn(async {
            let color = Color::current();
            assert_eq!(color, Color::current());
            let child = color.spawn(async { Color::current() }).await.unwrap();
            assert_eq!(child, color);
            yield_now().await;
            assert_eq!(Color::current(), color);
            let stranger = dapple::spawn(async { Color::current() }).await.unwrap();
            assert_ne!(stranger, color);
            let ids = (task::current().color_id(), color.call(|| task::current().color_id()).await.unwrap());
            assert_eq!(ids.0, ids.1);
        });
        rt.block_on(task).unwrap();
    });
}

#[test]
fn children_of_a_promoted_task_never_overlap_with_it() {
    in_both_worlds(20, || {
        let rt = runtime(4);
        let parents: Vec<_> = (0..rounds(20, 5))
            .map(|round| {
                rt.spawn(async move {
                    let alone = Arc::new(Alone::default());
                    for _ in 0..round {
                        alone.visit(|| ());
                        yield_now().await; // promoted at its first poll, or later
                    }
                    let children: Vec<_> = (0..rounds(50, 10))
                        .map(|_| {
                            let alone = alone.clone();
                            Color::current().spawn(async move {
                                for _ in 0..10 {
                                    alone.visit(|| ());
                                    yield_now().await;
                                }
                            })
                        })
                        .collect();
                    for child in children {
                        alone.visit(|| ());
                        child.await.unwrap();
                    }
                })
            })
            .collect();
        for parent in parents {
            rt.block_on(parent).unwrap();
        }
    });
}

/// From the moment it asks for its color, others may submit to it; they wait for the poll to end.
#[test]
fn a_task_that_shares_its_color_has_the_turn_at_once() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        for _ in 0..50 {
            let task = rt.spawn(async {
                let (color, alone) = (Color::current(), Arc::new(Alone::default()));
                let other = alone.clone();
                let call = start_thread(move || color.call(move || other.visit(|| ()))).join().unwrap();
                alone.visit(|| {
                    for _ in 0..50 {
                        give_way(); // the other worker could run it now
                    }
                    assert!(!call.is_finished());
                });
                call.await.unwrap();
            });
            rt.block_on(task).unwrap();
        }
    });
}

#[test]
fn promotion_beside_wake_ups_from_elsewhere_loses_none_and_overlaps_with_none() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        for round in 0..rounds(200, 10) {
            let (waker, stop) = (Event::default(), Event::default());
            let shared: Arc<std::sync::Mutex<Option<Waker>>> = Arc::default();
            let task = rt.spawn({
                let (shared, have_waker, stop) = (shared.clone(), waker.clone(), stop.clone());
                async move {
                    let alone = Arc::new(Alone::default());
                    let mut children = Vec::new();
                    let mut polls = 0;
                    std::future::poll_fn(|cx| {
                        alone.visit(|| {
                            polls += 1;
                            *shared.lock().unwrap() = Some(cx.waker().clone());
                            have_waker.set(); // from here on it is woken while it is being polled
                            if polls >= 2 + round % 3 && children.len() < 10 {
                                let alone = alone.clone();
                                children.push(Color::current().call(move || alone.visit(|| ())));
                            }
                        });
                        stop.poll(cx)
                    })
                    .await;
                    for child in children {
                        child.await.unwrap();
                    }
                }
            });
            waker.wait();
            let wake = start_thread(move || {
                for _ in 0..50 {
                    let waker = shared.lock().unwrap().clone();
                    waker.unwrap().wake();
                }
                stop.set();
            });
            wake.join().unwrap();
            rt.block_on(task).unwrap();
        }
    });
}
