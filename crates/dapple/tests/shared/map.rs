//! A shared map: what it keeps, who computes what is missing, and who gets it.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use crate::common::{Drops, Event, in_both_worlds, panic_of, runtime};
use crate::shared_map_common::Hand;
use dapple::time::{Duration, sleep};
use dapple::{Cancelled, SharedMap, finish, is_cancelled, sim};

#[test]
fn it_keeps_what_is_put_there() {
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
fn one_of_those_who_wait_takes_over() {
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
        // Whoever is polled first computes, with its own closure.
        assert_eq!(third.poll().map(Result::unwrap), Poll::Ready("third"), "{how:?}");
        assert_eq!(second.poll().map(Result::unwrap), Poll::Ready("third"), "{how:?}");
    }
}

#[test]
fn a_panic_before_the_computation_has_begun_holds_up_nobody() {
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
fn who_waits_and_goes_away_holds_up_nobody() {
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
fn who_would_take_over_and_is_never_polled_again_holds_up_nobody() {
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
fn what_was_computed_is_there_though_nobody_takes_it() {
    // The caller is dropped by the very waker that tells of the value.
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

#[test]
fn insert_wins_over_a_computation() {
    let (map, go) = (SharedMap::new(), Event::default());
    let drops = Drops::default();
    let guard = Arc::new(drops.guard());
    let compute = async || {
        go.happened().await;
        ("computed", Some(guard))
    };
    let mut one = Hand::waiting(map.get_or_insert_with((), compute));
    let mut other = Hand::waiting(map.get_or_insert_with((), async || ("other", None)));
    assert!(map.insert((), ("inserted", None)).is_none());
    assert_eq!(other.wakes(), 1);
    assert!(matches!(other.poll(), Poll::Ready(Ok(("inserted", None)))), "at once");
    assert!(one.poll().is_pending(), "goes on");
    go.set();
    assert!(matches!(one.poll(), Poll::Ready(Ok(("inserted", None)))));
    assert!(matches!(map.get(&()), Some(("inserted", None))));
    assert_eq!(drops.count(), 1, "what was computed is dropped");
}

#[test]
fn insert_reaches_all_who_wait_whenever_it_comes() {
    sim::explore(0..500, || async {
        let (map, go) = (SharedMap::new(), Event::default());
        let done = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (map, go, done) = (map.clone(), go.clone(), done.clone());
                dapple::spawn(async move {
                    let compute = async || {
                        go.happened().await;
                        "computed"
                    };
                    assert_eq!(map.get_or_insert_with((), compute).await, Ok("inserted"));
                    done.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        sim::work(Duration::from_nanos(sim::random() % 1000));
        map.insert((), "inserted");
        sleep(Duration::from_secs(1)).await.unwrap();
        assert!(done.load(Ordering::SeqCst) >= 3, "all but the one who computes");
        go.set();
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn still_one_at_a_time_after_an_insert_and_a_remove() {
    let (map, go) = (SharedMap::new(), Event::default());
    let compute = async || {
        go.happened().await;
        "computed"
    };
    let mut one = Hand::waiting(map.get_or_insert_with((), compute));
    let mut before = Hand::waiting(map.get_or_insert_with((), async || "second"));
    map.insert((), "inserted");
    assert_eq!(map.remove(&()), Some("inserted"));
    let mut after = Hand::waiting(map.get_or_insert_with((), async || "third"));
    assert!(before.poll().is_pending(), "the value has gone again: it waits on");
    go.set();
    assert_eq!(one.poll(), Poll::Ready(Ok("computed")));
    assert_eq!((before.wakes(), after.wakes()), (2, 1));
    assert_eq!(before.poll(), Poll::Ready(Ok("computed")));
    assert_eq!(after.poll(), Poll::Ready(Ok("computed")));
}

#[test]
fn remove_clear_and_retain_do_not_stop_a_computation() {
    let (map, go) = (SharedMap::new(), Event::default());
    let compute = async || {
        go.happened().await;
        1
    };
    let mut one = Hand::waiting(map.get_or_insert_with((), compute));
    assert_eq!(map.remove(&()), None);
    map.clear();
    map.retain(|_, _| false);
    assert!(Hand::new(map.get_or_insert_with((), async || 2)).poll().is_pending());
    go.set();
    assert_eq!(one.poll(), Poll::Ready(Ok(1)));
    assert_eq!(map.get(&()), Some(1));
}

#[test]
fn a_wait_in_a_cancelled_scope_returns_cancelled_and_computes_nothing() {
    in_both_worlds(50, || {
        runtime(2).block_on(async {
            let map = SharedMap::from([("there", 1)]);
            let called = AtomicUsize::new(0);
            let compute = async || {
                called.fetch_add(1, Ordering::Relaxed);
                2
            };
            finish(async |s| {
                s.cancel();
                assert_eq!(map.get_or_insert_with("there", compute).await, Err(Cancelled), "begun too late");
                assert_eq!(map.get_or_insert_with("missing", compute).await, Err(Cancelled));
                let error =
                    map.get_or_try_insert_with("missing", async || io::Result::Ok(3)).await.unwrap_err();
                assert!(is_cancelled(&error));
            })
            .await;
            assert_eq!((called.load(Ordering::Relaxed), map.len()), (0, 1));
        });
    });
}

#[test]
fn who_waits_is_cancelled_alone() {
    sim::explore(0..100, || async {
        let (map, go) = (SharedMap::new(), Event::default());
        let computes = dapple::spawn({
            let (map, go) = (map.clone(), go.clone());
            async move {
                let compute = async || {
                    go.happened().await;
                    1
                };
                map.get_or_insert_with((), compute).await
            }
        });
        sleep(Duration::from_millis(1)).await.unwrap();
        let waits: Vec<_> = (0..4)
            .map(|_| {
                let map = map.clone();
                dapple::spawn(async move { map.get_or_insert_with((), async || 2).await })
            })
            .collect();
        sleep(Duration::from_millis(1)).await.unwrap();
        waits[1].cancel();
        waits[2].abort();
        sleep(Duration::from_millis(1)).await.unwrap();
        go.set();
        let mut results = Vec::new();
        for wait in waits {
            results.push(wait.await.ok());
        }
        assert_eq!(results, [Some(Ok(1)), Some(Err(Cancelled)), None, Some(Ok(1))]);
        assert_eq!(computes.await.unwrap(), Ok(1));
    });
}

#[test]
fn who_computes_is_cancelled_and_another_computes() {
    sim::explore(0..100, || async {
        let map = SharedMap::new();
        let ask = |value: u32| {
            let map = map.clone();
            dapple::spawn(async move {
                let compute = async || {
                    sleep(Duration::from_millis(10)).await?;
                    Ok::<_, Cancelled>(value)
                };
                map.get_or_try_insert_with("key", compute).await
            })
        };
        let one = ask(1);
        sleep(Duration::from_millis(1)).await.unwrap();
        let other = ask(2);
        sleep(Duration::from_millis(1)).await.unwrap();
        one.cancel();
        assert_eq!(one.await.unwrap(), Err(Cancelled), "its computation was");
        assert_eq!(map.get("key"), None);
        assert_eq!(other.await.unwrap(), Ok(2));
        assert_eq!(map.get("key"), Some(2));
    });
}

#[test]
fn a_value_that_came_before_the_cancel_is_taken() {
    let rt = runtime(1);
    rt.block_on(async {
        let (map, go) = (SharedMap::new(), Event::default());
        let compute = async || {
            go.happened().await;
            1
        };
        let mut one = Hand::waiting(map.get_or_insert_with((), compute));
        finish(async |s| {
            let mut waits = Box::pin(map.get_or_insert_with((), async || 2));
            assert!(futures_lite::future::poll_once(&mut waits).await.is_none());
            go.set();
            assert_eq!(one.poll(), Poll::Ready(Ok(1)));
            s.cancel();
            assert_eq!(waits.await, Ok(1));
        })
        .await;
        // It is there no more, and nobody is to begin with it in a cancelled scope.
        map.remove(&());
        let computes = Hand::waiting(map.get_or_insert_with((), async || std::future::pending().await));
        finish(async |s| {
            let mut waits = Box::pin(map.get_or_insert_with((), async || 2));
            assert!(futures_lite::future::poll_once(&mut waits).await.is_none());
            drop(computes);
            s.cancel();
            assert_eq!(waits.await, Err(Cancelled));
        })
        .await;
        assert_eq!(map.len(), 0);
    });
}

#[test]
fn hits_give_way_to_other_tasks() {
    let rt = runtime(1);
    let done = Arc::new(AtomicUsize::new(0));
    let map = SharedMap::from([((), 1)]);
    let other = done.clone();
    rt.block_on(rt.spawn(async move {
        let beside = dapple::spawn(async move { other.store(1, Ordering::Relaxed) });
        while done.load(Ordering::Relaxed) == 0 {
            map.get_or_insert_with((), async || 2).await.unwrap(); // always ready
        }
        beside.await.unwrap();
    }))
    .unwrap();
}

#[test]
fn futures_can_be_moved_until_they_are_done() {
    fn is_send<T: Send + Unpin>(value: T) -> T {
        value
    }
    let (map, go) = (SharedMap::new(), Event::default());
    let mut future = is_send(map.get_or_insert_with((), async || {
        go.happened().await;
        vec![1]
    }));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(Pin::new(&mut future).poll(&mut cx).is_pending());
    let mut moved = Box::new(future);
    go.set();
    assert_eq!(Pin::new(&mut *moved).poll(&mut cx), Poll::Ready(Ok(vec![1])));
    assert!(panic_of(|| Pin::new(&mut *moved).poll(&mut cx)).contains("after it was done"));
}

#[test]
fn debug_shows_the_entries_and_never_waits() {
    let map = SharedMap::from([(1, "one")]);
    assert_eq!(format!("{map:?}"), r#"{1: "one"}"#);
    map.retain(|_, _| {
        assert_eq!(format!("{map:?}"), "{..}");
        true
    });
    map.read(&1, |_| assert_eq!(format!("{map:?}"), r#"{1: "one"}"#));
    let mut future = map.get_or_insert_with(2, async || std::future::pending().await);
    assert_eq!(format!("{future:?}"), "GetOrInsert(has not begun)");
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(Pin::new(&mut future).poll(&mut cx).is_pending());
    assert_eq!(format!("{future:?}"), "GetOrInsert(computes)");
}

#[test]
fn a_simulation_walks_a_map_in_the_same_order_again() {
    let walk = |seed| {
        sim::Sim::new(seed).run(async {
            let map: SharedMap<_, _> = (0..100).map(|key| (key, ())).collect();
            map.keys()
        })
    };
    assert_eq!(walk(7), walk(7));
    assert_ne!(walk(7), walk(8));
}
