//! A channel for one value: delivery, closing, cancelling, and which side drops the value.
#![expect(clippy::async_yields_async, reason = "tasks hand their receivers back")]

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::common::{
    Drops, Event, foreign_block_on, give_way, in_both_worlds, message, panic_of, rounds, runtime,
    start_thread,
};
use dapple::channel::oneshot::{self, Receiver};
use dapple::task::yield_now;

/// Polls once, with a waker that does nothing.
fn poll_once<T>(receiver: &mut Receiver<T>) -> Poll<Result<T, oneshot::RecvError>> {
    Pin::new(receiver).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_value_arrives_whoever_is_first() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (sender, receiver) = oneshot::channel();
        sender.send(1).unwrap();
        assert_eq!(rt.block_on(receiver).unwrap(), 1);
        for number in 0..rounds(1000, 20) {
            let (sender, receiver) = oneshot::channel();
            let receiver = rt.spawn(receiver);
            let sender = rt.spawn(async move { sender.send(number) });
            assert_eq!(rt.block_on(receiver).unwrap().unwrap(), number);
            rt.block_on(sender).unwrap().unwrap();
        }
    });
}

#[test]
fn threads_and_foreign_executors_can_wait() {
    in_both_worlds(20, || {
        for _ in 0..rounds(100, 10) {
            let (sender, receiver) = oneshot::channel();
            let thread = start_thread(move || foreign_block_on(receiver));
            sender.send(1).unwrap();
            assert_eq!(thread.join().unwrap().unwrap(), 1);
            let (sender, mut receiver) = oneshot::channel();
            let thread = start_thread(move || receiver.recv_blocking());
            sender.send(2).unwrap();
            assert_eq!(thread.join().unwrap().unwrap(), 2);
        }
        let text = runtime(1).block_on(async {
            let (_sender, mut receiver) = oneshot::channel::<u8>();
            dapple::spawn(async move { receiver.recv_blocking() }).await.unwrap_err()
        });
        assert!(text.to_string().contains("recv_blocking called on a thread that runs tasks"), "{text}");
    });
}

#[test]
fn a_sender_that_goes_closes_the_channel() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let (sender, mut receiver) = oneshot::channel::<u8>();
        assert!(receiver.try_recv().unwrap_err().is_empty());
        assert!(poll_once(&mut receiver).is_pending());
        drop(sender);
        assert!(receiver.try_recv().unwrap_err().is_closed());
        assert!(rt.block_on(&mut receiver).unwrap_err().is_closed());
        assert!(rt.block_on(receiver).unwrap_err().is_closed(), "also when asked again");
    });
}

#[test]
fn send_returns_the_value_if_the_receiver_is_gone() {
    let (sender, mut receiver) = oneshot::channel();
    assert!(!sender.is_closed());
    receiver.close();
    receiver.close();
    assert!(sender.is_closed());
    assert_eq!(sender.send("back"), Err("back"));
    assert!(receiver.try_recv().unwrap_err().is_closed());

    let (sender, receiver) = oneshot::channel();
    drop(receiver);
    assert!(sender.is_closed());
    assert_eq!(sender.send("back"), Err("back"));

    let (sender, mut receiver) = oneshot::channel();
    sender.send("stays").unwrap();
    receiver.close();
    assert_eq!(receiver.try_recv(), Ok("stays"));
    assert!(receiver.try_recv().unwrap_err().is_closed(), "once only");
}

#[test]
fn each_value_is_dropped_once() {
    let drops = Drops::default();
    let (sender, receiver) = oneshot::channel();
    assert!(sender.send(drops.guard()).is_ok());
    drop(receiver);
    assert_eq!(drops.count(), 1, "sent, and not received");
    let (sender, receiver) = oneshot::channel();
    drop(receiver);
    drop(sender.send(drops.guard()));
    assert_eq!(drops.count(), 2, "handed back");
    let (sender, mut receiver) = oneshot::channel();
    assert!(poll_once(&mut receiver).is_pending());
    assert!(sender.send(drops.guard()).is_ok());
    drop(receiver);
    assert_eq!(drops.count(), 3, "sent to one who waited, and not received");
    let (sender, mut receiver) = oneshot::channel();
    assert!(sender.send(drops.guard()).is_ok());
    assert!(poll_once(&mut receiver).is_ready());
    drop(receiver);
    assert_eq!(drops.count(), 4, "received");
}

#[test]
fn a_destructor_that_panics_leaves_no_harm() {
    struct Panics(#[expect(dead_code, reason = "is counted when it is dropped")] crate::common::Guard);
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("as asked");
        }
    }
    let drops = Drops::default();
    let (sender, receiver) = oneshot::channel();
    assert!(sender.send(Panics(drops.guard())).is_ok());
    assert_eq!(panic_of(|| drop(receiver)), "as asked");
    assert_eq!(drops.count(), 1);
}

