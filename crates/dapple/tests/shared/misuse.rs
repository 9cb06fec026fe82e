//! Misuse of shared states is named, with the states and the places, and never hangs.

use crate::common::{foreign_block_on, in_both_worlds, panic_of, runtime, watched};
use crate::shared_common::poll;
use dapple::channel::mpsc;
use dapple::sync::Mutex;
use dapple::{Shared, together, together_all};
use futures_lite::future::poll_once;

/// Checks that a message has all of these in it, in this order.
#[track_caller]
fn assert_says(message: &str, parts: &[&str]) {
    let mut rest = message;
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => panic!("{part:?} is not said, or not there: {message}"),
        }
    }
}

/// This line, or one so far above it, as messages have it.
macro_rules! place {
    () => {
        place!(0)
    };
    ($above:literal) => {
        &format!("misuse.rs:{}:", line!() - $above)
    };
}

/// Calls `inside` in each kind of closure of a state; says in which line the closure was named.
fn in_each_closure(state: &Shared<u32>, inside: &dyn Fn(&str)) {
    let other = Shared::new(0);
    state.try_read(|_| inside(place!())).unwrap();
    state.try_write(|_| inside(place!())).unwrap();
    poll_now(state.read(|_| inside(place!())));
    poll_now(state.write(|_| inside(place!())));
    poll_now(together((other.reading(), state.writing()), |_| inside(place!())));
    poll_now(together((state.reading(), other.writing()), |_| inside(place!())));
    poll_now(together_all(&[state.writing()], |_| inside(place!())));
}

/// Takes a free state, which takes one poll.
fn poll_now<F: Future + Unpin>(mut future: F) {
    assert!(poll(&mut future).is_ready());
}

#[test]
fn to_wait_in_a_closure_is_refused_with_both_states_and_both_places() {
    in_both_worlds(2, || {
        let (state, other) = (Shared::named("outer", 0), Shared::named("inner", 0));
        in_each_closure(&state, &|outside| {
            // Of another state, which is free.
            for wait in [
                panic_of(|| poll(&mut other.read(|_| ()))),
                panic_of(|| foreign_block_on(other.read(|_| ()))),
                panic_of(|| futures_lite::future::block_on(poll_once(other.read(|_| ())))),
                panic_of(|| other.read_blocking(|_| ())),
            ] {
                assert_says(&wait, &["inner", "read at", "misuse.rs:", "outer", outside]);
            }
            for wait in [
                panic_of(|| poll(&mut other.write(|_| ()))),
                panic_of(|| futures_lite::future::block_on(other.write(|_| ()))),
                panic_of(|| other.write_blocking(|_| ())),
            ] {
                assert_says(&wait, &["inner", "written at", "misuse.rs:", "outer", outside]);
            }
            // Of the same.
            assert_says(&panic_of(|| poll(&mut state.read(|_| ()))), &["outer", place!(), "outer", outside]);
            assert_says(&panic_of(|| poll(&mut state.write(|_| ()))), &["outer", place!(), "outer", outside]);
            assert_says(&panic_of(|| state.read_blocking(|_| ())), &["outer", place!(), "outer", outside]);
            assert_says(&panic_of(|| state.write_blocking(|_| ())), &["outer", place!(), "outer", outside]);
        });
        assert!(state.try_write(|_| ()).is_ok() && other.try_write(|_| ()).is_ok());
    });
}

#[test]
fn together_in_a_closure_is_refused_with_all_states_and_places() {
    let (state, other, third) =
        (Shared::named("outer", 0), Shared::named("inner", 0), Shared::named("third", 0));
    in_each_closure(&state, &|outside| {
        let message = panic_of(|| poll(&mut together((other.reading(), third.writing()), |_| ())));
        assert!(message.contains("inner") && message.contains("third"), "{message}");
        assert_says(&message, &["misuse.rs:", "misuse.rs:", "outer", outside]);
        let message = panic_of(|| poll(&mut together((other.reading(), state.reading()), |_| ())));
        assert_says(&message, &["misuse.rs:", "misuse.rs:", "outer", outside]);
        let message = panic_of(|| poll(&mut together_all(&[other.writing()], |_| ())));
        assert_says(&message, &["inner", "misuse.rs:", "outer", outside]);
    });
    assert!([state, other, third].iter().all(|state| state.try_write(|_| ()).is_ok()));
}

#[test]
fn what_blocks_in_a_closure_is_refused() {
    watched(|| {
        let rt = runtime(1);
        let state = Shared::named("outer", 0);
        let mutex = Mutex::new(0);
        let (sender, mut receiver) = mpsc::bounded::<u32>(1);
        in_each_closure(&state, &|outside| {
            let says = |what: &str, message: String| assert_says(&message, &[what, "outer", outside]);
            says("block_on", panic_of(|| rt.block_on(async {})));
            says("block_on", panic_of(|| rt.handle().block_on(async {})));
            says("run", panic_of(|| dapple::run(async {})));
            says("lock_blocking", panic_of(|| mutex.lock_blocking().map(drop)));
        });
        in_each_closure(&state, &|outside| {
            assert_says(&panic_of(|| sender.send_blocking(1)), &["send", "outer", outside]);
        });
        state.try_write(|_| assert_says(&panic_of(|| receiver.recv_blocking()), &["recv", "outer"])).unwrap();
        // A call that does not wait is no misuse, nor is a wait after the closure.
        state
            .try_write(|_| {
                assert!(mutex.try_lock().is_ok());
                assert_eq!(state.try_read(|_| ()), Err(state.try_write(|_| ()).unwrap_err()));
                drop(state.write(|_| ()));
                rt.spawn(async {}).detach();
            })
            .unwrap();
        assert_eq!(rt.block_on(state.read(|value| *value)), Ok(0));
    });
}

