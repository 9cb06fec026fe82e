//! `Shared`, `together` and `together_all`: what each operation promises.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use crate::common::{
    Alone, Drops, Event, foreign_block_on, in_both_worlds, panic_of, rounds, runtime, start_thread,
};
use crate::shared_common::{Bell, Held, poll, settle};
use dapple::{Cancelled, Shared, together, together_all};

#[test]
fn a_free_state_is_entered_in_the_first_poll_and_not_before() {
    let state = Shared::new(1);
    let ran = Cell::new(0);
    let mut write = state.write(|value| {
        ran.set(ran.get() + 1);
        *value += 1;
        *value
    });
    let mut read = state.read(|value| {
        ran.set(ran.get() + 1);
        *value
    });
    assert_eq!(ran.get(), 0);
    assert_eq!(poll(&mut write), Poll::Ready(Ok(2)));
    assert_eq!(poll(&mut read), Poll::Ready(Ok(2)));
    assert_eq!(ran.get(), 2);
}

#[test]
fn many_read_at_a_time() {
    in_both_worlds(20, || {
        let state = Shared::new(7);
        let held: Vec<_> = (0..5).map(|_| Held::reading(&state)).collect();
        assert_eq!(foreign_block_on(state.read(|value| *value)), Ok(7));
        assert_eq!(state.try_read(|value| *value), Ok(7));
        assert!(state.try_write(|_| ()).is_err());
        held.into_iter().for_each(Held::let_go);
        assert_eq!(state.try_write(|value| *value), Ok(7));
    });
}

