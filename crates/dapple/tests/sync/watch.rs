//! A channel that keeps the newest of a value.

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use crate::common::{
    Drops, Event, foreign_block_on, give_way, in_both_worlds, panic_of, rounds, runtime, start_thread,
};
use dapple::channel::watch;
use dapple::task::yield_now;
use futures_core::Stream;

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn the_newest_value_is_seen_by_all() {
    in_both_worlds(20, || {
        let (rt, newest) = (runtime(2), rounds(1000, 40));
        let (sender, receiver) = watch::channel(0);
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let mut receiver = receiver.clone();
                rt.spawn(async move {
                    let mut last = 0;
                    while last != newest {
                        receiver.changed().await.unwrap();
                        let value = *receiver.borrow_and_update();
                        assert!(value >= last, "never back");
                        last = value;
                    }
                })
            })
            .collect();
        let thread = start_thread(move || {
            (1..=newest).for_each(|value| {
                sender.send(value).unwrap();
                give_way();
            })
        });
        tasks.into_iter().for_each(|task| rt.block_on(task).unwrap());
        thread.join().unwrap();
        assert_eq!(*receiver.borrow(), newest);
        assert!(receiver.has_changed().unwrap_err().is_closed());
    });
}

#[test]
fn a_change_is_seen_once() {
    let (sender, mut receiver) = watch::channel(0);
    assert!(!receiver.has_changed().unwrap());
    assert!(poll_once(pin!(receiver.changed())).is_pending());
    assert_eq!(sender.send_replace(1), 0);
    assert!(!sender.send_if_modified(|_| false));
    sender.send_modify(|value| *value += 1);
    assert!(receiver.has_changed().unwrap() && receiver.borrow().has_changed());
    assert!(poll_once(pin!(receiver.changed())).is_ready());
    assert!(poll_once(pin!(receiver.changed())).is_pending());
    let seen = receiver.borrow_and_update();
    assert!((*seen, seen.has_changed()) == (2, false));
    drop(seen);
    assert!(!sender.subscribe().has_changed().unwrap());
    sender.send(3).unwrap();
    assert!(receiver.clone().has_changed().unwrap(), "a clone has seen what this one has");
    drop(sender);
    assert!(matches!(poll_once(pin!(receiver.changed())), Poll::Ready(Ok(()))), "the last value");
    assert!(matches!(poll_once(pin!(receiver.changed())), Poll::Ready(Err(error)) if error.is_closed()));
}

#[test]
fn wait_for_returns_the_value_that_was_wanted() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (sender, mut receiver) = watch::channel(0);
        let task =
            rt.spawn(async move { receiver.wait_for(|value| value % 7 == 6).await.map(|value| *value) });
        for value in 1.. {
            if sender.send(value).is_err() {
                break;
            }
            give_way();
        }
        assert_eq!(rt.block_on(task).unwrap().unwrap() % 7, 6);
        let mut receiver = sender.subscribe();
        drop(sender);
        assert!(rt.block_on(receiver.wait_for(|_| true)).is_ok());
        assert!(rt.block_on(receiver.wait_for(|_| false)).unwrap_err().is_closed());
    });
}

#[test]
fn the_sender_learns_that_all_receivers_have_gone() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (sender, receiver) = watch::channel(0);
        let other = receiver.clone();
        assert_eq!((sender.receiver_count(), sender.is_closed()), (2, false));
        let gone = rt.spawn(async move {
            sender.closed().await.unwrap();
            assert_eq!(sender.send(5).unwrap_err().0, 5);
            assert_eq!(*sender.borrow(), 0);
            sender.send_replace(6);
            assert_eq!(*sender.subscribe().borrow(), 6);
        });
        drop(receiver);
        drop(other);
        rt.block_on(gone).unwrap();
    });
}

#[test]
fn cancelled_waits_see_nothing() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let (sender, mut receiver) = watch::channel(0);
        sender.send(1).unwrap();
        let gate = Event::default();
        let go = gate.clone();
        let task = rt.spawn(async move {
            go.happened().await;
            assert!(receiver.changed().await.unwrap_err().is_cancelled());
            assert!(receiver.wait_for(|_| true).await.unwrap_err().is_cancelled());
            let next = std::future::poll_fn(|cx| Pin::new(&mut receiver).poll_next(cx)).await;
            assert!(matches!(next, Some(Err(dapple::Cancelled))));
            receiver
        });
        task.cancel();
        gate.set();
        let mut receiver = rt.block_on(task).unwrap();
        assert!(receiver.has_changed().unwrap());
        rt.block_on(receiver.changed()).unwrap();
        let task = rt.spawn(async move { receiver.changed().await });
        rt.block_on(rt.spawn(yield_now())).unwrap();
        task.cancel();
        assert!(rt.block_on(task).unwrap().unwrap_err().is_cancelled());
    });
}

#[test]
fn a_receiver_is_a_stream_of_changes() {
    in_both_worlds(20, || {
        let (sender, mut receiver) = watch::channel(0);
        let thread = start_thread(move || {
            let mut last = 0;
            while let Some(value) =
                foreign_block_on(std::future::poll_fn(|cx| Pin::new(&mut receiver).poll_next(cx)))
            {
                last = value.unwrap();
            }
            last
        });
        (1..=100).for_each(|value| sender.send(value).unwrap());
        drop(sender);
        assert_eq!(thread.join().unwrap(), 100);
    });
}

#[test]
fn values_are_dropped_once_and_a_panic_while_changing_does_no_harm() {
    let drops = Drops::default();
    let (sender, receiver) = watch::channel(Some(drops.guard()));
    assert!(sender.send(Some(drops.guard())).is_ok());
    assert_eq!(drops.count(), 1);
    assert_eq!(panic_of(|| sender.send_modify(|_| panic!("as asked"))), "as asked");
    assert!(!receiver.has_changed().is_ok_and(|changed| !changed), "the send before it");
    sender.send_modify(|value| *value = None);
    assert!(receiver.borrow().is_none());
    drop((sender, receiver));
    assert_eq!(drops.count(), 2);
}
