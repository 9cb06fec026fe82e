//! The memory that transactions own: cells, values in them and pending ones, lent references, parked tasks.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::common::foreign_block_on;
use dapple::stm::{TVar, atomically, atomically_blocking, try_atomically};

#[test]
fn numbers_are_kept_in_place() {
    let (byte, float, flag, letter, none) =
        (TVar::new(1_u8), TVar::new(1.5_f64), TVar::new(true), TVar::new('x'), TVar::new(()));
    let small = TVar::new(std::num::NonZeroU16::new(7));
    let all = try_atomically(|tx| {
        tx.modify(&byte, |byte| *byte += 1)?;
        tx.write(&letter, 'y')?;
        tx.write(&small, None)?;
        tx.write(&none, ())?;
        let lent = tx.get(&float)?;
        tx.write(&float, 2.5)?;
        assert_eq!(*lent, 1.5);
        Ok((tx.read(&byte)?, *tx.snapshot(&float)?, tx.read(&flag)?, tx.read(&letter)?))
    });
    assert_eq!(all, Ok((2, 2.5, true, 'y')));
    assert_eq!((byte.load(), float.load(), small.load()), (2, 2.5, None));
}

#[test]
fn values_are_lent_replaced_and_rolled_back() {
    let (text, other) = (TVar::new(String::from("a")), TVar::new(vec![String::from("b")]));
    for does_retry in [true, false] {
        let result = try_atomically(|tx| {
            let committed = tx.get(&text)?;
            tx.write(&text, "c".into())?;
            let pending = tx.get(&text)?;
            tx.modify(&text, |text| text.push('d'))?;
            let mut of_branch = None;
            tx.or_else(
                |tx| {
                    tx.modify(&text, |text| text.push('e'))?;
                    tx.write(&other, Vec::new())?;
                    tx.after_commit(|| unreachable!());
                    of_branch = Some(tx.get(&text)?);
                    tx.retry()
                },
                |tx| tx.modify(&other, |other| other.push("f".into())),
            )?;
            let kept = tx.snapshot(&text)?;
            tx.modify(&text, |text| text.push('g'))?;
            assert_eq!((committed.len(), &**pending, of_branch.map(|text| text.len())), (1, "c", Some(3)));
            if does_retry {
                return tx.retry();
            }
            Ok((kept, tx.read(&text)?))
        });
        assert_eq!(result.ok(), (!does_retry).then(|| (Arc::new("cd".into()), "cdg".into())));
    }
    assert_eq!((text.load(), other.load().len()), ("cdg".into(), 2));
}

#[test]
fn many_writes_are_found_by_the_index() {
    let vars: Vec<_> = (0..40).map(|at| TVar::new(Box::new(at))).collect();
    let sum = try_atomically(|tx| {
        for var in &vars {
            tx.modify(var, |value| **value += 1)?;
        }
        let undone = tx.or_else(
            |tx| {
                vars.iter().try_for_each(|var| tx.write(var, Box::new(0)))?;
                tx.retry()
            },
            |_| Ok(()),
        );
        undone?;
        vars.iter().try_fold(0, |sum, var| Ok(sum + *tx.read(var)?))
    });
    assert_eq!(sum, Ok(40 * 39 / 2 + 40));
}

#[test]
fn cells_that_are_read_outlive_their_handles() {
    let outer = TVar::new(Some(TVar::new(Box::new(1))));
    let value = try_atomically(|tx| {
        let inner = tx.modify(&outer, Option::take)?.expect("there at first");
        let value = tx.get(&inner)?;
        drop(inner);
        Ok(**value)
    });
    assert_eq!(value, Ok(1));
    drop(TVar::new(Box::new(2))); // never used
}

#[test]
fn parked_tasks_come_and_go() {
    let (a, b) = (TVar::new(Box::new(0)), TVar::new(0));
    let mut cx = Context::from_waker(Waker::noop());
    let waits = || {
        atomically(|tx| {
            let sum = tx.with(&a, |a| **a)? + tx.read(&b)?;
            tx.check(sum > 2)
        })
    };
    let mut parked: Vec<_> = (0..4).map(|_| Box::pin(waits())).collect();
    for one in &mut parked {
        assert!(one.as_mut().poll(&mut cx).is_pending());
    }
    drop(parked.remove(1));
    assert!(parked[0].as_mut().poll(&mut cx).is_pending(), "sleeps on");
    try_atomically(|tx| tx.write(&b, 1)).unwrap();
    let polled: Vec<_> = parked.iter_mut().map(|one| one.as_mut().poll(&mut cx)).collect();
    assert_eq!(polled, [Poll::Pending; 3]);
    try_atomically(|tx| tx.write(&a, Box::new(3))).unwrap();
    drop(parked.pop());
    assert_eq!(parked[1].as_mut().poll(&mut cx), Poll::Ready(Ok(())));
    drop(parked); // the first was woken, and is not polled again
    assert_eq!(*a.load(), 3);
}

#[test]
fn threads_wait_for_each_other_and_values_go_through_whole() {
    let place = TVar::new(None::<Box<u32>>);
    let thread = thread::spawn({
        let place = place.clone();
        move || {
            let take =
                || atomically_blocking(|tx| tx.modify(&place, Option::take)?.map_or_else(|| tx.retry(), Ok));
            (0..4).map(|_| *take().unwrap()).sum::<u32>()
        }
    });
    for value in 0..4 {
        foreign_block_on(atomically(|tx| {
            let is_free = tx.with(&place, Option::is_none)?;
            tx.check(is_free)?;
            tx.write(&place, Some(Box::new(value)))
        }))
        .unwrap();
    }
    assert_eq!(thread.join().unwrap(), 6);
}

#[test]
fn readers_keep_values_that_writers_replace() {
    let vars: Arc<[TVar<Box<u32>>]> = (0..2).map(|_| TVar::new(Box::new(0))).collect();
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let vars = vars.clone();
            thread::spawn(move || {
                for _ in 0..6 {
                    atomically_blocking(|tx| {
                        let (a, b) = (tx.get(&vars[0])?, tx.get(&vars[1])?);
                        assert_eq!(a, b);
                        thread::yield_now();
                        vars.iter().try_for_each(|var| tx.write(var, Box::new(**a + 1)))
                    })
                    .unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*vars[0].load(), 12);
}

#[test]
fn a_list_of_variables_is_dropped_in_a_loop() {
    #[derive(Default)]
    struct Node(#[expect(dead_code, reason = "dropped with it")] TVar<Option<Box<Node>>>);
    let mut list = Node::default();
    for _ in 0..20 {
        list = Node(TVar::new(Some(Box::new(list))));
    }
    drop(list);
}
