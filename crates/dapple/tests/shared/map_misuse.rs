//! A shared map and foreign code: closures, hashes, comparisons, clones and drops that come back to it or panic,
//! and computations that would wait for themselves.

use std::cell::RefCell;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use crate::common::{Event, eventually, in_both_worlds, panic_of, runtime, watched};
use crate::shared_map_common::Hand;
use dapple::time::{Duration, sleep};
use dapple::{Cancelled, Shared, SharedMap, sim};

#[test]
fn maps_can_be_read_inside_of_a_closure() {
    watched(|| {
        let map = SharedMap::from([(1, 2), (2, 3), (3, 1)]);
        let found = map.read(&1, |next| map.read(next, |next| map.get(next)));
        assert_eq!(found, Some(Some(Some(1))));
        map.for_each(|key, value| {
            assert_eq!(map.get(key), Some(*value));
            assert_eq!((map.len(), map.contains_key(key)), (3, true));
        });
    });
}

/// One of the ways to change a map.
type Change = (&'static str, fn(&SharedMap<u32, u32>));

#[test]
fn a_change_inside_of_a_closure_is_named() {
    watched(|| {
        let changes: [Change; 5] = [
            ("insert", |map| assert_eq!(map.insert(1, 1), None)),
            ("remove", |map| assert_eq!(map.remove(&1), None)),
            ("clear", |map| map.clear()),
            ("retain", |map| map.retain(|_, _| true)),
            ("compute", |map| assert!(Hand::new(map.get_or_insert_with(9, async || 9)).poll().is_ready())),
        ];
        for (what, change) in changes {
            let (outer, inner) = (SharedMap::named("outer"), SharedMap::named("inner"));
            outer.insert(1, 10);
            for other in [&outer, &inner] {
                let said = panic_of(|| outer.read(&1, |_| change(other)));
                assert!(
                    said.contains(r#"read of SharedMap "outer" at "#) && said.contains(file!()),
                    "{what}: {said}"
                );
                assert!(
                    said.contains(&format!("change of SharedMap {:?}", other.name().unwrap())),
                    "{what}: {said}"
                );
                assert!(panic_of(|| outer.for_each(|_, _| change(other))).contains("for_each of"), "{what}");
                assert!(
                    panic_of(|| outer.retain(|_, _| {
                        change(other);
                        true
                    }))
                    .contains("retain of"),
                    "{what}"
                );
            }
            // Nothing is left behind.
            assert_eq!(
                (outer.get(&1), outer.insert(1, 11), inner.insert(1, 1)),
                (Some(10), Some(10), None),
                "{what}"
            );
        }
    });
}

#[test]
fn no_map_can_be_used_while_one_is_retained() {
    watched(|| {
        let (map, other) = (SharedMap::named("own"), SharedMap::<u32, u32>::named("other"));
        map.insert(1, 1);
        let said = panic_of(|| map.retain(|key, _| map.get(key).is_some()));
        assert!(
            said.contains(r#"use of SharedMap "own""#) && said.contains(r#"retain of SharedMap "own""#),
            "{said}"
        );
        let said = panic_of(|| map.retain(|key, _| other.contains_key(key)));
        assert!(said.contains(r#"use of SharedMap "other""#), "{said}");
        assert_eq!(map.get(&1), Some(1));
    });
}

#[test]
fn what_would_wait_inside_of_a_closure_is_named() {
    watched(|| {
        let (map, state) = (SharedMap::named("cache"), Shared::named("state", 1));
        map.insert(1, 1);
        let said = panic_of(|| map.read(&1, |_| state.write_blocking(|value| *value = 2)));
        assert!(said.contains(r#"SharedMap "cache""#) && said.contains(r#"Shared "state""#), "{said}");
        // In the closure of a state, a map can be used: a closure in a map never waits.
        assert_eq!(state.write_blocking(|value| map.insert(*value, 5)), Ok(Some(1)));
    });
}

#[test]
fn retain_that_panics_keeps_the_rest() {
    let map: SharedMap<_, _> = (0..1000_u32).map(|key| (key, ())).collect();
    let mut calls = 0;
    let said = panic_of(|| {
        map.retain(|_, _| {
            calls += 1;
            assert!(calls < 500, "enough");
            false
        })
    });
    assert_eq!((said.as_str(), map.len()), ("enough", 1000 - 499));
    map.retain(|_, _| false);
    assert!(map.is_empty());
}

thread_local! {
    /// The action of foreign code the next time that it is called.
    static HASHED: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    static COMPARED: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    static CLONED: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
    static DROPPED: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

type Deed = std::thread::LocalKey<RefCell<Option<Box<dyn FnOnce()>>>>;

fn next(what: &'static Deed, deed: impl FnOnce() + 'static) {
    what.with(|next| *next.borrow_mut() = Some(Box::new(deed)));
}

fn happens(what: &'static Deed) {
    if let Some(deed) = what.with(|next| next.borrow_mut().take()) {
        deed();
    }
}

/// A key or a value with a mind of its own.
#[derive(Debug)]
struct Odd(u32);

impl Hash for Odd {
    fn hash<H: Hasher>(&self, state: &mut H) {
        happens(&HASHED);
        self.0.hash(state);
    }
}

impl PartialEq for Odd {
    fn eq(&self, other: &Odd) -> bool {
        happens(&COMPARED);
        self.0 == other.0
    }
}

impl Eq for Odd {}

impl Clone for Odd {
    fn clone(&self) -> Odd {
        happens(&CLONED);
        Odd(self.0)
    }
}

impl Drop for Odd {
    fn drop(&mut self) {
        happens(&DROPPED);
    }
}

fn odd_map() -> SharedMap<Odd, Odd> {
    SharedMap::from([(Odd(1), Odd(10)), (Odd(2), Odd(20))])
}

fn value(map: &SharedMap<Odd, Odd>, key: u32) -> Option<u32> {
    map.read(&Odd(key), |value| value.0)
}

#[test]
fn foreign_code_that_comes_back() {
    watched(|| {
        let map = odd_map();
        // A hash may do anything.
        let own = map.clone();
        next(&HASHED, move || drop(own.insert(Odd(3), Odd(30))));
        assert_eq!(map.get(&Odd(1)), Some(Odd(10)));
        assert_eq!(value(&map, 3), Some(30));
        // A comparison, or a clone, may read while the map is read.
        for what in [&COMPARED, &CLONED] {
            let own = map.clone();
            next(what, move || assert_eq!(value(&own, 2), Some(20)));
            assert_eq!(map.get(&Odd(1)).map(|value| value.0), Some(10));
            let own = map.clone();
            next(what, move || drop(own.insert(Odd(4), Odd(40))));
            let said = panic_of(|| map.get(&Odd(1)));
            assert!(said.contains("change of") && said.contains("`eq` or `clone`"), "{said}");
        }
        // And nothing while it is changed.
        let own = map.clone();
        next(&COMPARED, move || assert_eq!(value(&own, 2), Some(20)));
        assert!(panic_of(|| map.insert(Odd(1), Odd(11))).contains("use of"));
        assert_eq!((value(&map, 1), value(&map, 4), map.len()), (Some(10), None, 3));
        // A drop may do anything.
        let own = map.clone();
        next(&DROPPED, move || drop(own.insert(Odd(5), Odd(50))));
        drop(map.insert(Odd(1), Odd(11)));
        let own = map.clone();
        next(&DROPPED, move || drop(own.remove(&Odd(5))));
        map.retain(|key, _| key.0 == 5);
        assert_eq!(map.len(), 0);
        map.insert(Odd(6), Odd(60));
        let own = map.clone();
        next(&DROPPED, move || drop(own.insert(Odd(7), Odd(70))));
        map.clear();
        assert!(value(&map, 6).is_none());
    });
}

#[test]
fn foreign_code_that_panics_changes_nothing() {
    watched(|| {
        for what in [&HASHED, &COMPARED] {
            let map = odd_map();
            let panics = || next(what, || panic!("foreign"));
            panics();
            assert_eq!(panic_of(|| map.get(&Odd(1))), "foreign");
            panics();
            assert_eq!(panic_of(|| map.insert(Odd(1), Odd(11))), "foreign");
            panics();
            assert_eq!(panic_of(|| map.remove(&Odd(1))), "foreign");
            panics();
            assert_eq!(
                panic_of(|| Hand::new(map.get_or_insert_with(Odd(1), async || Odd(12))).poll()),
                "foreign"
            );
            assert_eq!((value(&map, 1), map.len()), (Some(10), 2));
        }
        let map = odd_map();
        next(&CLONED, || panic!("foreign"));
        assert_eq!(panic_of(|| map.get(&Odd(1))), "foreign");
        next(&DROPPED, || panic!("foreign"));
        assert_eq!(panic_of(|| map.insert(Odd(1), Odd(11))), "foreign", "the key that was there stays");
        assert_eq!((value(&map, 1), map.len()), (Some(11), 2));
    });
}

#[test]
fn a_computed_value_that_cannot_be_cloned_is_computed_by_the_next() {
    let map = SharedMap::<Odd, Odd>::new();
    let mut one = Hand::new(map.get_or_insert_with(Odd(1), async || Odd(10)));
    next(&CLONED, || panic!("foreign"));
    assert_eq!(panic_of(|| one.poll()), "foreign");
    assert_eq!(value(&map, 1), None);
    let mut other = Hand::new(map.get_or_insert_with(Odd(1), async || Odd(11)));
    assert!(matches!(other.poll(), Poll::Ready(Ok(Odd(11)))));
}

#[test]
fn a_computation_may_be_dropped_inside_of_a_closure() {
    watched(|| {
        let map = SharedMap::named("cache");
        map.insert(0, 0);
        let one = Hand::waiting(map.get_or_insert_with(1, async || std::future::pending().await));
        let mut other = Hand::waiting(map.get_or_insert_with(1, async || 2));
        map.read(&0, |_| drop(one));
        assert_eq!(other.wakes(), 1);
        assert_eq!(other.poll(), Poll::Ready(Ok(2)));
        let one = Hand::waiting(map.get_or_insert_with(3, async || std::future::pending().await));
        let mut one = Some(one);
        map.retain(|_, _| {
            one = None;
            true
        });
        assert_eq!(Hand::new(map.get_or_insert_with(3, async || 4)).poll(), Poll::Ready(Ok(4)));
    });
}

#[test]
fn a_computation_may_ask_for_other_keys() {
    sim::explore(0..100, || async {
        let map = SharedMap::named("fibonacci");
        fn fibonacci(
            map: &SharedMap<u64, u64>,
            n: u64,
        ) -> std::pin::Pin<Box<dyn Future<Output = Result<u64, Cancelled>> + Send + '_>> {
            Box::pin(map.get_or_try_insert_with(n, move || async move {
                dapple::task::yield_now().await;
                if n < 2 {
                    return Ok(n);
                }
                Ok(fibonacci(map, n - 1).await? + fibonacci(map, n - 2).await?)
            }))
        }
        let tasks: Vec<_> = (0..8)
            .map(|task| {
                let map = map.clone();
                dapple::spawn(async move { fibonacci(&map, 20 + task % 3).await })
            })
            .collect();
        for (task, handle) in tasks.into_iter().enumerate() {
            assert_eq!(handle.await.unwrap(), Ok([6765, 10946, 17711][task % 3]));
        }
        assert_eq!(map.len(), 23);
    });
}

#[test]
fn a_computation_that_asks_for_itself_is_named() {
    in_both_worlds(20, || {
        let map = SharedMap::<u32, u32>::named("cache");
        runtime(2).block_on(async {
            let nested = map.clone();
            let outer = map.clone();
            let task = dapple::spawn(async move {
                let compute = async || {
                    dapple::task::yield_now().await;
                    nested.get_or_insert_with(1, async || 5).await.unwrap() // waits for itself
                };
                outer.get_or_insert_with(1, compute).await
            });
            let error = task.await.unwrap_err();
            let said = crate::common::message(&*error.try_into_panic().unwrap());
            assert!(said.contains(r#"SharedMap "cache""#) && said.contains("wait for itself"), "{said}");
            assert_eq!(said.matches(file!()).count(), 2, "both places: {said}");
            assert_eq!(map.get_or_insert_with(1, async || 6).await, Ok(6), "and nobody is held up");
        });
    });
}

#[test]
fn a_cycle_through_another_key_is_named() {
    watched(|| {
        let map = SharedMap::<u32, u32>::named("cache");
        let said = panic_of(|| {
            Hand::new(map.get_or_insert_with(1, async || {
                map.get_or_insert_with(2, async || map.get_or_insert_with(1, async || 5).await.unwrap())
                    .await
                    .unwrap()
            }))
            .poll()
        });
        assert!(said.contains("wait for itself"), "{said}");
        assert_eq!(Hand::new(map.get_or_insert_with(2, async || 7)).poll(), Poll::Ready(Ok(7)));
    });
}

#[test]
fn computations_of_two_tasks_that_ask_for_each_other_are_named() {
    let named = Arc::new(AtomicUsize::new(0));
    let seen = named.clone();
    sim::explore(0..100, move || {
        let named = seen.clone();
        async move {
            // Two maps: a circle goes through any of them.
            let maps = [SharedMap::<(), u32>::named("one"), SharedMap::named("other")];
            let ask = |own: usize| {
                let maps = maps.clone();
                dapple::spawn(async move {
                    let compute = async || {
                        sleep(Duration::from_micros(sim::random() % 20)).await.unwrap();
                        let other = &maps[1 - own];
                        other
                            .get_or_insert_with((), async || {
                                sleep(Duration::from_micros(sim::random() % 20)).await.unwrap();
                                maps[own].get_or_insert_with((), async || 1).await.unwrap()
                            })
                            .await
                            .unwrap()
                    };
                    maps[own].get_or_insert_with((), compute).await
                })
            };
            // Whatever they do, it is a panic of one or both: there is no value to be had, and no hang.
            for task in [ask(0), ask(1)] {
                match task.await {
                    Ok(value) => panic!("computed {value:?} from itself"),
                    Err(error) => {
                        let said = crate::common::message(&*error.try_into_panic().unwrap());
                        assert!(said.contains("would wait for"), "{said}");
                        named.fetch_add(usize::from(said.contains("each other")), Ordering::Relaxed);
                    }
                }
            }
            assert!(maps.iter().all(SharedMap::is_empty));
        }
    });
    assert!(named.load(Ordering::Relaxed) > 10, "some met: {named:?}");
}

#[test]
fn a_chain_of_waits_is_no_cycle() {
    let (map, go) = (SharedMap::<u32, u32>::new(), Event::default());
    let slow = async || {
        go.happened().await;
        1
    };
    let mut one = Hand::waiting(map.get_or_insert_with(1, slow));
    let mut two = Hand::waiting(
        map.get_or_insert_with(2, async || map.get_or_insert_with(1, async || 0).await.unwrap() + 1),
    );
    let mut three = Hand::waiting(
        map.get_or_insert_with(3, async || map.get_or_insert_with(2, async || 0).await.unwrap() + 1),
    );
    // A computation that waited for another and gave that wait up waits for no computation.
    let mut four = Hand::waiting(map.get_or_insert_with(4, async || {
        drop(Hand::waiting(map.get_or_insert_with(1, async || 0)));
        go.happened().await;
        4
    }));
    go.set();
    assert_eq!(one.poll(), Poll::Ready(Ok(1)));
    assert_eq!(two.poll(), Poll::Ready(Ok(2)));
    assert_eq!(three.poll(), Poll::Ready(Ok(3)));
    assert_eq!(four.poll(), Poll::Ready(Ok(4)));
}

#[test]
fn a_wait_that_was_given_up_closes_no_circle() {
    let (map, first, second) = (SharedMap::<u32, u32>::new(), Event::default(), Event::default());
    let mut one = Hand::waiting(map.get_or_insert_with(1, async || {
        first.happened().await;
        map.get_or_insert_with(2, async || 0).await.unwrap() + 1
    }));
    let mut two = Hand::waiting(map.get_or_insert_with(2, async || {
        drop(Hand::waiting(map.get_or_insert_with(1, async || 0)));
        second.happened().await;
        5
    }));
    first.set();
    assert!(one.poll().is_pending(), "waits for one who does not wait for it any more");
    second.set();
    assert_eq!(two.poll(), Poll::Ready(Ok(5)));
    assert_eq!(one.poll(), Poll::Ready(Ok(6)));
}

#[test]
fn it_works_on_any_executor_and_after_a_runtime_has_gone() {
    watched(|| {
        let map = SharedMap::new();
        let rt = runtime(1);
        let begun = Event::default();
        let (own, tell) = (map.clone(), begun.clone());
        let computes = rt.spawn(async move {
            own.get_or_insert_with(1, async || {
                tell.set();
                std::future::pending().await
            })
            .await
        });
        begun.wait();
        let mut waits = Hand::waiting(map.get_or_insert_with(1, async || 2));
        rt.shutdown(Duration::ZERO);
        assert!(crate::common::foreign_block_on(computes).is_err());
        eventually("woken", || waits.wakes() > 0);
        assert_eq!(waits.poll(), Poll::Ready(Ok(2)));
        assert_eq!(crate::common::foreign_block_on(map.get_or_insert_with(5, async || 6)), Ok(6));
    });
}
