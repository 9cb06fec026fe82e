//! A channel from many senders to one receiver: order, capacity, closing, and which side drops the values left in it.

use std::collections::HashSet;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use crate::common::{
    Drops, foreign_block_on, give_way, in_both_worlds, panic_of, rounds, runtime, start_thread, watched,
};
use dapple::channel::mpsc::{self, bounded, unbounded};
use futures_core::Stream;

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

async fn in_order(count: u32) {
    for (sender, mut receiver) in [bounded(3), bounded(1000), unbounded()] {
        let task = dapple::spawn(async move {
            for number in 0..count {
                sender.send(number).await.unwrap();
            }
        });
        for number in 0..count {
            assert_eq!(receiver.recv().await, Ok(number));
        }
        assert!(receiver.recv().await.unwrap_err().is_closed());
        assert!(receiver.try_recv().unwrap_err().is_closed());
        task.await.unwrap();
    }
}

#[test]
fn messages_arrive_in_order_and_the_end_after_them() {
    watched(|| dapple::run(in_order(500)));
}

#[dapple::test(sim)]
async fn messages_arrive_in_order_by_any_seed() {
    in_order(30).await;
}

#[test]
fn nothing_is_lost_or_doubled_with_many_senders() {
    in_both_worlds(20, || {
        let (rt, each) = (runtime(2), rounds(300, 12));
        for capacity in [1, 2, 7, 100] {
            let (sender, mut receiver) = bounded(capacity);
            let senders: Vec<_> = (0..8_u64)
                .map(|id| {
                    let sender = sender.clone();
                    rt.spawn(async move {
                        for number in 0..each {
                            match number % 4 {
                                0 => sender.send((id, number)).await.unwrap(),
                                1 => sender.reserve().await.unwrap().send((id, number)).unwrap(),
                                2 => drop(
                                    sender.clone().reserve_owned().await.unwrap().send((id, number)).unwrap(),
                                ),
                                _ => {
                                    drop(sender.reserve().await.unwrap());
                                    sender.send((id, number)).await.unwrap();
                                }
                            }
                        }
                    })
                })
                .collect();
            let threads: Vec<_> = (8..10_u64)
                .map(|id| {
                    let sender = sender.clone();
                    start_thread(move || {
                        (0..each).for_each(|number| sender.send_blocking((id, number)).unwrap())
                    })
                })
                .collect();
            drop(sender);
            let received = rt.spawn(async move {
                let (mut next, mut many) = ([0; 10], Vec::new());
                while receiver.recv_many(&mut many, 5).await.is_ok() {
                    assert!(receiver.len() <= capacity);
                    for (id, number) in many.drain(..) {
                        assert_eq!(next[id as usize], number, "in the order of its sender");
                        next[id as usize] += 1;
                    }
                }
                next
            });
            assert_eq!(rt.block_on(received).unwrap(), [each; 10]);
            senders.into_iter().for_each(|sender| rt.block_on(sender).unwrap());
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
    });
}

#[test]
fn a_bounded_channel_holds_no_more_than_its_capacity() {
    assert!(panic_of(|| bounded::<u8>(0)).contains("mpsc::bounded(0)"));
    let (sender, mut receiver) = bounded(2);
    assert_eq!((sender.capacity(), sender.max_capacity()), (2, 2));
    sender.try_send(1).unwrap();
    let permit = sender.try_reserve().unwrap();
    assert_eq!(sender.capacity(), 0);
    let error = sender.try_send(3).unwrap_err();
    assert!(error.is_full() && !error.is_closed());
    assert_eq!(error.into_inner(), 3);
    assert!(sender.try_reserve().unwrap_err().is_full());
    let mut waits = pin!(sender.send(4));
    assert!(poll_once(waits.as_mut()).is_pending());
    permit.send(2).unwrap();
    assert!(poll_once(waits.as_mut()).is_pending());
    assert_eq!((receiver.len(), receiver.is_empty()), (2, false));
    // One that is taken makes room at once, whether or not the receiver comes back.
    assert_eq!(receiver.try_recv(), Ok(1));
    assert!(poll_once(waits.as_mut()).is_ready());
    assert_eq!((receiver.try_recv(), receiver.try_recv()), (Ok(2), Ok(4)));
    assert!(receiver.try_recv().unwrap_err().is_empty());
}

#[test]
fn room_that_is_given_up_goes_to_the_next() {
    let (sender, mut receiver) = bounded(1);
    let permit = sender.clone();
    let permit = poll_once(pin!(permit.reserve_owned()));
    let Poll::Ready(Ok(permit)) = permit else { panic!("there is room") };
    let (mut first, mut second) = (Box::pin(sender.send(1)), Box::pin(sender.send(2)));
    assert!(poll_once(first.as_mut()).is_pending());
    assert!(poll_once(second.as_mut()).is_pending());
    let again = permit.release();
    assert!(again.same_channel(&sender));
    drop(first); // woken, and dropped before it was polled
    assert!(poll_once(second.as_mut()).is_ready());
    assert_eq!(receiver.try_recv(), Ok(2));
}

#[test]
fn a_dropped_receiver_returns_unsent_messages() {
    let drops = Drops::default();
    let (sender, receiver) = bounded(2);
    assert!(sender.try_send(drops.guard()).is_ok());
    let permit = sender.try_reserve().unwrap();
    let mut waits = Box::pin(sender.send(drops.guard()));
    assert!(poll_once(waits.as_mut()).is_pending());
    drop(receiver);
    assert_eq!(drops.count(), 1, "what was in line");
    let Poll::Ready(Err(error)) = poll_once(waits.as_mut()) else { panic!("should be refused") };
    assert!(error.is_closed() && !error.is_cancelled());
    drop(error.into_inner());
    drop(permit.send(drops.guard()).expect_err("nobody is there"));
    assert!(sender.is_closed() && sender.try_send(drops.guard()).unwrap_err().is_closed());
    assert!(matches!(poll_once(pin!(sender.closed())), Poll::Ready(Ok(()))));
    assert!(matches!(poll_once(pin!(sender.reserve())), Poll::Ready(Err(error)) if error.is_closed()));
    assert_eq!(drops.count(), 4);
}

#[test]
fn a_closed_receiver_gets_sent_and_reserved_messages() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        for keep in [true, false] {
            let (sender, mut receiver) = bounded(3);
            sender.try_send(1).unwrap();
            let permit = rt.block_on(sender.clone().reserve_owned()).unwrap();
            receiver.close();
            assert!(receiver.is_closed() && sender.is_closed());
            assert!(sender.try_send(9).unwrap_err().is_closed());
            let rest = rt.spawn(async move {
                let mut rest = Vec::new();
                while let Ok(number) = receiver.recv().await {
                    rest.push(number);
                }
                rest
            });
            give_way();
            let expected = if keep {
                drop(permit.send(2).unwrap());
                vec![1, 2]
            } else {
                drop(permit);
                vec![1]
            };
            assert_eq!(rt.block_on(rest).unwrap(), expected);
        }
    });
}

