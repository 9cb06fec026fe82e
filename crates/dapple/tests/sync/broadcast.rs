//! `broadcast`: each message to all receivers, and an exact count of those that were missed.

use std::sync::Arc;
use std::time::Duration;

use dapple::channel::broadcast::{self, RecvError, TryRecvError};
use dapple::spawn;
use dapple::time::{sleep, timeout};
use futures_util::StreamExt;

const MS: Duration = Duration::from_millis(1);

#[dapple::test(sim, seeds = 40, workers = 3)]
async fn each_message_goes_to_all_receivers_or_is_counted_as_missed() {
    let (sender, receiver) = broadcast::bounded(4);
    let receivers: Vec<_> = (0..4_u32)
        .map(|slow| {
            let mut receiver = receiver.resubscribe();
            spawn(async move {
                let mut next = 0;
                loop {
                    match receiver.recv().await {
                        Ok(message) => {
                            assert_eq!(message, next, "skipped or doubled");
                            next += 1;
                        }
                        Err(RecvError::Lagged(missed)) => next += missed,
                        Err(RecvError::Closed) => return next,
                        Err(RecvError::Cancelled) => unreachable!("no one cancels"),
                    }
                    sleep(MS * slow / 4).await.unwrap();
                }
            })
        })
        .collect();
    drop(receiver);
    for message in 0..100 {
        assert_eq!(sender.send(message).unwrap(), 4);
        sleep(MS / 4).await.unwrap();
    }
    drop(sender);
    for receiver in receivers {
        assert_eq!(receiver.await.unwrap(), 100);
    }
}

#[dapple::test(sim, seeds = 10)]
async fn a_slow_receiver_learns_how_many_it_missed() {
    let (sender, mut receiver) = broadcast::bounded(4);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
    for message in 0..10 {
        sender.send(message).unwrap();
    }
    assert_eq!(receiver.len(), 10);
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Lagged(6)));
    for message in 6..10 {
        assert_eq!(receiver.recv().await, Ok(message));
    }
    let mut late = sender.subscribe();
    assert!(late.same_channel(&receiver) && !late.same_channel(&broadcast::bounded(4).1));
    assert_eq!(late.try_recv(), Err(TryRecvError::Empty), "of messages from then on");
    drop(sender);
    assert_eq!(late.recv().await, Err(RecvError::Closed));
    assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
}

#[dapple::test(sim, seeds = 10)]
async fn a_message_is_dropped_when_all_have_received_it() {
    let (sender, mut receiver) = broadcast::bounded(4);
    let mut other = sender.subscribe();
    let gone = sender.subscribe();
    let message = Arc::new(());
    sender.send(message.clone()).unwrap();
    sender.send(message.clone()).unwrap();
    drop(gone);
    drop(receiver.recv().await.unwrap());
    assert_eq!(Arc::strong_count(&message), 3);
    drop(other.recv().await.unwrap());
    assert_eq!(Arc::strong_count(&message), 2, "all have received the first");
    drop((receiver, other));
    assert_eq!(Arc::strong_count(&message), 1, "a receiver that goes leaves nothing behind");
    assert!(sender.send(message.clone()).is_err(), "there is no receiver");
    assert_eq!(Arc::strong_count(&message), 1);
}

#[dapple::test(sim, seeds = 20)]
async fn a_wait_that_was_cancelled_has_received_nothing() {
    let (sender, mut receiver) = broadcast::bounded(2);
    let mut other = sender.subscribe();
    for _ in 0..3 {
        let late = timeout(MS, receiver.recv()).await.unwrap_err();
        assert_eq!(late.into_inner(), Some(Err(RecvError::Cancelled)));
    }
    sender.send(1).unwrap();
    assert_eq!(receiver.recv().await, Ok(1));
    assert_eq!(other.recv().await, Ok(1));
    let closed = spawn(async move { sender.closed().await });
    sleep(MS).await.unwrap();
    drop((receiver, other));
    closed.await.unwrap().unwrap();
}

#[dapple::test(sim, seeds = 20)]
async fn a_receiver_is_a_stream() {
    let (sender, receiver) = broadcast::bounded(16);
    let all = spawn(receiver.map(Result::unwrap).collect::<Vec<_>>());
    for message in 0..10 {
        sender.send(message).unwrap();
        sleep(MS / 2).await.unwrap();
    }
    drop(sender);
    assert_eq!(all.await.unwrap(), (0..10).collect::<Vec<_>>());
}