#[test]
fn a_nested_closure_is_named_by_its_own_state_and_the_outer_one_goes_on() {
    let (outer, inner, third) =
        (Shared::named("outer", 0), Shared::named("inner", 0), Shared::named("third", 0));
    outer
        .try_write(|_| {
            inner
                .try_write(|_| {
                    assert_says(
                        &panic_of(|| poll(&mut third.read(|_| ()))),
                        &["third", "closure of", "inner"],
                    );
                })
                .unwrap();
            assert_says(&panic_of(|| poll(&mut third.read(|_| ()))), &["third", "closure of", "outer"]);
        })
        .unwrap();
    assert!(poll(&mut third.read(|_| ())).is_ready());
    // Also after a panic.
    assert_eq!(panic_of(|| outer.try_write(|_| -> () { panic!("oops") })), "oops");
    assert!(poll(&mut third.read(|_| ())).is_ready());
    assert!(outer.try_write(|_| ()).is_ok());
}

#[test]
fn to_block_on_a_worker_is_refused() {
    in_both_worlds(3, || {
        let rt = runtime(2);
        let state = Shared::named("cache", 0);
        let task = rt.spawn({
            let state = state.clone();
            async move {
                assert_says(&panic_of(|| state.read_blocking(|_| ())), &["cache", place!(), "runs tasks"]);
                assert_says(&panic_of(|| state.write_blocking(|_| ())), &["cache", place!(), "runs tasks"]);
                let elsewhere = dapple::blocking({
                    let state = state.clone();
                    move || state.write_blocking(|value| *value += 1)
                });
                elsewhere.await.unwrap().unwrap();
            }
        });
        rt.block_on(task).unwrap();
        rt.block_on(async {
            assert_says(&panic_of(|| state.read_blocking(|_| ())), &["cache", place!(), "runs tasks"]);
        });
        assert_eq!(state.write_blocking(|value| *value), Ok(1));
    });
}

#[test]
fn a_state_named_twice_is_refused_with_both_places() {
    in_both_worlds(2, || {
        let (state, other) = (Shared::named("account", 0), Shared::new(0));
        let clone = state.clone();
        let says = |message: String, first: &str, second: &str| {
            assert_says(&message, &["twice", "account", "misuse.rs:", "account", "misuse.rs:"]);
            assert!(message.contains(first) && message.contains(second), "{message}");
        };
        let (one, two, here) = (state.writing(), state.writing(), place!());
        says(panic_of(|| poll(&mut together((one, two), |_| ()))), here, here);
        let (one, two, here) = (state.reading(), state.reading(), place!());
        says(panic_of(|| poll(&mut together((one, two), |_| ()))), here, here);
        let (first, second) = (state.reading(), place!());
        let (last, third) = (clone.writing(), place!());
        says(panic_of(|| poll(&mut together((first, other.writing(), last), |_| ()))), second, third);
        for count in [2, 3, 5, 9] {
            let others: Vec<_> = (2..count).map(Shared::new).collect();
            let mut all: Vec<_> = others.iter().map(Shared::writing).collect();
            all.insert(0, state.writing());
            all.push(clone.writing());
            says(panic_of(|| poll(&mut together_all(&all, |_| ()))), place!(2), place!(1));
            assert!(others.iter().all(|state| state.try_write(|_| ()).is_ok()), "nothing was entered");
        }
        assert!(state.try_write(|_| ()).is_ok() && other.try_write(|_| ()).is_ok());
    });
}

#[test]
fn a_state_without_a_name_is_called_by_its_type_and_where_it_was_made() {
    let (state, made) = (Shared::new(vec![1_u8]), place!());
    let (default, made_by_default) = (Shared::<String>::default(), place!());
    let (from, made_from) = (Shared::from(1.5_f32), place!());
    Shared::named("outer", ())
        .try_write(|()| {
            assert_says(&panic_of(|| poll(&mut state.read(|_| ()))), &["Vec<u8>", made, "outer"]);
            assert_says(&panic_of(|| poll(&mut default.read(|_| ()))), &["String", made_by_default, "outer"]);
            assert_says(&panic_of(|| poll(&mut from.read(|_| ()))), &["f32", made_from, "outer"]);
        })
        .unwrap();
}

/// A refused use ends the task that it is in, and nothing else.
#[test]
fn the_others_go_on_after_a_misuse() {
    in_both_worlds(5, || {
        let rt = runtime(2);
        let state = Shared::named("cache", 0);
        let wrong = rt.spawn({
            let state = state.clone();
            async move { state.write(|_| foreign_block_on(state.read(|value| *value))).await }
        });
        let right = rt.spawn({
            let state = state.clone();
            async move { state.write(|value| *value += 1).await }
        });
        let message = crate::common::message(&*rt.block_on(wrong).unwrap_err().try_into_panic().unwrap());
        assert_says(&message, &["cache", place!(7), "cache", place!(7)]);
        assert_eq!(rt.block_on(right).unwrap(), Ok(()));
        assert_eq!(state.into_inner().unwrap(), 1);
    });
}
