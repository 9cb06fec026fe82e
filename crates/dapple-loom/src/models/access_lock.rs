//! Models of the access lock: readers in slots against writers.

use std::sync::Arc;
use std::task::Poll;

use loom::model;
use loom::thread::spawn;

use super::{Plain, block_on};
use crate::shared::access_lock::{AccessLock, AccessWait, Hold};
use crate::shared::reader_slots::Registry;

/// A state. Only a writer changes the value.
struct State {
    access_lock: AccessLock,
    registry: Registry,
    value: Plain<usize>,
}

fn state() -> Arc<State> {
    Arc::new(State { access_lock: AccessLock::new(), registry: Registry::default(), value: Plain::new(0) })
}

/// Reads by a slot of its own. Waits while a writer is in the way.
fn read(state: &State) -> usize {
    let slots = state.registry.take();
    let mut place = AccessWait::default();
    let hold =
        block_on(std::future::poll_fn(|cx| state.access_lock.poll_read(&mut place, false, Some(slots), cx)));
    let value = state.value.read();
    state.access_lock.leave(hold.expect("no cancel in a model"));
    slots.give_back();
    value
}

fn write(state: &State) {
    let mut place = AccessWait::default();
    let hold = block_on(std::future::poll_fn(|cx| {
        state.access_lock.poll_write(&mut place, false, &state.registry, cx)
    }));
    state.value.change(|value| *value += 1);
    state.access_lock.leave(hold.expect("no cancel in a model"));
}

/// A wait to write that was polled once, and must go on waiting.
fn waits_to_write(state: &State) -> AccessWait {
    let mut place = AccessWait::default();
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(matches!(
        state.access_lock.poll_write(&mut place, false, &state.registry, &mut cx),
        Poll::Pending
    ));
    place
}

#[test]
fn a_writer_is_alone_and_sees_earlier_writes() {
    model(|| {
        let state = state();
        let reader = spawn({
            let state = state.clone();
            move || read(&state)
        });
        write(&state);
        assert!(reader.join().unwrap() <= 1);
        assert_eq!(state.value.read(), 1);
    });
}

#[test]
fn two_writers_and_a_reader_all_get_in() {
    // One more operation would take minutes.
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let state = state();
        let threads = [write, |state: &State| assert!(read(state) <= 2)].map(|does: fn(&State)| {
            let state = state.clone();
            spawn(move || does(&state))
        });
        write(&state);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(state.value.read(), 2);
    });
}

#[test]
fn of_two_readers_on_an_unset_mark_none_is_in_beside_a_writer() {
    // One more operation would take minutes.
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let state = state();
        let writer = spawn({
            let state = state.clone();
            move || write(&state)
        });
        let reader = spawn({
            let state = state.clone();
            move || read(&state)
        });
        // Here, so that two preemptions are enough: to the writer, and back while that is inside.
        assert!(read(&state) <= 1);
        assert!(reader.join().unwrap() <= 1);
        writer.join().unwrap();
    });
}

#[test]
fn a_counted_reader_lets_the_waiter_in() {
    model(|| {
        let state = state();
        let slots = state.registry.take();
        let Some(hold @ Hold::ReadsBy(_)) = state.access_lock.try_read(false, Some(slots)) else {
            panic!("no writer and no waiter");
        };
        let writer = spawn({
            let state = state.clone();
            move || write(&state)
        });
        assert_eq!(state.value.read(), 0);
        state.access_lock.leave(hold);
        writer.join().unwrap();
        assert_eq!(state.value.read(), 1);
    });
}

#[test]
fn a_waiter_for_a_reader_keeps_its_place_and_is_woken() {
    model(|| {
        let state = state();
        let both = [state.registry.take(), state.registry.take()];
        let holds = both
            .map(|slots| state.access_lock.try_read(false, Some(slots)).expect("no writer and no waiter"));
        let writer = spawn({
            let state = state.clone();
            move || write(&state)
        });
        let reader = spawn({
            let state = state.clone();
            move || state.access_lock.leave(holds[1])
        });
        state.access_lock.leave(holds[0]);
        reader.join().unwrap();
        writer.join().unwrap();
        assert_eq!(state.value.read(), 1);
    });
}

#[test]
fn a_waiter_in_line_looks_for_readers_in_slots() {
    model(|| {
        let state = state();
        let slots = state.registry.take();
        let counted = state.access_lock.try_read_now().expect("no writer and no waiter");
        let by_slot = state.access_lock.try_read(false, Some(slots)).expect("no writer and no waiter");
        let writer = spawn({
            let state = state.clone();
            move || write(&state) // waits for the first reader without having looked for the second
        });
        state.access_lock.leave(counted);
        assert_eq!(state.value.read(), 0);
        state.access_lock.leave(by_slot);
        writer.join().unwrap();
        assert_eq!(state.value.read(), 1);
        assert!(state.access_lock.try_write_now(&state.registry).is_some());
        assert!(state.access_lock.try_read_now().is_none(), "no permit too many");
    });
}

#[test]
fn the_flag_that_slots_are_used_is_unset_and_set_again() {
    model(|| {
        let state = state();
        assert_eq!(read(&state), 0);
        for _ in 0..3 {
            write(&state);
        }
        let reader = spawn({
            let state = state.clone();
            move || read(&state)
        });
        write(&state); // clears the mark
        write(&state); // would not scan the slots
        reader.join().unwrap();
        assert_eq!(state.value.read(), 5);
    });
}

#[test]
fn a_writer_that_gives_up_lets_readers_in() {
    model(|| {
        let state = state();
        let slots = state.registry.take();
        let hold = state.access_lock.try_read(false, Some(slots)).expect("no writer and no waiter");
        let mut place = waits_to_write(&state);
        let reader = spawn({
            let state = state.clone();
            move || read(&state)
        });
        state.access_lock.give_up(&mut place, true);
        state.access_lock.leave(hold);
        reader.join().unwrap();
        assert!(state.access_lock.try_write_now(&state.registry).is_some());
    });
}
