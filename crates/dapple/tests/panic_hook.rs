//! A panic hook, and destructors that run while a thread unwinds, may use a `SharedMap`, wherever the panic came from. A
//! second panic there would end the process, and with it this test.
//!
//! The hook is the process's, so that the tests take turns.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::mpsc::channel;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use dapple::SharedMap;

static TURN: Mutex<()> = Mutex::new(());
static PANICS: LazyLock<SharedMap<String, u64>> = LazyLock::new(SharedMap::new);

/// Runs `body` with a hook that counts by message, in `PANICS`, which is empty at first. Whether it panicked.
fn with_counting_hook(body: impl FnOnce()) -> bool {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    PANICS.clear();
    set_hook(Box::new(|info| {
        let message = info.payload().downcast_ref::<&str>().copied().unwrap_or_default().to_owned();
        let before = PANICS.get(&message).unwrap_or(0);
        PANICS.insert(message, before + 1);
    }));
    let ended = catch_unwind(AssertUnwindSafe(body));
    drop(take_hook());
    ended.is_err()
}

#[test]
fn a_hook_may_use_a_map_after_a_panic_in_the_closure_of_another_map() {
    let map = SharedMap::from([(1, 1), (2, 2)]);
    assert!(with_counting_hook(|| map.retain(|_, _| panic!("in retain"))));
    assert_eq!(PANICS.get("in retain"), Some(1));
    assert_eq!(map.insert(3, 3), None, "the map can be used again");
    assert!(with_counting_hook(|| map.for_each(|_, _| panic!("in for_each"))));
    assert_eq!(PANICS.get("in for_each"), Some(1));
}

#[test]
fn a_hook_may_use_a_map_after_a_panic_in_eq() {
    #[derive(Clone, Debug, Eq)]
    struct Hostile(u8);
    impl std::hash::Hash for Hostile {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl PartialEq for Hostile {
        fn eq(&self, _: &Hostile) -> bool {
            panic!("in eq")
        }
    }
    let map = SharedMap::from([(Hostile(1), 1)]);
    assert!(with_counting_hook(|| assert_eq!(map.insert(Hostile(1), 2), None)));
    assert_eq!(PANICS.get("in eq"), Some(1));
    assert_eq!(map.len(), 1);
}

#[test]
fn a_destructor_that_runs_while_unwinding_may_change_another_map() {
    struct Notes<'a>(&'a SharedMap<&'static str, u8>);
    impl Drop for Notes<'_> {
        fn drop(&mut self) {
            self.0.insert("dropped", 1);
            self.0.remove("before");
        }
    }
    let (map, other) = (SharedMap::from([(1, 1)]), SharedMap::from([("before", 0)]));
    assert!(with_counting_hook(|| map.retain(|_, _| {
        let _notes = Notes(&other);
        panic!("in retain")
    })));
    assert_eq!((other.get("dropped"), other.get("before")), (Some(1), None));
}

#[test]
fn a_hook_that_asks_the_very_map_gets_an_answer() {
    let map = Arc::new(SharedMap::from([(1, 1)]));
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = map.clone();
    set_hook(Box::new(move |_| {
        // This thread has the shard itself: as if it were empty, and nothing is changed.
        assert_eq!(asked.get(&1), None);
        assert_eq!(asked.insert(1, 5), None);
    }));
    let ended = catch_unwind(AssertUnwindSafe(|| map.retain(|_, _| panic!("in retain"))));
    drop(take_hook());
    assert!(ended.is_err());
    assert_eq!(map.get(&1), Some(1));
}

#[test]
fn two_threads_that_panic_and_ask_for_each_other_both_get_on() {
    let maps = [SharedMap::from([(1, 1)]), SharedMap::from([(1, 1)])];
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let asked = maps.clone();
    set_hook(Box::new(move |info| {
        let own: usize = info.payload().downcast_ref::<String>().unwrap().parse().unwrap();
        asked[1 - own].insert(1, 7); // the other has it, or had it
    }));
    let (say, hear) = channel();
    let barrier = Arc::new(std::sync::Barrier::new(2));
    for own in 0..2 {
        let (maps, say, barrier) = (maps.clone(), say.clone(), barrier.clone());
        std::thread::spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| {
                maps[own].retain(|_, _| {
                    barrier.wait(); // both are in their shards
                    panic!("{own}")
                });
            }));
            say.send(ended.is_err()).unwrap();
        });
    }
    assert!(hear.recv().unwrap() && hear.recv().unwrap());
    drop(take_hook());
    maps.iter().for_each(|map| assert_eq!(map.len(), 1));
}

#[test]
fn without_a_panic_nested_use_is_refused() {
    let (map, other) = (SharedMap::from([(1, 1)]), SharedMap::from([(1, 1)]));
    assert!(with_counting_hook(|| map.retain(|_, _| other.get(&1).is_some())));
    assert_eq!(map.len(), 1);
}
