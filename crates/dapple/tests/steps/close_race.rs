//! Channels and semaphores that are closed while callers come: each caller is served or refused, none is left waiting,
//! and all calls agree on whether it is closed.
//!
//! On real threads, and in simulations. As with `limit_close.rs`, it is `ci/steps` that gives these tests their
//! strength, where any thread may come between two steps.
//!
//! # Proof that it can fail
//!
//! Each of these was seen to fail in `ci/steps` with one thing made weaker, on real threads or at the seed that is named (or hangs there):
//!
//! | test | what was made weaker | seed |
//! |---|---|---|
//! | a_closed_channel_is_closed_for_all_that_is_asked | `Chan::close` of `mpsc`: closes `closing` ahead of the queue | real |
//! | (the same) | `Chan::close`: closes `closing` after the queue, without its lock | real |
//! | a_value_that_is_sent_while_a_oneshot_is_closed_comes_back_or_is_there | `Sender::closed`: does not look again | real |
//! | receivers_that_come_while_the_sender_of_a_watch_goes_are_told | `WaitList::poll_until`: looks before it takes the lock | 85 |
//! | (the same) | `Watched::read`, `write`: block the real thread | hangs |

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use crate::common::{foreign_block_on, in_both_worlds, rounds, start_thread};
use dapple::channel::{mpsc, oneshot, watch};
use dapple::sim;
use dapple::sync::Semaphore;

/// How many seeds are tried: many where a thread may come between two steps, few where it may not.
const SEEDS: u64 = if cfg!(dapple_steps) { 1500 } else { 10 };

/// Lets others go first, by some steps of theirs: as the seed says, or for longer in each round.
fn hesitate(round: u32) {
    if sim::is_simulated() {
        sim::work(Duration::from_nanos(sim::random() % 5000));
    } else {
        (0..round % 300 * 3).for_each(|_| std::hint::spin_loop());
    }
}

/// Once any call of a sender reports that the channel is closed, all later calls report the same.
#[test]
fn a_closed_channel_is_closed_for_all_that_is_asked() {
    in_both_worlds(SEEDS, || {
        for round in 0..rounds(1000, 2) {
            let (sender, mut receiver) = mpsc::unbounded::<u32>();
            let asks = start_thread(move || {
                for i in 0.. {
                    let is_closed = sender.is_closed();
                    let sent = sender.try_send(i);
                    assert!(!is_closed || sent.is_err(), "a message was sent into a closed channel");
                    if sent.is_err() {
                        assert!(sender.is_closed(), "it refuses a message, and says that it is open");
                        break;
                    }
                    crate::common::give_way();
                }
                foreign_block_on(sender.closed()).unwrap();
            });
            hesitate(round);
            receiver.close();
            asks.join().unwrap();
        }
    });
}

/// A full channel is closed while senders come to wait for room, and one holds a permit.
#[test]
fn senders_that_come_while_a_channel_is_closed_are_told() {
    in_both_worlds(SEEDS, || {
        for round in 0..rounds(200, 1) {
            let (sender, mut receiver) = mpsc::bounded::<u32>(1);
            let held = sender.clone();
            let permit = foreign_block_on(held.reserve()).unwrap();
            let comers: Vec<_> = (0..3)
                .map(|_| {
                    let sender = sender.clone();
                    start_thread(move || foreign_block_on(sender.send(1)).unwrap_err().is_closed())
                })
                .collect();
            drop(sender);
            hesitate(round);
            receiver.close();
            assert!(comers.into_iter().all(|comer| comer.join().unwrap()));
            let gives = start_thread(move || {
                foreign_block_on(async { receiver.recv().await.map_err(|error| error.is_closed()) })
            });
            hesitate(round);
            if round % 2 == 0 {
                drop(permit)
            } else {
                permit.send(7).unwrap()
            }
            drop(held);
            assert_eq!(gives.join().unwrap(), if round % 2 == 0 { Err(true) } else { Ok(7) });
        }
    });
}

#[test]
fn a_value_that_is_sent_while_a_oneshot_is_closed_comes_back_or_is_there() {
    in_both_worlds(SEEDS, || {
        for round in 0..rounds(1000, 2) {
            let (mut sender, mut receiver) = oneshot::channel::<u32>();
            let sends = start_thread(move || {
                hesitate(round);
                if round % 4 == 3 {
                    foreign_block_on(sender.closed()).unwrap(); // comes as it is closed, or waits for that
                    assert!(sender.is_closed());
                }
                let is_closed = sender.is_closed();
                let came_back = sender.send(7).is_err();
                assert!(came_back || !is_closed);
                came_back
            });
            hesitate(round);
            receiver.close();
            let came_back = sends.join().unwrap();
            assert_eq!(receiver.try_recv().is_err(), came_back);
        }
    });
}

#[test]
fn receivers_that_come_while_the_sender_of_a_watch_goes_are_told() {
    in_both_worlds(SEEDS, || {
        for round in 0..rounds(300, 1) {
            let (sender, receiver) = watch::channel(0_u32);
            let comers: Vec<_> = (0..2)
                .map(|_| {
                    let mut receiver = receiver.clone();
                    start_thread(move || {
                        let mut seen = 0;
                        while foreign_block_on(receiver.changed()).is_ok() {
                            seen = *receiver.borrow();
                        }
                        assert_eq!(seen, 2, "the last value is seen before the end");
                    })
                })
                .collect();
            for value in 1..=2 {
                hesitate(round);
                sender.send_modify(|place| {
                    crate::common::give_way(); // others come while it has the lock
                    *place = value;
                });
            }
            drop(sender);
            comers.into_iter().for_each(|comer| comer.join().unwrap());
        }
    });
}

#[test]
fn those_that_come_while_a_semaphore_is_closed_get_a_permit_or_are_told() {
    in_both_worlds(SEEDS, || {
        for round in 0..rounds(300, 1) {
            let (semaphore, served) = (Arc::new(Semaphore::new(1)), Arc::new(AtomicUsize::new(0)));
            let comers: Vec<_> = (0..3)
                .map(|_| {
                    let (semaphore, served) = (semaphore.clone(), served.clone());
                    start_thread(move || {
                        while let Ok(permit) = foreign_block_on(semaphore.acquire()) {
                            served.fetch_add(1, SeqCst);
                            crate::common::give_way();
                            drop(permit);
                        }
                        assert!(semaphore.is_closed());
                        assert!(semaphore.try_acquire().is_err());
                    })
                })
                .collect();
            hesitate(round);
            semaphore.close();
            comers.into_iter().for_each(|comer| comer.join().unwrap());
            assert_eq!(semaphore.available_permits(), 1, "each permit came back");
        }
    });
}
