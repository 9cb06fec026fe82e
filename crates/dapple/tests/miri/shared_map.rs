//! Small tests of all that a shared map owns in memory, for Miri (`ci/miri`): few entries, every path.
//!
//! Futures are polled by hand, or by threads that park: no runtime, no clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;

use crate::common::{Drops, Event, Guard, foreign_block_on, panic_of};
use crate::shared_map_common::Hand;
use dapple::{Cancelled, SharedMap};

/// A value that owns memory, and counts its drops.
type Value = Arc<(String, Guard)>;

fn value(text: &str, drops: &Drops) -> Value {
    Arc::new((text.to_owned(), drops.guard()))
}

#[test]
fn entries_come_and_go() {
    let drops = Drops::default();
    let map = SharedMap::named(String::from("owned"));
    for key in 0..100_u32 {
        map.insert(key.to_string(), value("first", &drops));
    }
    for key in 0..50_u32 {
        assert!(map.insert(key.to_string(), value("second", &drops)).is_some());
    }
    assert_eq!(drops.count(), 50);
    assert_eq!(map.get("7").unwrap().0, "second");
    assert!(map.remove("7").is_some() && map.get("7").is_none());
    map.retain(|key, _| key.len() == 1);
    assert_eq!((map.len(), drops.count()), (9, 141));
    let mut seen = String::new();
    map.for_each(|key, value| seen.push_str(&map.read(key, |own| own.0.clone() + &value.0).unwrap()));
    assert_eq!(seen.len(), 9 * 12);
    assert_eq!(format!("{:?}", SharedMap::from([(1, 2)])), "{1: 2}");
    let other = map.clone();
    drop(map);
    assert_eq!(drops.count(), 141);
    drop(other);
    assert_eq!(drops.count(), 150);
}

#[test]
fn computed_waited_for_dropped_and_forgotten() {
    let (map, drops, go) = (SharedMap::new(), Drops::default(), Event::default());
    let slow = async || {
        go.happened().await;
        value("slow", &drops)
    };
    let mut one = Hand::waiting(map.get_or_insert_with("key".to_owned(), slow));
    let mut two = Hand::waiting(map.get_or_insert_with("key".to_owned(), async || value("two", &drops)));
    drop(Hand::waiting(map.get_or_insert_with("key".to_owned(), async || value("three", &drops))));
    drop(Hand::new(map.get_or_insert_with("key".to_owned(), async || value("never polled", &drops))));
    go.set();
    assert!(one.poll().is_ready());
    let Poll::Ready(Ok(found)) = two.poll() else { panic!("there") };
    assert_eq!(found.0, "slow");
    drop((one, two, found));
    assert_eq!(drops.count(), 0);
    map.clear();
    assert_eq!(drops.count(), 1);
}

#[test]
fn taken_over_after_an_error_a_panic_and_a_drop() {
    let (map, go) = (SharedMap::new(), Event::default());
    let fails = async |panics: bool| {
        go.happened().await;
        if panics { panic!("planned") } else { Err(Cancelled) }
    };
    let mut errs = Hand::waiting(map.get_or_try_insert_with(1, || fails(false)));
    let mut panics = Hand::waiting(map.get_or_try_insert_with(1, || fails(true)));
    let mut dropped =
        Hand::waiting(map.get_or_try_insert_with(1, std::future::pending::<Result<_, Cancelled>>));
    let mut last = Hand::waiting(map.get_or_try_insert_with(1, async || Ok::<_, Cancelled>(Box::new(5))));
    go.set();
    assert_eq!(errs.poll(), Poll::Ready(Err(Cancelled)));
    assert_eq!(panic_of(|| panics.poll()), "planned");
    assert!(dropped.poll().is_pending() && last.poll().is_pending());
    map.retain(|_, _| true);
    drop(dropped);
    assert_eq!(last.poll(), Poll::Ready(Ok(Box::new(5))));
}

#[test]
fn left_behind_inside_of_a_closure() {
    let map = SharedMap::from([(0, vec![0])]);
    let mut one = Some(Hand::waiting(map.get_or_insert_with(1, async || std::future::pending().await)));
    map.retain(|_, _| {
        one = None;
        true
    });
    let two = Hand::waiting(map.get_or_insert_with(1, async || std::future::pending().await));
    map.read(&0, |_| drop(two));
    assert_eq!(Hand::new(map.get_or_insert_with(1, async || vec![1])).poll(), Poll::Ready(Ok(vec![1])));
    let three = Hand::waiting(map.get_or_insert_with(2, async || std::future::pending().await));
    map.read(&0, |_| drop(three)); // no caller asks for this key again
}

#[test]
fn nested_and_in_a_circle() {
    let map = SharedMap::<u8, u8>::named("cache");
    let nested = async || map.get_or_insert_with(2, async || 1).await.unwrap() + 1;
    assert_eq!(Hand::new(map.get_or_insert_with(1, nested)).poll(), Poll::Ready(Ok(2)));
    let itself = async || map.get_or_insert_with(3, async || 1).await.unwrap();
    assert!(panic_of(|| Hand::new(map.get_or_insert_with(3, itself)).poll()).contains("wait for itself"));
    // Two that ask for each other, after both have begun.
    let go = Event::default();
    let asks = async |key| {
        go.happened().await;
        map.get_or_insert_with(key, async || 1).await.unwrap()
    };
    let mut four = Hand::waiting(map.get_or_insert_with(4, || asks(5)));
    let mut five = Hand::waiting(map.get_or_insert_with(5, || asks(4)));
    go.set();
    assert!(four.poll().is_pending());
    assert!(panic_of(|| five.poll()).contains("wait for each other"));
    assert_eq!(four.poll(), Poll::Ready(Ok(1)));
}

#[test]
fn threads_read_change_and_compute() {
    let (map, drops) = (SharedMap::new(), Drops::default());
    let computed = Arc::new(AtomicUsize::new(0));
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let (map, drops, computed) = (map.clone(), drops.clone(), computed.clone());
            thread::spawn(move || {
                let found = foreign_block_on(map.get_or_insert_with("key".to_owned(), async || {
                    computed.fetch_add(1, Ordering::Relaxed);
                    value("computed", &drops)
                }));
                assert_eq!(found.unwrap().0, "computed");
                for round in 0..5 {
                    map.insert(format!("{number} {round}"), value("own", &drops));
                    assert_eq!(map.get("key").unwrap().0, "computed");
                    assert!(map.read(&format!("{number} {round}"), |own| own.0.len() == 3).unwrap());
                }
                assert!(map.remove(&format!("{number} 0")).is_some());
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!((computed.load(Ordering::Relaxed), map.len()), (1, 13));
    drop(map);
    assert_eq!(drops.count(), 16);
}
