//! A shared map: the values it keeps, the caller that computes a missing value, and the callers that get it.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use crate::common::{Drops, Event, panic_of};
use crate::shared_map_common::Hand;
use dapple::time::{Duration, sleep};
use dapple::{Cancelled, SharedMap, sim};

#[test]
fn a_map_keeps_inserted_values() {
    let map = SharedMap::named("words");
    assert!(map.is_empty());
    assert_eq!(map.insert("one".to_owned(), 1), None);
    assert_eq!(map.insert("one".to_owned(), 10), Some(1));
    assert_eq!(map.insert("two".to_owned(), 2), None);
    assert_eq!((map.get("one"), map.get("two"), map.get("three")), (Some(10), Some(2), None));
    assert_eq!((map.len(), map.is_empty()), (2, false));
    assert!(map.contains_key("two") && !map.contains_key("three"));
    assert_eq!(map.read("one", |value| value + 1), Some(11));
    assert_eq!(map.remove("one"), Some(10));
    assert_eq!(map.remove("one"), None);
    let other = map.clone();
    other.insert("three".to_owned(), 3);
    let mut keys = map.keys();
    keys.sort();
    assert_eq!(keys, ["three", "two"]);
    map.clear();
    assert_eq!((other.len(), other.name()), (0, Some("words")));
}

#[test]
fn thousands_of_entries() {
    let map = SharedMap::with_capacity(100);
    for key in 0..10_000_u32 {
        assert_eq!(map.insert(key, key.to_string()), None);
    }
    assert_eq!(map.len(), 10_000);
    assert!((0..10_000).all(|key| map.read(&key, |value| *value == key.to_string()) == Some(true)));
    map.retain(|key, value| {
        value.push('!');
        key % 3 == 0
    });
    assert_eq!(map.len(), 3334);
    assert_eq!((map.get(&3).as_deref(), map.get(&4)), (Some("3!"), None));
    let mut sum = 0;
    map.for_each(|key, _| sum += u64::from(*key));
    assert_eq!(sum, 3333 * 3334 / 2 * 3);
}

#[test]
fn values_that_are_no_clones_can_be_read() {
    struct Opaque(u8);
    let map: SharedMap<u8, Opaque> = [(1, Opaque(10))].into_iter().collect();
    assert_eq!(map.read(&1, |opaque| opaque.0), Some(10));
    assert!(map.remove(&1).is_some());
}

#[test]
fn a_hasher_that_is_all_the_same_is_slow_and_right() {
    #[derive(Default)]
    struct Same;
    impl std::hash::Hasher for Same {
        fn finish(&self) -> u64 {
            7
        }
        fn write(&mut self, _bytes: &[u8]) {}
    }
    let map = SharedMap::with_hasher(std::hash::BuildHasherDefault::<Same>::default());
    for key in 0..300 {
        map.insert(key, key);
    }
    assert!((0..300).all(|key| map.get(&key) == Some(key)));
    let mut one = Hand::waiting(map.get_or_insert_with(1000, async || std::future::pending().await));
    let mut other = Hand::new(map.get_or_insert_with(1001, async || 5));
    assert_eq!(other.poll(), Poll::Ready(Ok(5)), "another key, though its hash is the same");
    assert!(one.poll().is_pending());
}

