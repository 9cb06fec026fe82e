//! A condition variable: notifications reach who waits, and a cancelled wait has the lock.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::common::{Event, foreign_block_on, in_both_worlds, rounds, runtime, start_thread};
use dapple::sync::{Condvar, Mutex};
use dapple::task::yield_now;

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_queue_made_of_it_loses_nothing() {
    in_both_worlds(20, || {
        let (rt, each) = (runtime(2), rounds(250_u64, 10));
        let shared = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let takers: Vec<_> = (0..4)
            .map(|_| {
                let shared = shared.clone();
                rt.spawn(async move {
                    let mut sum = 0_u64;
                    for _ in 0..each {
                        let guard = shared.0.lock().await.unwrap();
                        let (mut guard, waited) = shared.1.wait_while(guard, |queue| queue.is_empty()).await;
                        waited.unwrap();
                        sum += guard.pop().unwrap();
                    }
                    sum
                })
            })
            .collect();
        let giver = start_thread(move || {
            for number in 1..=4 * each {
                shared.0.lock_blocking().unwrap().push(number);
                if number % 100 == 0 { shared.1.notify_all() } else { shared.1.notify_one() }
            }
        });
        let sum: u64 = takers.into_iter().map(|taker| rt.block_on(taker).unwrap()).sum();
        assert_eq!(sum, 2 * each * (4 * each + 1));
        giver.join().unwrap();
    });
}

#[test]
fn a_cancelled_wait_returns_with_the_lock_held() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        for before in [true, false] {
            let (begun, go) = (Event::default(), Event::default());
            let waiter = rt.spawn({
                let (shared, begun, go) = (shared.clone(), begun.clone(), go.clone());
                async move {
                    let guard = shared.0.lock().await.unwrap();
                    begun.set();
                    if before {
                        dapple::shield(go.happened()).await;
                    }
                    let (guard, waited) = shared.1.wait(guard).await;
                    assert!(waited.is_err() && shared.0.try_lock().is_err());
                    let (mut guard, waited) = shared.1.wait_while(guard, |_| false).await;
                    assert!(waited.is_err(), "what is begun late does not happen");
                    assert!(shared.0.try_lock().is_err());
                    *guard += 1;
                }
            });
            begun.wait();
            let other = (!before).then(|| shared.0.lock_blocking().unwrap()); // it waits, without the lock
            waiter.cancel();
            go.set();
            drop(other); // only now can it return
            rt.block_on(waiter).unwrap();
        }
        assert_eq!(*shared.0.try_lock().unwrap(), 2);
    });
}

#[test]
fn a_notification_that_came_first_is_returned_not_cancelled() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let (color, begun) = (rt.handle().color(), Event::default());
        let waiter = color.spawn({
            let (shared, begun) = (shared.clone(), begun.clone());
            async move {
                let guard = shared.0.lock().await.unwrap();
                begun.set();
                shared.1.wait(guard).await.1
            }
        });
        begun.wait();
        drop(shared.0.lock_blocking().unwrap());
        let task = waiter.task().unwrap().clone();
        let judge = color.call(move || {
            shared.1.notify_one();
            task.cancel();
        });
        rt.block_on(judge).unwrap();
        assert_eq!(rt.block_on(waiter).unwrap(), Ok(()));
    });
}

#[test]
fn a_notified_wait_that_is_dropped_passes_it_on() {
    let (mutex, changed) = (Mutex::new(0), Condvar::new());
    for relocking in [false, true] {
        let wait = || {
            let mut wait = Box::pin(changed.wait(mutex.try_lock().unwrap()));
            assert!(poll_once(wait.as_mut()).is_pending());
            wait
        };
        let (mut first, mut second) = (wait(), wait());
        changed.notify_one();
        let guard = mutex.try_lock().unwrap();
        if relocking {
            assert!(poll_once(first.as_mut()).is_pending(), "notified, and waits for the lock");
        }
        drop(guard);
        assert!(poll_once(second.as_mut()).is_pending());
        drop(first);
        let (guard, waited) = foreign_block_on(second);
        waited.unwrap();
        drop(guard);
        changed.notify_all();
        let mut third = wait();
        assert!(poll_once(third.as_mut()).is_pending(), "nothing is stored");
        drop(third);
    }
    let unpolled = changed.wait(mutex.try_lock().unwrap());
    drop(unpolled);
    assert!(mutex.try_lock().is_ok());
}

#[test]
fn notify_all_reaches_a_hundred() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let shared = Arc::new((Mutex::new((0, false)), Condvar::new()));
        let tasks: Vec<_> = (0..100)
            .map(|_| {
                let shared = shared.clone();
                rt.spawn(async move {
                    let mut guard = shared.0.lock().await.unwrap();
                    guard.0 += 1;
                    drop(shared.1.wait_while(guard, |state| !state.1).await);
                })
            })
            .collect();
        rt.block_on(async {
            while shared.0.lock().await.unwrap().0 < 100 {
                yield_now().await;
            }
            shared.0.lock().await.unwrap().1 = true;
            shared.1.notify_all();
        });
        tasks.into_iter().for_each(|task| rt.block_on(task).unwrap());
    });
}
