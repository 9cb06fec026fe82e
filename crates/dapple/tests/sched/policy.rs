//! Policies: where lanes go and which goes first, and that whatever they say nothing is lost.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::{Alone, rounds, watched};
use dapple::sched::{
    FirstLanes, Home, LaneView, LongestLane, Policy, Priority, ShortestQueue, WorkerView, Workers,
};
use dapple::sim::{Sim, work};
use dapple::task::{Builder, yield_now};
use dapple::time::Instant;
use dapple::{Color, Runtime};

const UNIT: Duration = Duration::from_millis(1);

/// The seed's Figure 3-4: callbacks 1 and 2 of colors of their own, 3 and 4 of one color. How many units of time
/// they take on two workers.
async fn figure_3_4(of_shared_color: Priority) -> u32 {
    let shared = Color::new();
    shared.set_priority(of_shared_color);
    let begun = Instant::now();
    let unit = || work(UNIT);
    let calls = [Color::new().call(unit), Color::new().call(unit), shared.call(unit), shared.call(unit)];
    for call in calls {
        call.await.unwrap();
    }
    (begun.elapsed().as_secs_f64() / UNIT.as_secs_f64()).round() as u32
}

fn units(policy: impl Policy, of_shared_color: Priority) -> u32 {
    Sim::new(1).workers(2).steady().policy(policy).run(figure_3_4(of_shared_color))
}

#[test]
fn longest_lane_picks_the_longest_lane() {
    assert_eq!(units(FirstLanes::new(8), Priority::Normal), 3);
    assert_eq!(units(FirstLanes::new(8), Priority::High), 2);
    assert_eq!(units(LongestLane, Priority::Normal), 2);
    assert_eq!(units(Home, Priority::Normal), 3);
    assert_eq!(units(Home, Priority::High), 2);
}

#[test]
fn new_lanes_go_to_the_shortest_queue() {
    let took = Sim::new(1).workers(4).steady().policy(ShortestQueue).run(async {
        let begun = Instant::now();
        let tasks: Vec<_> = (0..40).map(|_| dapple::spawn(async { work(UNIT) })).collect();
        for task in tasks {
            task.await.unwrap();
        }
        begun.elapsed()
    });
    assert!(took < UNIT * 11 && took >= UNIT * 10, "forty on four workers take ten: {took:?}");
}

/// Puts everything on one worker, and notes what it sees.
#[derive(Clone, Default)]
struct Curious(Arc<Mutex<Vec<(u64, usize, Priority)>>>);

impl Policy for Curious {
    fn place(&self, lane: &LaneView<'_>, workers: &Workers<'_>) -> usize {
        assert_eq!(workers.len(), 3);
        assert!(
            workers.iter().all(|worker| workers.get(worker.index()).is_some()) && workers.get(3).is_none()
        );
        assert!(lane.home() < 3);
        7 // there is no such worker: its home
    }

    fn weighs(&self) -> usize {
        usize::MAX // as many as there can be
    }

    fn weight(&self, lane: &LaneView<'_>, worker: &WorkerView<'_>) -> i64 {
        assert!(worker.index() < 3);
        if lane.tag() != 0 {
            self.0.lock().unwrap().push((lane.tag(), lane.len(), lane.priority()));
        }
        lane.tag() as i64
    }
}

#[test]
fn a_policy_sees_tags_lengths_and_priorities() {
    let seen = Curious::default();
    Sim::new(0).workers(3).policy(seen.clone()).run(async {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut calls = Vec::new();
        for tag in 1..=20 {
            let color = Color::new();
            color.set_tag(tag);
            assert_eq!(color.tag(), tag);
            color.set_priority(Priority::High);
            for _ in 0..tag {
                let order = order.clone();
                calls.push(color.call(move || {
                    work(UNIT);
                    order.lock().unwrap().push(tag);
                }));
            }
        }
        for call in calls {
            call.await.unwrap();
        }
    });
    let seen = seen.0.lock().unwrap();
    assert!(seen.iter().all(|(tag, len, priority)| *len as u64 <= *tag && *priority == Priority::High));
    assert!(seen.iter().any(|(tag, len, _)| *tag == 20 && *len >= 19), "what is in line is counted");
}

/// One lane weighs less than all others.
struct Unfair;

