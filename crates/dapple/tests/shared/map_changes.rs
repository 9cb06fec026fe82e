//! A shared map that is changed or cancelled while values are computed, and its other properties.

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
fn insert_reaches_all_waiters() {
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
fn a_waiter_is_cancelled_alone() {
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
fn a_computation_is_cancelled_and_another_caller_computes() {
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
        // The value is removed, and a caller in a cancelled scope must not begin to compute it.
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
