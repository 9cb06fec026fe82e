//! The memory of `when`, `MVar`, `mpmc` and `broadcast`.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::common::foreign_block_on;
use dapple::Shared;
use dapple::channel::{broadcast, mpmc};
use dapple::shared::when;
use dapple::sync::MVar;

#[test]
fn watchers_come_and_go_with_their_state() {
    let (a, b) = (Shared::new(Box::new(0)), Shared::new(Box::new(0)));
    let mut cx = Context::from_waker(Waker::noop());
    let takes = || when((a.writing(), b.reading()), |(a, b)| (**a + **b > 2).then(|| **a -= 1));
    let mut watchers: Vec<_> = (0..3).map(|_| Box::pin(takes())).collect();
    for watcher in &mut watchers {
        assert!(watcher.as_mut().poll(&mut cx).is_pending());
    }
    drop(watchers.remove(1));
    b.try_write(|b| **b = 2).unwrap();
    a.try_write(|a| **a = 1).unwrap();
    let polled: Vec<_> = watchers.iter_mut().map(|watcher| watcher.as_mut().poll(&mut cx)).collect();
    assert_eq!(polled, [Poll::Ready(Ok(())), Poll::Pending]);
    drop(watchers);
    assert_eq!(a.into_inner().map(|a| *a).ok(), Some(0));
}

#[test]
fn a_writer_of_another_thread_wakes_a_watcher() {
    let state = Shared::new(Box::new(0));
    let writer = thread::spawn({
        let state = state.clone();
        move || {
            for _ in 0..3 {
                state.write_blocking(|value| **value += 1).unwrap();
            }
        }
    });
    let waits = state.when(|value: &mut Box<u32>| (**value == 3).then_some(()));
    foreign_block_on(waits).unwrap();
    writer.join().unwrap();
}

#[test]
fn a_value_goes_through_an_mvar_whole() {
    let place = Arc::new(MVar::<Box<u32>>::empty());
    let thread = thread::spawn({
        let place = place.clone();
        move || (0..4).map(|_| *place.take_blocking().unwrap()).sum::<u32>()
    });
    for value in 0..4 {
        place.put_blocking(Box::new(value)).unwrap();
    }
    assert_eq!(thread.join().unwrap(), 6);
    place.try_put(Box::new(1)).unwrap(); // dropped with it
}

#[test]
fn messages_of_an_mpmc_are_dropped_once() {
    let (sender, receiver) = mpmc::bounded::<Box<u32>>(2);
    let thread = thread::spawn({
        let receiver = receiver.clone();
        move || (0..3).map(|_| *receiver.recv_blocking().unwrap()).sum::<u32>()
    });
    for message in 0..3 {
        sender.send_blocking(Box::new(message)).unwrap();
    }
    assert_eq!(thread.join().unwrap(), 3);
    sender.try_send(Box::new(3)).unwrap();
    drop(receiver);
    assert!(sender.try_send(Box::new(4)).is_err());
}

#[test]
fn slots_of_a_broadcast_are_cloned_overwritten_and_cleared() {
    let (sender, receiver) = broadcast::bounded::<Box<u64>>(2);
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let mut receiver = receiver.resubscribe();
            thread::spawn(move || {
                let mut next = 0;
                loop {
                    match receiver.recv_blocking() {
                        Ok(message) => {
                            assert_eq!(*message, next);
                            next += 1;
                        }
                        Err(broadcast::RecvError::Lagged(missed)) => next += missed,
                        Err(_) => return next,
                    }
                }
            })
        })
        .collect();
    for message in 0..6 {
        sender.send(Box::new(message)).unwrap();
        thread::yield_now();
    }
    drop((sender, receiver));
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 6);
    }
}