impl Policy for Unfair {
    fn weighs(&self) -> usize {
        16
    }

    fn weight(&self, lane: &LaneView<'_>, _worker: &WorkerView<'_>) -> i64 {
        -(lane.tag() as i64)
    }
}

#[test]
fn no_lane_starves() {
    Sim::new(0).workers(1).policy(Unfair).explore(0..10, || async {
        let stop = Arc::new(AtomicBool::new(false));
        let others: Vec<_> = (0..8)
            .map(|_| {
                let stop = stop.clone();
                dapple::spawn(async move {
                    while !stop.load(Ordering::Relaxed) {
                        work(Duration::from_micros(1));
                        yield_now().await;
                    }
                })
            })
            .collect();
        let light = Color::new();
        light.set_tag(1);
        light.call(move || stop.store(true, Ordering::Relaxed)).await.unwrap();
        for other in others {
            other.await.unwrap();
        }
    });
}

/// Tasks in colors, by tasks in no color, with wake-ups from everywhere; all of it ends.
async fn turmoil(tasks: usize) {
    let colors: Vec<_> = (0..5).map(|_| (Color::new(), Arc::new(Alone::default()))).collect();
    let (sender, mut receiver) = dapple::channel::mpsc::unbounded();
    let mut handles = Vec::new();
    for number in 0..tasks {
        let (color, alone) = colors[number % 5].clone();
        let sender = sender.clone();
        handles.push(dapple::spawn(async move {
            let priority = Priority::ALL[number % 4];
            let task = Builder::new().color(&color).priority(priority).spawn(async move {
                for _ in 0..3 {
                    alone.visit(|| ());
                    yield_now().await;
                }
                number
            });
            sender.send(task.await.unwrap()).await.unwrap();
        }));
    }
    drop(sender);
    let mut sum = 0;
    while let Ok(number) = receiver.recv().await {
        sum += number;
    }
    assert_eq!(sum, tasks * (tasks - 1) / 2);
    for handle in handles {
        handle.await.unwrap();
    }
}

fn in_turmoil<P: Policy + Clone>(policy: P) {
    Sim::new(0).workers(3).policy(policy.clone()).explore(0..50, || turmoil(60));
    watched(move || {
        let rt = Runtime::builder().workers(4).policy(policy).build().unwrap();
        for _ in 0..rounds(30, 1) {
            rt.block_on(turmoil(200));
            let inside = rt.spawn(turmoil(200));
            rt.block_on(inside).unwrap();
        }
        assert_eq!(rt.metrics().alive(), 0);
    });
}

#[test]
fn home_loses_no_task() {
    in_turmoil(Home);
}

#[test]
fn shortest_queue_loses_no_task() {
    in_turmoil(ShortestQueue);
}

#[test]
fn longest_lane_loses_no_task() {
    in_turmoil(LongestLane);
}

#[test]
fn first_lanes_loses_no_task() {
    in_turmoil(FirstLanes::new(4));
}

#[test]
fn what_is_in_line_when_a_runtime_with_a_policy_ends_is_dropped() {
    struct Count(Arc<AtomicUsize>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    fn try_with(policy: impl Policy) {
        let dropped = Arc::new(AtomicUsize::new(0));
        let rt = Runtime::builder().workers(2).policy(policy).build().unwrap();
        let colors = [(); 3].map(|()| rt.handle().color());
        for number in 0..300 {
            let count = Count(dropped.clone());
            let color = &colors[number % 3];
            let body = async move {
                let _count = count;
                loop {
                    yield_now().await;
                }
            };
            drop(if number % 2 == 0 { color.spawn(body) } else { rt.spawn(body) });
        }
        drop(rt);
        assert_eq!(dropped.load(Ordering::SeqCst), 300);
    }
    watched(|| {
        try_with(LongestLane);
        try_with(ShortestQueue);
        try_with(FirstLanes::new(3));
    });
}

#[test]
fn an_idle_runtime_with_a_policy_sleeps() {
    watched(|| {
        let rt = Runtime::builder().workers(2).policy(LongestLane).build().unwrap();
        rt.block_on(turmoil(20));
        // Each worker that has nothing to do falls asleep, whatever its closed ring looks like.
        while rt.metrics().sleeping < 2 {
            std::thread::yield_now();
        }
    });
}
