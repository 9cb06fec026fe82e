//! `mpmc`: each message to one receiver, in order, and none lost.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use dapple::channel::mpmc;
use dapple::spawn;
use dapple::time::{sleep, timeout};
use futures_util::{FutureExt, StreamExt};

const MS: Duration = Duration::from_millis(1);

#[dapple::test(sim, seeds = 40, workers = 3)]
async fn each_message_goes_to_one_receiver() {
    let (sender, receiver) = mpmc::bounded(3);
    let receivers: Vec<_> = (0..4)
        .map(|_| {
            let receiver = receiver.clone();
            spawn(async move {
                let mut got = Vec::new();
                while let Ok(message) = receiver.recv().await {
                    got.push(message);
                }
                got
            })
        })
        .collect();
    drop(receiver);
    let senders: Vec<_> = (0..4)
        .map(|number| {
            let sender = sender.clone();
            spawn(async move {
                for message in 0..25 {
                    sender.send(number * 25 + message).await.unwrap();
                }
            })
        })
        .collect();
    drop(sender);
    for task in senders {
        task.await.unwrap();
    }
    let mut all = Vec::new();
    for task in receivers {
        let got = task.await.unwrap();
        for number in 0..4 {
            assert!(got.iter().filter(|message| **message / 25 == number).is_sorted(), "{got:?}");
        }
        all.extend(got);
    }
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<_>>());
}

#[dapple::test(sim, seeds = 20)]
async fn messages_that_are_left_are_received_after_the_senders_are_gone() {
    let (sender, receiver) = mpmc::bounded(4);
    for message in 0..4 {
        sender.try_send(message).unwrap();
    }
    assert!(sender.try_send(4).unwrap_err().is_full());
    assert_eq!((sender.capacity(), sender.max_capacity(), receiver.len()), (0, 4, 4));
    drop(sender);
    assert!(receiver.is_closed());
    for message in 0..4 {
        assert_eq!(receiver.recv().await, Ok(message));
    }
    assert!(receiver.recv().await.unwrap_err().is_closed());
    assert!(receiver.try_recv().unwrap_err().is_closed());
}

#[dapple::test(sim, seeds = 20)]
async fn senders_get_their_messages_back_when_the_receivers_are_gone() {
    let (sender, receiver) = mpmc::bounded(1);
    sender.send(1).await.unwrap();
    let waits = spawn({
        let sender = sender.clone();
        async move { sender.send(2).await }
    });
    let closed = spawn({
        let sender = sender.clone();
        async move { sender.closed().await }
    });
    sleep(MS).await.unwrap();
    drop(receiver);
    let refused = waits.await.unwrap().unwrap_err();
    assert!(refused.is_closed());
    assert_eq!(refused.into_inner(), 2);
    assert!(sender.try_send(3).unwrap_err().is_closed());
    closed.await.unwrap().unwrap();
}

#[dapple::test(sim, seeds = 20)]
async fn a_wait_that_was_cancelled_has_taken_nothing() {
    let (sender, receiver) = mpmc::bounded(1);
    let late = timeout(MS, receiver.recv()).await.unwrap_err();
    assert!(late.into_inner().unwrap().unwrap_err().is_cancelled());
    sender.send(1).await.unwrap();
    let late = timeout(MS, sender.send(2)).await.unwrap_err();
    let refused = late.into_inner().unwrap().unwrap_err();
    assert!(refused.is_cancelled());
    assert_eq!(refused.into_inner(), 2);
    assert_eq!(receiver.try_recv(), Ok(1));
    assert!(receiver.try_recv().unwrap_err().is_empty());
}

#[dapple::test(sim, seeds = 20)]
async fn a_receiver_that_is_dropped_after_it_was_woken_leaves_the_message_to_the_next() {
    let (sender, receiver) = mpmc::bounded(1);
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let mut first = Box::pin(receiver.recv());
    assert!(first.as_mut().poll(&mut cx).is_pending());
    let second = spawn({
        let receiver = receiver.clone();
        async move { receiver.recv().await }
    });
    sleep(MS).await.unwrap();
    sender.send(1).await.unwrap(); // wakes the first
    drop(first);
    assert_eq!(second.await.unwrap(), Ok(1));
}