#[test]
fn a_writer_is_alone() {
    in_both_worlds(60, || {
        let rt = runtime(4);
        let state = Shared::new(0_usize);
        let alone = Arc::new(Alone::default());
        let readers = Arc::new(AtomicUsize::new(0));
        let tasks: Vec<_> = (0..6)
            .map(|number| {
                let (state, alone, readers) = (state.clone(), alone.clone(), readers.clone());
                rt.spawn(async move {
                    for round in 0..rounds(400, 12) {
                        if (number + round) % 3 == 0 {
                            let write = state.write(|value| {
                                assert_eq!(readers.load(Ordering::SeqCst), 0, "read while it is written");
                                alone.visit(|| *value += 1);
                            });
                            write.await.unwrap();
                        } else {
                            let read = state.read(|value| {
                                readers.fetch_add(1, Ordering::SeqCst);
                                let before = *value;
                                crate::common::give_way();
                                assert_eq!(*value, before, "written while it is read");
                                readers.fetch_sub(1, Ordering::SeqCst);
                            });
                            read.await.unwrap();
                        }
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| rt.block_on(task).unwrap());
        assert_eq!(state.into_inner().unwrap(), 6 * rounds(400, 12) / 3);
    });
}

#[test]
fn trying_says_at_once_whether_the_state_is_in_use() {
    in_both_worlds(10, || {
        let state = Shared::new(1);
        assert_eq!(state.try_read(|value| *value), Ok(1));
        assert_eq!(state.try_write(|value| *value), Ok(1));
        let held = Held::writing(&state);
        assert!(state.try_read(|_| ()).is_err());
        assert!(state.try_write(|_| ()).is_err());
        held.let_go();
        let held = Held::reading(&state);
        assert_eq!(state.try_read(|value| *value), Ok(1));
        let busy = state.try_write(|_| ()).unwrap_err();
        assert_eq!(busy.to_string(), "the state is in use");
        held.let_go();
        assert_eq!(state.try_write(|value| *value), Ok(1));
    });
}

#[test]
fn try_calls_go_ahead_of_waiters() {
    in_both_worlds(10, || {
        let state = Shared::new(0);
        let held = Held::reading(&state);
        let bell = Bell::default();
        let (mut write, mut read) = (state.write(|value| *value += 1), state.read(|value| *value));
        assert!(bell.settle(&mut write).is_pending());
        assert!(settle(&mut read).is_pending());
        assert_eq!(state.try_read(|value| *value), Ok(0));
        held.let_go();
        assert!(bell.has_rung(), "the first in line");
        assert_eq!(state.try_write(|value| *value = 10), Ok(()), "free until it is polled");
        assert_eq!(bell.poll(&mut write), Poll::Ready(Ok(())));
        assert_eq!(settle(&mut read), Poll::Ready(Ok(11)));
    });
}

#[test]
fn a_thread_outside_waits_for_its_turn() {
    in_both_worlds(20, || {
        let state = Shared::new(1);
        let held = Held::writing(&state);
        let threads: Vec<_> = (0..3)
            .map(|number| {
                let (state, begun) = (state.clone(), Event::default());
                let thread = start_thread({
                    let begun = begun.clone();
                    move || {
                        begun.set();
                        match number {
                            0 => state.read_blocking(|value| *value).unwrap(),
                            _ => state.write_blocking(|value| std::mem::replace(value, *value + 1)).unwrap(),
                        }
                    }
                });
                begun.wait();
                thread
            })
            .collect();
        held.let_go();
        let seen: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        assert!((1..=3).contains(&seen[0]), "{seen:?}");
        assert_eq!(seen[1] + seen[2], 3, "{seen:?}");
        assert_eq!(state.into_inner().unwrap(), 3);
    });
}

#[test]
fn clones_share_and_the_last_one_gets_the_value() {
    let mut state = Shared::new(vec![1]);
    let mut clone = state.clone();
    assert!(state.get_mut().is_none());
    clone.try_write(|value| value.push(2)).unwrap();
    let state = state.into_inner().unwrap_err();
    assert_eq!(state.try_read(Vec::clone), Ok(vec![1, 2]), "given back as it was");
    drop(state);
    clone.get_mut().expect("alone").push(3);
    assert_eq!(clone.into_inner().unwrap(), [1, 2, 3]);
}

#[test]
fn the_value_is_dropped_once_with_the_last_clone() {
    let drops = Drops::default();
    let state = Shared::new(drops.guard());
    let clone = state.clone();
    drop(state);
    assert_eq!(drops.count(), 0);
    clone.try_write(|value| *value = drops.guard()).unwrap();
    assert_eq!(drops.count(), 1);
    drop(clone);
    assert_eq!(drops.count(), 2);
    drop(Shared::new(drops.guard()).into_inner());
    assert_eq!(drops.count(), 3);
}

#[test]
fn debug_never_waits() {
    in_both_worlds(10, || {
        let state = Shared::named("cache", 5);
        assert_eq!(format!("{state:?}"), r#"Shared { name: "cache", value: 5 }"#);
        assert_eq!(format!("{:?}", Shared::new(5)), "Shared { value: 5 }");
        let held = Held::reading(&state);
        let mut write = state.write(|value| *value = 6);
        assert!(poll(&mut write).is_pending());
        assert_eq!(format!("{state:?}"), r#"Shared { name: "cache", value: 5 }"#);
        held.let_go();
        drop(write);
        let held = Held::writing(&state);
        assert_eq!(format!("{state:?}"), r#"Shared { name: "cache", value: <being written> }"#);
        for text in [format!("{:?}", state.write(|_| ())), format!("{:?}", state.reading())] {
            assert!(text.contains("cache") && text.contains("basics.rs:"), "{text}");
        }
        held.let_go();
        let inside = state.try_write(|_| format!("{state:?}")).unwrap();
        assert_eq!(inside, r#"Shared { name: "cache", value: <being written> }"#);
        let inside = state.try_read(|_| format!("{state:?}")).unwrap();
        assert_eq!(inside, r#"Shared { name: "cache", value: 5 }"#);
    });
}

#[test]
fn states_are_made_from_values() {
    assert_eq!(Shared::<Vec<u8>>::default().into_inner().unwrap(), []);
    assert_eq!(Shared::from("text").into_inner().unwrap(), "text");
    assert_eq!(Shared::named(String::from("given"), 1).name(), Some("given"));
    assert_eq!(Shared::named("given", 1).clone().name(), Some("given"));
    assert_eq!(Shared::new(1).name(), None);
}

#[test]
fn closures_borrow_from_the_stack_and_return_values() {
    dapple::run(async {
        let state = Shared::new(vec![3, 1, 2]);
        let (mut log, names, moved) = (Vec::new(), [String::from("a"), String::from("b")], Box::new(1));
        // Borrowed data, by value and by `&mut`, and data that is not `Send`.
        let name: &str = state.read(|value| &names[value[1]][..]).await.unwrap();
        assert_eq!(name, "b");
        let last: &mut Vec<_> = state
            .write(|value| {
                value.sort_unstable();
                log.extend_from_slice(value);
                &mut log
            })
            .await
            .unwrap();
        last.push(*moved);
        assert_eq!(log, [1, 2, 3, 1]);
        assert_eq!(state.write(move |value| Rc::new(value.len() + *moved)).await.unwrap(), Rc::new(4));
        let other = Shared::new(String::from("x"));
        let both = together((state.reading(), other.writing()), |(state, other)| {
            other.push_str(&state.len().to_string());
            (&names[0], other.clone())
        });
        assert_eq!(both.await.unwrap(), (&names[0], String::from("x3")));
        let taken: String = together_all(&[other.writing()], |all| std::mem::take(all[0])).await.unwrap();
        assert_eq!(taken, "x3");
        assert_eq!(state.try_read(|value| &names[value.len() - 2]), Ok(&names[1]));
        // A result inside of a result: the closure's error is distinct from a cancelled wait.
        let failed: Result<Result<(), &str>, Cancelled> = state.read(|_| Err("inner")).await;
        assert_eq!(failed, Ok(Err("inner")));
    });
}

#[test]
fn together_takes_two_to_eight_in_whatever_order() {
    dapple::run(async {
        let states: Vec<_> = (0..8).map(Shared::new).collect();
        let [a, b, c, d, e, f, g, h] = &states[..] else { unreachable!() };
        together((b.writing(), a.reading()), |(b, a)| *b += *a + 10).await.unwrap();
        together((a.reading(), b.writing()), |(a, b)| *b += *a + 10).await.unwrap();
        let three = together((c.reading(), a.reading(), b.reading()), |(c, a, b)| (*c, *a, *b));
        assert_eq!(three.await, Ok((2, 0, 21)));
        let all = (
            h.writing(),
            b.reading(),
            c.writing(),
            d.reading(),
            e.writing(),
            f.reading(),
            g.writing(),
            a.reading(),
        );
        let sum = together(all, |(h, b, c, d, e, f, g, a)| {
            (*h, *c, *e, *g) = (0, 0, 0, 0);
            *b + *d + *f + *a
        });
        assert_eq!(sum.await, Ok(21 + 3 + 5));
        let reading: Vec<_> = states.iter().map(Shared::reading).collect();
        let left = together_all(&reading, |all| all.iter().map(|value| **value).collect::<Vec<_>>());
        assert_eq!(left.await, Ok(vec![0, 21, 0, 3, 0, 5, 0, 0]));
    });
}

#[test]
fn together_all_takes_any_number_in_the_order_of_the_slice() {
    dapple::run(async {
        let states: Vec<_> = (0..20).map(Shared::new).collect();
        for count in [0, 1, 2, 3, 4, 5, 12, 20] {
            for backwards in [false, true] {
                let mut wishes: Vec<_> = states[..count].iter().map(Shared::writing).collect();
                let mut expected: Vec<_> = (0..count).collect();
                if backwards {
                    wishes.reverse();
                    expected.reverse();
                }
                let seen = together_all(&wishes, |all| all.iter().map(|value| **value).collect::<Vec<_>>());
                assert_eq!(seen.await, Ok(expected));
            }
        }
    });
}

#[test]
fn a_panic_in_a_closure_reaches_its_caller_alone_and_leaves_the_state_free() {
    in_both_worlds(10, || {
        let (state, other) = (Shared::new(0), Shared::new(0));
        let many: Vec<_> = (0..6).map(|_| Shared::new(0)).collect();
        for case in 0..9 {
            let rung = Bell::default();
            let held = Held::writing(&state);
            let mut next = state.write(|value| *value);
            let blocked = start_thread({
                let (state, other) = (state.clone(), other.clone());
                let many: Vec<_> = [state.clone()].into_iter().chain(many.clone()).collect();
                move || {
                    let oops = |value: &mut i32| {
                        *value += 1;
                        panic!("oops {case}")
                    };
                    let writing: Vec<_> = many.iter().map(Shared::writing).collect();
                    foreign_block_on(async {
                        match case {
                            0 => state.write(oops).await,
                            1 => state.read(|_| panic!("oops {case}")).await,
                            2 => together((state.writing(), other.reading()), |(state, _)| oops(state)).await,
                            3 => together((other.writing(), state.reading()), |(other, _)| oops(other)).await,
                            4 => together_all(&writing[..2], |all| oops(all[1])).await,
                            5 => together_all(&writing, |all| oops(all[1])).await,
                            6 => state.write_blocking(oops),
                            7 => state.read_blocking(|_| panic!("oops {case}")),
                            _ => other.try_write(oops).map_err(|_| Cancelled),
                        }
                    })
                }
            });
            held.let_go();
            let panicked = blocked.join().unwrap_err();
            assert_eq!(crate::common::message(&*panicked), format!("oops {case}"));
            assert!(matches!(rung.poll(&mut next), Poll::Ready(Ok(_))), "the state is free");
            for state in [&state, &other].into_iter().chain(&many) {
                assert!(state.try_write(|_| ()).is_ok(), "case {case}: not left");
            }
        }
        assert_eq!(state.into_inner().unwrap(), 3, "as the closures left it");
        assert_eq!(other.into_inner().unwrap(), 2);
    });
}

#[test]
fn an_access_that_has_run_is_not_polled_again() {
    let state = Shared::named("once", 0);
    let mut write = state.write(|_| ());
    assert!(poll(&mut write).is_ready());
    let message = panic_of(|| poll(&mut write));
    assert!(message.contains("once") && message.contains("polled again"), "{message}");
    let mut read = state.read(|_| -> () { panic!("oops") });
    assert_eq!(panic_of(|| poll(&mut read)), "oops");
    assert!(panic_of(|| poll(&mut read)).contains("polled again"));
    let other = Shared::new(1);
    let mut both = together((state.reading(), other.reading()), |_| ());
    assert!(poll(&mut both).is_ready());
    assert!(panic_of(|| poll(&mut both)).contains("polled again"));
    assert!(state.try_write(|_| ()).is_ok());
}

#[test]
fn a_thread_can_be_in_more_states_than_it_has_slots() {
    let states: Vec<_> = (0..30).map(Shared::new).collect();
    fn inside(states: &[Shared<i32>], then: &dyn Fn()) {
        match states {
            [] => then(),
            // Each twice.
            [first, rest @ ..] => {
                first.try_read(|_| first.try_read(|_| inside(rest, then)).unwrap()).unwrap();
            }
        }
    }
    inside(&states, &|| {
        assert!(states.iter().all(|state| state.try_write(|_| ()).is_err()));
        assert!(states.iter().all(|state| state.try_read(|_| ()).is_ok()));
    });
    assert!(states.iter().all(|state| state.try_write(|_| ()).is_ok()));
}

#[test]
fn it_outlives_its_runtime_and_works_on_any_executor() {
    in_both_worlds(5, || {
        let state = Shared::new(0);
        let rt = runtime(2);
        rt.block_on(rt.spawn({
            let state = state.clone();
            async move { state.write(|value| *value += 1).await }
        }))
        .unwrap()
        .unwrap();
        // One who waits in a task of the runtime when that goes.
        let held = Held::writing(&state);
        let begun = Event::default();
        let waits = rt.spawn({
            let (state, begun) = (state.clone(), begun.clone());
            async move { crate::common::telling(begun, state.write(|value| *value += 100)).await }
        });
        begun.wait();
        drop(rt);
        assert!(foreign_block_on(waits).unwrap_err().is_gone());
        held.let_go();
        assert_eq!(foreign_block_on(state.write(|value| *value += 1)), Ok(()));
        assert_eq!(state.write_blocking(|value| *value += 1), Ok(()));
        assert_eq!(
            foreign_block_on(together((state.reading(), Shared::new(1).reading()), |(a, b)| *a + *b)),
            Ok(4)
        );
    });
}