#[dapple::test(sim, seeds = 20, workers = 2)]
async fn a_sender_waits_for_a_clone_and_a_clone_that_panics_lets_go() {
    struct Slow(u32);
    impl Clone for Slow {
        fn clone(&self) -> Slow {
            assert!(self.0 != 1, "this one panics");
            dapple::sim::work(MS);
            Slow(self.0)
        }
    }
    let (sender, mut receiver) = broadcast::bounded(1);
    let task = spawn(async move {
        let mut got = 0;
        while let Ok(_) | Err(RecvError::Lagged(_)) = receiver.recv().await {
            got += 1;
        }
        got
    });
    for _ in 0..10 {
        sender.send(Slow(0)).unwrap();
        sleep(MS / 3).await.unwrap();
    }
    drop(sender);
    assert!(task.await.unwrap() > 0);
    let (sender, mut receiver) = broadcast::bounded(2);
    sender.send(Slow(1)).unwrap();
    sender.send(Slow(2)).unwrap();
    let received = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| receiver.try_recv().map(drop)));
    assert!(received.is_err());
    assert_eq!(receiver.try_recv().map(|message| message.0), Ok(2), "the next one is received");
    for number in 3..6 {
        sender.send(Slow(number)).unwrap();
        assert_eq!(receiver.try_recv().map(|message| message.0), Ok(number));
    }
}

/// A message whose destructor panics, if it is armed. Its clones are not.
struct Explosive {
    armed: bool,
}

impl Clone for Explosive {
    fn clone(&self) -> Explosive {
        Explosive { armed: false }
    }
}

impl Drop for Explosive {
    fn drop(&mut self) {
        assert!(!self.armed, "dropped");
    }
}

fn panics(call: impl FnOnce()) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(call)).is_err()
}

#[dapple::test(sim, seeds = 10)]
async fn a_message_that_panics_when_it_is_overwritten_keeps_no_receiver_waiting() {
    let (sender, mut slow) = broadcast::bounded(1);
    let mut fast = slow.resubscribe();
    sender.send(Explosive { armed: true }).unwrap();
    fast.recv().await.unwrap();
    let waits = spawn(async move { fast.recv().await.is_ok() });
    sleep(MS).await.unwrap();
    assert!(panics(|| drop(sender.send(Explosive { armed: false }))));
    assert!(timeout(MS, waits).await.expect("a receiver sleeps while there is a message").unwrap());
    assert_eq!(slow.recv().await.err(), Some(RecvError::Lagged(1)));
    assert!(slow.recv().await.is_ok(), "the new message was sent");
}

#[dapple::test(sim, seeds = 10)]
async fn a_message_that_panics_when_the_last_receiver_goes_keeps_no_sender_waiting() {
    let (sender, receiver) = broadcast::bounded(1);
    let waits = spawn({
        let sender = sender.clone();
        async move { sender.closed().await }
    });
    sleep(MS).await.unwrap();
    sender.send(Explosive { armed: true }).unwrap();
    assert!(panics(|| drop(receiver)));
    timeout(MS, waits).await.expect("a sender sleeps while there is no receiver").unwrap().unwrap();
    assert!(sender.is_closed());
}

#[test]
#[should_panic(expected = "broadcast::bounded(0)")]
fn a_capacity_of_0_is_refused() {
    let _ = broadcast::bounded::<()>(0);
}

#[test]
fn threads_outside_receive_everything_in_order() {
    let (sender, mut receiver) = broadcast::bounded(8);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let mut receiver = receiver.resubscribe();
            std::thread::spawn(move || {
                let mut next = 0;
                loop {
                    match receiver.recv_blocking() {
                        Ok(message) => {
                            assert_eq!(message, next);
                            next += 1;
                        }
                        Err(RecvError::Lagged(missed)) => next += missed,
                        Err(_) => return next,
                    }
                }
            })
        })
        .collect();
    for message in 0..20_000 {
        sender.send(message).unwrap();
        let _ = receiver.try_recv();
    }
    drop(sender);
    for thread in threads {
        assert_eq!(thread.join().unwrap(), 20_000);
    }
}
