//! One channel, one place for a value, one meeting point: for tasks of two runtimes, and for threads with another executor.

use std::pin::Pin;
use std::sync::Arc;
use std::thread;

use dapple::channel::{broadcast, mpmc};
use dapple::shared::when;
use dapple::sync::{Barrier, MVar, OnceCell};
use dapple::{Runtime, Shared};

use crate::common::runtime;

type Boxed = Pin<Box<dyn Future<Output = u64> + Send>>;

/// Polls one to its end in each of two runtimes and on two other executors; the sum of all.
fn everywhere(part: impl Fn(u64) -> Boxed) -> u64 {
    let runtimes: [Runtime; 2] = [runtime(1), runtime(2)];
    let tasks: Vec<_> =
        runtimes.iter().zip(0..).map(|(runtime, number)| runtime.spawn(part(number))).collect();
    let threads: Vec<_> = [2, 3]
        .map(|number| {
            let part = part(number);
            thread::spawn(move || match number {
                2 => futures_lite::future::block_on(part),
                _ => crate::common::foreign_block_on(part),
            })
        })
        .into_iter()
        .collect();
    let mut sum = 0;
    for thread in threads {
        sum += thread.join().unwrap();
    }
    for task in tasks {
        sum += futures_lite::future::block_on(task).unwrap();
    }
    sum
}

#[test]
fn each_message_of_an_mpmc_goes_to_one_of_them() {
    let (sender, receiver) = mpmc::bounded(2);
    let sum = everywhere(|number| {
        let (sender, receiver) = (sender.clone(), receiver.clone());
        Box::pin(async move {
            let mut sum = 0;
            for message in 0..200 {
                // Full and empty alternate, and no more wait to send than there is room and receivers.
                if number % 2 == 0 {
                    sender.send(message).await.unwrap();
                } else {
                    sum += receiver.recv().await.unwrap();
                }
            }
            sum
        })
    });
    assert_eq!(sum, 2 * 199 * 100);
    assert!(receiver.is_empty());
}

#[test]
fn a_value_goes_round_among_them() {
    let place = Arc::new(MVar::new(0_u64));
    let sum = everywhere(|_| {
        let place = place.clone();
        Box::pin(async move {
            for round in 0..200 {
                if round % 2 == 0 {
                    let value = place.take().await.unwrap();
                    place.put(value + 1).await.unwrap();
                } else {
                    place.with(|value| *value += 1).await.unwrap();
                }
            }
            0
        })
    });
    assert_eq!((sum, place.try_take()), (0, Some(800)));
}

#[test]
fn they_meet_and_initialise_once() {
    let (barrier, cell) = (Arc::new(Barrier::new(4)), Arc::new(OnceCell::new()));
    let sum = everywhere(|number| {
        let (barrier, cell) = (barrier.clone(), cell.clone());
        Box::pin(async move {
            let mut led = 0;
            for _ in 0..50 {
                led += u64::from(barrier.wait().await.unwrap().is_leader());
            }
            let by = *cell.get_or_init(async || number).await.unwrap();
            assert_eq!(cell.get(), Some(&by));
            led
        })
    });
    assert_eq!(sum, 50);
}

#[test]
fn all_of_them_hear_each_message_or_count_it() {
    let (sender, receiver) = broadcast::bounded(4);
    let sender = Arc::new(std::sync::Mutex::new(Some(sender)));
    let ready = Arc::new(Barrier::new(4));
    let sum = everywhere(|number| {
        let (mut receiver, ready, sender) = (receiver.resubscribe(), ready.clone(), sender.clone());
        Box::pin(async move {
            if ready.wait().await.unwrap().is_leader() {
                let sender = sender.lock().unwrap().take().unwrap();
                thread::spawn(move || (0..500_u64).for_each(|message| assert!(sender.send(message).is_ok())));
            }
            let mut heard = 0;
            loop {
                match receiver.recv().await {
                    Ok(message) => {
                        assert_eq!(message, heard, "receiver {number}");
                        heard += 1;
                    }
                    Err(broadcast::RecvError::Lagged(missed)) => heard += missed,
                    Err(error) => {
                        assert!(error.is_closed());
                        return heard;
                    }
                }
            }
        })
    });
    assert_eq!(sum, 4 * 500);
}

#[test]
fn they_take_turns_by_a_condition() {
    let (turn, log) = (Shared::new(0_u64), Shared::new(0_u64));
    let sum = everywhere(|number| {
        let (turn, log) = (turn.clone(), log.clone());
        Box::pin(async move {
            for _ in 0..100 {
                let next = when((turn.writing(), log.writing()), |(turn, log)| {
                    (*turn % 4 == number).then(|| {
                        *turn += 1;
                        *log += number;
                    })
                });
                next.await.unwrap();
            }
            1
        })
    });
    assert_eq!(sum, 4);
    assert_eq!((turn.try_read(|turn| *turn), log.try_read(|log| *log)), (Ok(400), Ok(600)));
}
