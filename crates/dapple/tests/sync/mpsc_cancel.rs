//! Cancelled and dropped senders and receivers of a channel.

use std::cell::Cell;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use crate::common::{Event, Random, give_way, in_both_worlds, rounds, runtime};
use dapple::channel::mpsc::{bounded, unbounded};
use dapple::sim;
use dapple::time::{Duration, Instant, sleep};
use futures_core::Stream;
use futures_lite::future;

/// Tells when its future waits.
async fn telling<F: Future>(begun: Event, future: F) -> F::Output {
    let mut future = Box::pin(future);
    std::future::poll_fn(|cx| {
        let polled = future.as_mut().poll(cx);
        if polled.is_pending() {
            begun.set();
        }
        polled
    })
    .await
}

#[test]
fn cancelled_before_the_first_poll_has_no_effect() {
    in_both_worlds(20, || {
        let rt = runtime(1);
        let (sender, mut receiver) = bounded(5);
        sender.try_send(1).unwrap();
        let gate = Event::default();
        let go = gate.clone();
        let task = rt.spawn(async move {
            dapple::shield(go.happened()).await;
            assert!(receiver.recv().await.unwrap_err().is_cancelled());
            assert!(receiver.recv_many(&mut Vec::new(), 0).await.unwrap_err().is_cancelled());
            let next = std::future::poll_fn(|cx| Pin::new(&mut receiver).poll_next(cx)).await;
            assert!(matches!(next, Some(Err(dapple::Cancelled))), "not the end");
            let error = sender.send(2).await.unwrap_err();
            assert!(error.is_cancelled() && !error.is_closed());
            assert_eq!(error.into_inner(), 2);
            assert!(sender.reserve().await.unwrap_err().is_cancelled());
            assert!(sender.closed().await.is_err());
            (sender, receiver)
        });
        task.cancel();
        gate.set();
        let (sender, mut receiver) = rt.block_on(task).unwrap();
        assert_eq!((sender.capacity(), receiver.len()), (4, 1));
        assert_eq!(rt.block_on(receiver.recv()), Ok(1));
    });
}

#[test]
fn cancelled_while_waiting_loses_nothing() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (sender, receiver) = bounded(1);
        let begun = Event::default();
        let wait = telling(begun.clone(), async move {
            let mut receiver = receiver;
            (receiver.recv().await, receiver)
        });
        let receiving = rt.spawn(wait);
        begun.wait();
        receiving.cancel();
        let (result, mut receiver) = rt.block_on(receiving).unwrap();
        assert!(result.unwrap_err().is_cancelled());
        sender.try_send(1).unwrap();

        let begun = Event::default();
        let wait = telling(begun.clone(), {
            let sender = sender.clone();
            async move { sender.send(2).await }
        });
        let sending = rt.spawn(wait);
        begun.wait();
        sending.cancel();
        assert_eq!(rt.block_on(sending).unwrap().unwrap_err().into_inner(), 2);
        assert_eq!(rt.block_on(receiver.recv()), Ok(1));
        assert!(receiver.try_recv().unwrap_err().is_empty(), "what was cancelled was not sent");
        assert_eq!(sender.capacity(), 1);
    });
}

#[test]
fn what_could_be_had_when_polled_again_is_taken() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let (sender, mut receiver) = bounded(1);
        let color = rt.handle().color();
        let begun = Event::default();
        let receiving = color.spawn(telling(begun.clone(), async move { (receiver.recv().await, receiver) }));
        begun.wait();
        let (task, other) = (receiving.task().unwrap().clone(), sender.clone());
        // While this has the color, the receiver is not polled.
        let judge = color.call(move || {
            other.try_send(5).unwrap();
            task.cancel();
        });
        rt.block_on(judge).unwrap();
        let (result, mut receiver) = rt.block_on(receiving).unwrap();
        assert_eq!(result, Ok(5));

        sender.try_send(1).unwrap();
        let begun = Event::default();
        let wait = telling(begun.clone(), async move { sender.send(2).await });
        let sending = color.spawn(wait);
        begun.wait();
        let task = sending.task().unwrap().clone();
        let judge = color.call(move || {
            assert_eq!(receiver.try_recv(), Ok(1));
            task.cancel();
            receiver
        });
        let mut receiver = rt.block_on(judge).unwrap();
        rt.block_on(sending).unwrap().unwrap();
        assert_eq!(receiver.try_recv(), Ok(2));
    });
}