#[test]
fn weak_senders_do_not_keep_the_channel_open() {
    let (sender, mut receiver) = unbounded();
    let weak = sender.downgrade();
    weak.upgrade().unwrap().try_send(1).unwrap();
    drop(sender);
    assert!(weak.clone().upgrade().is_none());
    assert_eq!(receiver.try_recv(), Ok(1));
    assert!(receiver.try_recv().unwrap_err().is_closed());
    assert!(receiver.is_closed());
}

#[test]
fn messages_are_dropped_once_even_if_one_panics() {
    struct Panics(u8, #[expect(dead_code, reason = "is counted when it is dropped")] crate::common::Guard);
    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(self.0 != 3, "as asked");
        }
    }
    let drops = Drops::default();
    let (sender, mut receiver) = unbounded();
    for number in 0..6 {
        assert!(sender.try_send(Panics(number, drops.guard())).is_ok());
    }
    drop(receiver.try_recv());
    assert!(sender.try_send(Panics(6, drops.guard())).is_ok());
    assert_eq!(panic_of(|| drop(receiver)), "as asked");
    drop(sender);
    assert_eq!(drops.count(), 7);
}

#[test]
fn receivers_are_streams_that_end_with_the_senders() {
    in_both_worlds(20, || {
        let (sender, mut receiver) = bounded(4);
        let thread = start_thread(move || {
            let mut seen = HashSet::new();
            let next = |receiver: &mut mpsc::Receiver<u32>| {
                foreign_block_on(std::future::poll_fn(|cx| Pin::new(&mut *receiver).poll_next(cx)))
            };
            while let Some(number) = next(&mut receiver) {
                assert!(seen.insert(number.unwrap()));
            }
            assert!(next(&mut receiver).is_none());
            seen.len()
        });
        (0..100).for_each(|number| sender.send_blocking(number).unwrap());
        drop(sender);
        assert_eq!(thread.join().unwrap(), 100);
    });
}

#[test]
fn the_last_sender_wakes_a_receiver_that_waits() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        for _ in 0..rounds(300, 10) {
            let (sender, mut receiver) = bounded::<u8>(1);
            let task = rt.spawn(async move { receiver.recv().await });
            let other = sender.clone();
            let thread = start_thread(move || drop(other));
            drop(sender);
            assert!(rt.block_on(task).unwrap().unwrap_err().is_closed());
            thread.join().unwrap();
        }
    });
}

#[test]
fn blocking_forms_refuse_threads_that_run_tasks() {
    let rt = runtime(1);
    let (sender, mut receiver) = bounded(1);
    let error = rt.block_on(rt.spawn({
        let sender = sender.clone();
        async move { sender.send_blocking(1) }
    }));
    assert!(error.unwrap_err().to_string().contains("send_blocking called on a thread that runs tasks"));
    assert!(panic_of(|| rt.block_on(async { receiver.recv_blocking() })).contains("recv_blocking"));
    // The pool is made for it.
    let sent = rt.block_on(async { dapple::blocking(move || sender.send_blocking(5)).await });
    sent.unwrap().unwrap();
    assert_eq!(receiver.recv_blocking(), Ok(5));
}
