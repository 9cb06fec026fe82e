//! The memory of `when`, `MVar`, `OnceCell`, `mpmc` and `broadcast`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::common::foreign_block_on;
use dapple::Shared;
use dapple::channel::{broadcast, mpmc};
use dapple::shared::when;
use dapple::sync::{MVar, OnceCell};

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

/// A message that counts how many of it are alive; a clone is one more.
struct Alive(Box<u64>, Arc<AtomicUsize>);

impl Alive {
    fn new(number: u64, count: &Arc<AtomicUsize>) -> Alive {
        count.fetch_add(1, SeqCst);
        Alive(Box::new(number), count.clone())
    }
}

impl Clone for Alive {
    fn clone(&self) -> Alive {
        thread::yield_now(); // others come while it is pinned
        Alive::new(*self.0, &self.1)
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.1.fetch_sub(1, SeqCst);
    }
}

#[test]
fn messages_of_a_broadcast_are_dropped_once_while_receivers_come_and_go() {
    let count = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = broadcast::bounded(2);
    let senders: Vec<_> = (0..2)
        .map(|_| {
            let (sender, count) = (sender.clone(), count.clone());
            thread::spawn(move || (0..4).for_each(|number| drop(sender.send(Alive::new(number, &count)))))
        })
        .collect();
    let receivers: Vec<_> = (0..2)
        .map(|number| {
            let mut receiver = receiver.resubscribe();
            thread::spawn(move || {
                for _ in 0..2 + number {
                    drop(receiver.try_recv());
                    let mut next = receiver.resubscribe();
                    let mut cx = Context::from_waker(Waker::noop());
                    let polled = Box::pin(next.recv()).as_mut().poll(&mut cx);
                    drop(polled);
                    receiver = next; // the other one goes, and leaves messages unread
                }
            })
        })
        .collect();
    drop(sender);
    for thread in senders.into_iter().chain(receivers) {
        thread.join().unwrap();
    }
    drop(receiver);
    assert_eq!(count.load(SeqCst), 0);
}

#[test]
fn messages_of_an_mpmc_are_dropped_once_while_its_ends_come_and_go() {
    let count = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = mpmc::bounded(1);
    let senders: Vec<_> = (0..2)
        .map(|number| {
            let (sender, count) = (sender.clone(), count.clone());
            thread::spawn(move || {
                let mut cx = Context::from_waker(Waker::noop());
                for message in 0..3 {
                    let sender = sender.clone();
                    let mut left = Box::pin(sender.send(Alive::new(message, &count)));
                    let polled = left.as_mut().poll(&mut cx);
                    drop((polled, left)); // sent, or dropped with the wait
                    drop(sender.try_send(Alive::new(message, &count)));
                }
                if number == 0 {
                    drop(sender.send_blocking(Alive::new(9, &count)));
                }
            })
        })
        .collect();
    let receivers: Vec<_> = (0..2)
        .map(|number| {
            let receiver = receiver.clone();
            thread::spawn(move || {
                let mut cx = Context::from_waker(Waker::noop());
                for _ in 0..3 {
                    let receiver = receiver.clone();
                    let mut left = Box::pin(receiver.recv());
                    drop(left.as_mut().poll(&mut cx));
                    drop(left);
                    drop(receiver.try_recv());
                }
                if number == 0 {
                    drop(receiver.recv_blocking());
                }
            })
        })
        .collect();
    drop((sender, receiver)); // the last one of a side closes the channel, with messages or without
    for thread in senders.into_iter().chain(receivers) {
        thread.join().unwrap();
    }
    assert_eq!(count.load(SeqCst), 0);
}

#[test]
fn a_value_of_an_mvar_and_of_a_cell_is_dropped_once_while_waits_are_left() {
    let count = Arc::new(AtomicUsize::new(0));
    let (place, cell) = (Arc::new(MVar::empty()), Arc::new(OnceCell::new()));
    let threads: Vec<_> = (0..3)
        .map(|number| {
            let (place, cell, count) = (place.clone(), cell.clone(), count.clone());
            thread::spawn(move || {
                let mut cx = Context::from_waker(Waker::noop());
                let mut left = Box::pin(place.take());
                let taken = left.as_mut().poll(&mut cx);
                let mut put = Box::pin(place.put(Alive::new(number, &count)));
                let polled = put.as_mut().poll(&mut cx);
                drop((taken, left, polled, put));
                drop(place.try_put(Alive::new(number, &count)));
                let swapped = Box::pin(place.swap(Alive::new(number, &count))).as_mut().poll(&mut cx);
                drop(swapped);
                drop(cell.set(Alive::new(number, &count)));
                let init = async || Alive::new(number, &count);
                let set = foreign_block_on(cell.get_or_init(init)).map(|value| *value.0).unwrap();
                assert!(set < 3);
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    drop((place, cell));
    assert_eq!(count.load(SeqCst), 0);
}