#[test]
fn what_is_missing_is_computed_once() {
    sim::explore(0..200, || async {
        let (map, computed) = (SharedMap::new(), Arc::new(AtomicUsize::new(0)));
        let tasks: Vec<_> = (0..12_usize)
            .map(|number| {
                let (map, computed) = (map.clone(), computed.clone());
                dapple::spawn(async move {
                    let key = number % 3;
                    let compute = async || {
                        computed.fetch_add(1, Ordering::Relaxed);
                        sleep(Duration::from_micros(sim::random() % 5)).await.unwrap();
                        key * 10
                    };
                    assert_eq!(map.get_or_insert_with(key, compute).await, Ok(key * 10));
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!((computed.load(Ordering::Relaxed), map.len()), (3, 3));
    });
}

#[test]
fn others_wait_and_get_the_same() {
    let (map, ready) = (SharedMap::new(), Event::default());
    let compute = async || {
        ready.happened().await;
        "value"
    };
    let mut one = Hand::waiting(map.get_or_insert_with(1, compute));
    let mut other = Hand::waiting(map.get_or_insert_with(1, async || "another"));
    assert_eq!(map.len(), 0, "what is being computed does not count");
    assert!(!map.contains_key(&1) && map.get(&1).is_none());
    ready.set();
    assert_eq!(other.poll(), Poll::Pending, "who computes has not been polled");
    assert_eq!(other.wakes(), 0);
    assert_eq!(one.poll(), Poll::Ready(Ok("value")));
    assert_eq!(other.wakes(), 1);
    assert_eq!(other.poll(), Poll::Ready(Ok("value")));
    assert_eq!(map.get(&1), Some("value"));
}

#[test]
fn a_value_that_is_there_is_not_computed() {
    let map = SharedMap::from([(1, "there")]);
    let called = Cell::new(false);
    let mut future = Hand::new(map.get_or_insert_with(1, async || {
        called.set(true);
        "computed"
    }));
    assert_eq!(future.poll(), Poll::Ready(Ok("there")));
    drop(future);
    assert!(!called.get());
}

#[test]
fn other_keys_are_not_held_up() {
    let map = SharedMap::new();
    let _computes = Hand::waiting(map.get_or_insert_with(0, async || std::future::pending().await));
    for key in 1..500 {
        assert_eq!(Hand::new(map.get_or_insert_with(key, async || key)).poll(), Poll::Ready(Ok(key)));
        assert_eq!(map.insert(key, -key), Some(key));
        assert_eq!(map.remove(&key), Some(-key));
    }
}

/// In which way the one who computes gives up.
#[derive(Clone, Copy, Debug)]
enum GivesUp {
    IsDropped,
    Fails,
    Panics,
    /// The panic is in the closure itself, before there is a future.
    PanicsAtOnce,
}

#[test]
fn a_waiter_takes_over_a_failed_computation() {
    for how in [GivesUp::IsDropped, GivesUp::Fails, GivesUp::Panics] {
        let (map, go) = (SharedMap::named("cache"), Event::default());
        let compute = async || {
            go.happened().await;
            match how {
                GivesUp::Panics => panic!("out of luck"),
                _ => Err(io::Error::other("no answer")),
            }
        };
        let mut one = Hand::waiting(map.get_or_try_insert_with(1, compute));
        let mut second = Hand::waiting(map.get_or_try_insert_with(1, async || io::Result::Ok("second")));
        let mut third = Hand::waiting(map.get_or_try_insert_with(1, async || io::Result::Ok("third")));
        go.set();
        match how {
            GivesUp::IsDropped => drop(one),
            GivesUp::Panics => assert_eq!(panic_of(|| one.poll()), "out of luck"),
            _ => match one.poll() {
                Poll::Ready(Err(error)) => assert_eq!(error.to_string(), "no answer"),
                other => panic!("{other:?}"),
            },
        }
        assert_eq!((second.wakes(), third.wakes()), (1, 1), "{how:?}: all look, so that none is waited for");
        assert_eq!(map.len(), 0);
        // The waiter that is polled first computes, with its own closure.
        assert_eq!(third.poll().map(Result::unwrap), Poll::Ready("third"), "{how:?}");
        assert_eq!(second.poll().map(Result::unwrap), Poll::Ready("third"), "{how:?}");
    }
}

#[test]
fn a_panic_before_the_computation_holds_up_no_caller() {
    let map = SharedMap::new();
    fn at_once(how: GivesUp) -> std::future::Ready<u8> {
        match how {
            GivesUp::PanicsAtOnce => panic!("at once"),
            _ => std::future::ready(1),
        }
    }
    let mut one = Hand::new(map.get_or_insert_with(1, || at_once(GivesUp::PanicsAtOnce)));
    assert_eq!(panic_of(|| one.poll()), "at once");
    assert_eq!(Hand::new(map.get_or_insert_with(1, || at_once(GivesUp::Fails))).poll(), Poll::Ready(Ok(1)));
}

#[test]
fn a_computation_is_gone_before_another_begins() {
    struct Looks(Drops, AtomicUsize);
    impl std::task::Wake for Looks {
        fn wake(self: Arc<Self>) {
            self.1.store(self.0.count() + 10, Ordering::SeqCst);
        }
    }
    for fails in [false, true] {
        let (map, drops, go) = (SharedMap::new(), Drops::default(), Event::default());
        // A future of its own, with something that goes when it is dropped.
        let computation = |guard: crate::common::Guard| {
            let go = go.clone();
            std::future::poll_fn(move |cx| {
                let _kept = &guard;
                go.poll(cx).map(|()| Err::<u32, _>(Cancelled))
            })
        };
        let guard = drops.guard();
        let mut one = Hand::waiting(map.get_or_try_insert_with((), || computation(guard)));
        let looks = Arc::new(Looks(drops.clone(), AtomicUsize::new(0)));
        let waker = std::task::Waker::from(looks.clone());
        let mut other = Box::pin(map.get_or_try_insert_with((), async || Ok::<_, Cancelled>(2)));
        assert!(other.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
        if fails {
            go.set();
            assert_eq!(one.poll(), Poll::Ready(Err(Cancelled)));
        }
        drop(one);
        assert_eq!(looks.1.load(Ordering::SeqCst), 11, "woken after it was dropped");
    }
}

#[test]
fn a_dropped_waiter_holds_up_no_caller() {
    let (map, go) = (SharedMap::new(), Event::default());
    let compute = async || {
        go.happened().await;
        1
    };
    let mut one = Hand::waiting(map.get_or_insert_with((), compute));
    Hand::waiting(map.get_or_insert_with((), async || 2)).leak();
    drop(Hand::waiting(map.get_or_insert_with((), async || 3)));
    let never_again = Hand::waiting(map.get_or_insert_with((), async || 4));
    let mut last = Hand::waiting(map.get_or_insert_with((), async || 5));
    go.set();
    assert_eq!(one.poll(), Poll::Ready(Ok(1)));
    assert_eq!(last.poll(), Poll::Ready(Ok(1)));
    drop(never_again);
}

#[test]
fn an_unpolled_waiter_holds_up_no_caller() {
    let map = SharedMap::new();
    let one = Hand::waiting(map.get_or_insert_with((), async || std::future::pending().await));
    Hand::waiting(map.get_or_insert_with((), async || 2)).leak();
    let never_again = Hand::waiting(map.get_or_insert_with((), async || 3));
    let mut last = Hand::waiting(map.get_or_insert_with((), async || 4));
    drop(one);
    assert_eq!(last.wakes(), 1);
    assert_eq!(last.poll(), Poll::Ready(Ok(4)));
    drop(never_again);
}

#[test]
fn a_computed_value_is_kept_without_a_caller() {
    // The caller is dropped by the waker that is woken for the value.
    let (map, go) = (SharedMap::new(), Event::default());
    let compute = async || {
        go.happened().await;
        7
    };
    let mut one = Hand::waiting(map.get_or_insert_with((), compute));
    go.set();
    let Poll::Ready(result) = one.poll() else { panic!("computed") };
    drop((one, result));
    assert_eq!(map.get(&()), Some(7));
}