#[test]
fn cancel_reaches_waits_behind_a_foreign_waker() {
    /// Polls its future only after its own waker was used, as combinators do.
    #[derive(Default)]
    struct Own {
        woken: AtomicUsize,
        outer: Mutex<Option<Waker>>,
    }
    impl Wake for Own {
        fn wake(self: Arc<Self>) {
            self.woken.fetch_add(1, Ordering::SeqCst);
            let outer = self.outer.lock().unwrap().clone();
            outer.into_iter().for_each(Waker::wake);
        }
    }
    async fn picky<F: Future>(future: F) -> F::Output {
        let (own, mut future) = (Arc::new(Own::default()), Box::pin(future));
        let (waker, mut polled_for) = (Waker::from(own.clone()), usize::MAX);
        std::future::poll_fn(move |cx| {
            *own.outer.lock().unwrap() = Some(cx.waker().clone());
            let woken = own.woken.load(Ordering::SeqCst);
            if std::mem::replace(&mut polled_for, woken) == woken {
                return Poll::Pending;
            }
            future.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await
    }
    in_both_worlds(20, || {
        let rt = runtime(2);
        for round in 0..rounds(100, 6) {
            let (sender, mut receiver) = bounded(1);
            sender.try_send(0).unwrap();
            let (begun, full) = (Event::default(), sender.clone());
            let send = rt.spawn(telling(begun.clone(), picky(async move { full.send(1).await })));
            if round % 2 == 0 {
                begun.wait();
            }
            send.cancel();
            assert!(rt.block_on(send).unwrap().unwrap_err().is_cancelled());
            receiver.try_recv().unwrap();
            let begun = Event::default();
            let receive = rt.spawn(telling(begun.clone(), picky(async move { receiver.recv().await })));
            if round % 2 == 0 {
                begun.wait();
            }
            receive.cancel();
            assert!(rt.block_on(receive).unwrap().unwrap_err().is_cancelled());
        }
    });
}

#[test]
fn a_leaked_sender_holds_up_no_later_sender() {
    in_both_worlds(20, || {
        let (sender, mut receiver) = bounded(1);
        sender.try_send(0).unwrap();
        for _ in 0..3 {
            let mut leaked = Box::pin(sender.send(9));
            assert!(leaked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            std::mem::forget(leaked);
        }
        assert_eq!(receiver.try_recv(), Ok(0));
        for number in 0..10 {
            sender.send_blocking(number).unwrap();
            assert_eq!(receiver.try_recv(), Ok(number));
        }
    });
}

#[test]
fn random_cancels_lose_and_double_nothing() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let mut random = Random::new(0x5eed_0001);
        for round in 0..rounds(60, 6) {
            let (sender, mut receiver) = if round % 3 == 0 { unbounded() } else { bounded(1 + round % 4) };
            let sent: Vec<_> = (0..6_u64)
                .map(|id| {
                    let sender = sender.clone();
                    rt.spawn(async move {
                        let mut sent = 0;
                        for number in 0..rounds(50, 10) {
                            if sender.send((id, number)).await.is_err() {
                                break;
                            }
                            sent += 1;
                        }
                        sent
                    })
                })
                .collect();
            drop(sender);
            let received = rt.spawn(async move {
                let mut count = [0; 6];
                while let Ok((id, number)) = receiver.recv().await {
                    assert_eq!(count[id as usize], number);
                    count[id as usize] += 1;
                }
                count
            });
            for _ in 0..random.below(200) {
                give_way();
            }
            for task in &sent {
                if random.below(2) == 0 {
                    task.cancel();
                }
            }
            let sent: Vec<_> = sent.into_iter().map(|task| rt.block_on(task).unwrap()).collect();
            assert_eq!(rt.block_on(received).unwrap().to_vec(), sent);
        }
    });
}

/// Sends and receives that are given up after a while, at about the time at which they could be done.
#[dapple::test(sim, seeds = 100)]
async fn withdrawn_sends_are_not_sent_and_the_others_arrive() {
    async fn within<F: Future>(future: F) -> Option<F::Output> {
        let limit = sleep(Duration::from_nanos(sim::random() % 1_000_000));
        future::or(async { Some(future.await) }, async {
            limit.await.unwrap();
            None
        })
        .await
    }
    let (sender, mut receiver) = bounded(1 + (sim::random() % 3) as usize);
    let senders: Vec<_> = (0..6_usize)
        .map(|id| {
            let sender = sender.clone();
            dapple::spawn(async move {
                let mut sent = Vec::new();
                for number in 0..10 {
                    if let Some(result) = within(sender.send((id, number))).await {
                        result.unwrap();
                        sent.push(number);
                    }
                }
                // Senders that gave up do not block senders that go on.
                sender.send((id, 10)).await.unwrap();
                sent.push(10);
                sent
            })
        })
        .collect();
    drop(sender);
    let (begun, mut received) = (Instant::now(), vec![Vec::new(); 6]);
    loop {
        sleep(Duration::from_nanos(sim::random() % 500_000)).await.unwrap();
        match within(receiver.recv()).await {
            Some(Ok((id, number))) => received[id].push(number),
            Some(Err(_)) => break,
            None => assert!(begun.elapsed() < Duration::from_secs(1), "somebody is held up"),
        }
    }
    for (sender, received) in senders.into_iter().zip(received) {
        assert_eq!(sender.await.unwrap(), received);
    }
}

/// One of two is aborted just when there is room for it: it has sent, or the other one has the room.
#[test]
fn an_aborted_sender_leaves_its_room_to_the_next() {
    let (sent, left) = (Cell::new(0), Cell::new(0));
    sim::explore(0..100, || async {
        let (sender, mut receiver) = bounded(1);
        sender.try_send(0).unwrap();
        let send = |number| {
            let sender = sender.clone();
            dapple::spawn(async move { sender.send(number).await })
        };
        let (first, second) = (send(1), send(2));
        sleep(Duration::from_millis(1)).await.unwrap(); // both wait
        assert_eq!(receiver.try_recv(), Ok(0));
        sim::work(Duration::from_nanos(1 << (sim::random() % 25))); // so that another worker may run it first
        first.abort();
        let is_aborted = first.await.is_err_and(|error| error.is_aborted());
        let mut received = Vec::new();
        while received.last() != Some(&2) && received.len() < if is_aborted { 1 } else { 2 } {
            received.push(receiver.recv().await.unwrap());
        }
        second.await.unwrap().unwrap();
        received.extend(receiver.try_recv());
        received.sort_unstable();
        assert_eq!(received, if is_aborted { vec![2] } else { vec![1, 2] });
        let count = if is_aborted { &left } else { &sent };
        count.set(count.get() + 1);
    });
    assert!(sent.get() > 0 && left.get() > 0, "both happen: {sent:?}, {left:?}");
}