#[dapple::test(sim, seeds = 20)]
async fn a_receiver_is_a_stream() {
    let (sender, receiver) = mpmc::bounded(2);
    let all = spawn(receiver.map(Result::unwrap).collect::<Vec<_>>());
    for message in 0..10 {
        sender.send(message).await.unwrap();
    }
    drop(sender);
    assert_eq!(all.await.unwrap(), (0..10).collect::<Vec<_>>());
}

#[test]
#[should_panic(expected = "mpmc::bounded(0)")]
fn a_capacity_of_0_is_refused() {
    let _ = mpmc::bounded::<()>(0);
}

#[test]
fn threads_outside_send_and_receive() {
    let (sender, receiver) = mpmc::bounded(2);
    let threads: Vec<_> = (0..2)
        .map(|_| {
            let receiver = receiver.clone();
            std::thread::spawn(move || std::iter::from_fn(|| receiver.recv_blocking().ok()).sum::<u32>())
        })
        .collect();
    for message in 0..1000 {
        sender.send_blocking(message).unwrap();
    }
    drop(sender);
    let sum: u32 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert_eq!(sum, 499_500);
}

#[dapple::test(sim, seeds = 3)]
async fn a_stream_that_is_not_polled_any_more_keeps_no_message_from_others() {
    let (sender, mut left_alone) = mpmc::bounded(4);
    let receiver = left_alone.clone();
    assert!(left_alone.next().now_or_never().is_none());
    let waiter = spawn(async move { receiver.recv().await });
    sleep(MS).await.unwrap();
    sender.send(1).await.unwrap();
    assert_eq!(timeout(MS * 1000, waiter).await.unwrap().unwrap(), Ok(1));
}

#[dapple::test(sim, seeds = 3)]
async fn a_receiver_that_was_polled_as_a_stream_waits_in_another_task() {
    let (sender, mut receiver) = mpmc::bounded(4);
    assert!(receiver.next().now_or_never().is_none());
    let waiter = spawn(async move { receiver.recv().await });
    sleep(MS).await.unwrap();
    sender.send(1).await.unwrap();
    assert_eq!(timeout(MS * 1000, waiter).await.unwrap().unwrap(), Ok(1));
}

#[dapple::test(sim, seeds = 3)]
async fn streams_that_are_not_polled_any_more_keep_no_message_from_others() {
    let (sender, receiver) = mpmc::bounded(4);
    let mut streams: Vec<_> = (0..20).map(|_| receiver.clone()).collect();
    for stream in &mut streams {
        assert!(stream.next().now_or_never().is_none());
    }
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let receiver = receiver.clone();
            spawn(async move { receiver.recv().await })
        })
        .collect();
    sleep(MS).await.unwrap();
    sender.send(1).await.unwrap();
    sender.send(2).await.unwrap();
    let mut got = Vec::new();
    for waiter in waiters {
        got.push(timeout(MS * 1000, waiter).await.unwrap().unwrap().unwrap());
    }
    got.sort_unstable();
    assert_eq!(got, [1, 2]);
}

/// Panics when it is dropped.
struct Panics;

impl Drop for Panics {
    fn drop(&mut self) {
        panic!("in a destructor");
    }
}

#[dapple::test(sim, seeds = 3)]
async fn a_message_that_panics_when_the_last_receiver_goes_keeps_no_sender_waiting() {
    let (sender, receiver) = mpmc::bounded(1);
    let waiter = spawn({
        let sender = sender.clone();
        async move { sender.closed().await }
    });
    sleep(MS).await.unwrap();
    assert!(sender.try_send(Panics).is_ok());
    assert!(catch_unwind(AssertUnwindSafe(|| drop(receiver))).is_err());
    timeout(MS * 1000, waiter).await.unwrap().unwrap().unwrap();
}