#[test]
fn the_sender_learns_that_the_receiver_has_gone() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        for round in 0..rounds(300, 20) {
            let (mut sender, receiver) = oneshot::channel::<u8>();
            let gone = rt.spawn(async move {
                sender.closed().await.unwrap();
                sender.closed().await.unwrap();
                assert_eq!(sender.send(1), Err(1));
            });
            if round % 2 == 0 {
                give_way();
            }
            drop(receiver);
            rt.block_on(gone).unwrap();
        }
        let (mut sender, _receiver) = oneshot::channel::<u8>();
        let waits = rt.spawn(async move { sender.closed().await });
        waits.cancel();
        assert!(rt.block_on(waits).unwrap().is_err());
    });
}

#[test]
fn a_cancelled_wait_can_be_repeated_and_loses_nothing() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        // Before the first poll: even a value that is there stays.
        let (sender, mut receiver) = oneshot::channel();
        sender.send(1).unwrap();
        let gate = Event::default();
        let go = gate.clone();
        let task = rt.spawn(async move {
            dapple::shield(go.happened()).await;
            assert!((&mut receiver).await.unwrap_err().is_cancelled());
            receiver
        });
        task.cancel();
        gate.set();
        assert_eq!(rt.block_on(rt.block_on(task).unwrap()).unwrap(), 1);
        // While it waits.
        let (sender, mut receiver) = oneshot::channel();
        let begun = Event::default();
        let task = rt.spawn({
            let begun = begun.clone();
            async move {
                begun.set();
                assert!((&mut receiver).await.unwrap_err().is_cancelled());
                receiver
            }
        });
        begun.wait();
        task.cancel();
        let receiver = rt.block_on(task).unwrap();
        sender.send(2).unwrap();
        assert_eq!(rt.block_on(receiver).unwrap(), 2);
    });
}

#[test]
fn what_came_before_the_wait_was_polled_again_is_returned() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (sender, receiver) = oneshot::channel();
        let color = rt.handle().color();
        let begun = Event::default();
        let waiter = color.spawn({
            let begun = begun.clone();
            async move {
                begun.set();
                receiver.await
            }
        });
        begun.wait();
        let task = waiter.task().unwrap().clone();
        // While this has the color, the waiter is not polled.
        let judge = color.call(move || {
            sender.send(5).unwrap();
            task.cancel();
        });
        rt.block_on(judge).unwrap();
        assert_eq!(rt.block_on(waiter).unwrap().unwrap(), 5);
    });
}

#[test]
fn a_receiver_may_move_between_tasks_and_wakers() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (sender, mut receiver) = oneshot::channel();
        assert!(poll_once(&mut receiver).is_pending());
        for _ in 0..3 {
            let task = rt.spawn(async move {
                assert!(poll_once(&mut receiver).is_pending());
                let polled = std::future::poll_fn(|cx| Poll::Ready(Pin::new(&mut receiver).poll(cx))).await;
                assert!(polled.is_pending());
                receiver
            });
            receiver = rt.block_on(task).unwrap();
        }
        let thread = start_thread(move || foreign_block_on(receiver));
        sender.send(7).unwrap();
        assert_eq!(thread.join().unwrap().unwrap(), 7);
    });
}

#[test]
fn halves_that_go_at_the_same_time_free_the_value_once() {
    in_both_worlds(20, || {
        let drops = Drops::default();
        for round in 0..rounds(2000, 30) {
            let (sender, receiver) = oneshot::channel();
            let guard = drops.guard();
            let sender = start_thread(move || match round % 3 {
                0 => drop(sender.send(guard)),
                1 => drop((guard, sender)),
                _ => drop(sender.send(guard)),
            });
            match round % 3 {
                0 => drop(receiver),
                1 => assert!(foreign_block_on(receiver).is_err()),
                _ => assert!(foreign_block_on(receiver).is_ok()),
            }
            sender.join().unwrap();
            assert_eq!(drops.count(), round + 1);
        }
    });
}

#[test]
fn a_panic_while_waiting_loses_nothing() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let (sender, receiver) = oneshot::channel::<Arc<u8>>();
        let value = Arc::new(1);
        let task = rt.spawn(async move {
            let _receiver = receiver;
            yield_now().await;
            panic!("as asked");
        });
        let payload = rt.block_on(task).unwrap_err().try_into_panic().unwrap();
        assert_eq!(message(&*payload), "as asked");
        assert!(sender.send(value.clone()).is_err());
        assert_eq!(Arc::strong_count(&value), 1);
    });
}
