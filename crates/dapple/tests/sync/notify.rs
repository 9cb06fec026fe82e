//! Notifications: stored once, passed on, and sent to all waiters.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::common::{Event, foreign_block_on, in_both_worlds, rounds, runtime, start_thread};
use dapple::sim;
use dapple::sync::{Notified, Notify};
use dapple::time::{Duration, sleep};

fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn waiting(notify: &Notify) -> Pin<Box<Notified<'_>>> {
    let mut wait = Box::pin(notify.notified());
    assert!(poll_once(wait.as_mut()).is_pending());
    wait
}

#[test]
fn one_notification_is_stored() {
    let notify = Notify::new();
    notify.notify_one();
    notify.notify_one();
    foreign_block_on(notify.notified()).unwrap();
    drop(waiting(&notify));
    notify.notify_waiters();
    drop(waiting(&notify)); // nothing is stored
}

#[test]
fn each_notification_goes_to_one_waiter_in_order() {
    let notify = Notify::new();
    let mut waits: Vec<_> = (0..3).map(|_| waiting(&notify)).collect();
    notify.notify_one();
    assert!(poll_once(waits[2].as_mut()).is_pending());
    assert!(poll_once(waits[0].as_mut()).is_ready());
    notify.notify_one();
    notify.notify_one();
    assert!(poll_once(waits[1].as_mut()).is_ready());
    assert!(poll_once(waits[2].as_mut()).is_ready());
    drop(waiting(&notify));
}

#[test]
fn a_dropped_waiter_passes_its_notification_on() {
    in_both_worlds(20, || {
        let notify = Notify::new();
        let (first, mut second) = (waiting(&notify), waiting(&notify));
        notify.notify_one();
        drop(first);
        assert!(poll_once(second.as_mut()).is_ready());
        let (first, second) = (waiting(&notify), waiting(&notify));
        notify.notify_one();
        notify.notify_one();
        drop((first, second));
        foreign_block_on(notify.notified()).unwrap();
        drop(waiting(&notify)); // of two notifications not taken, one is stored
        // A leaked waiter keeps no notification from later waiters.
        std::mem::forget(waiting(&notify));
        notify.notify_one();
        foreign_block_on(notify.notified()).unwrap();
    });
}

#[test]
fn notify_waiters_reaches_all_that_exist() {
    let notify = Notify::new();
    let mut waits: Vec<_> = (0..50).map(|_| waiting(&notify)).collect();
    let unpolled = notify.notified();
    notify.notify_one();
    notify.notify_waiters();
    let mut late = Box::pin(notify.notified());
    for wait in &mut waits {
        assert!(poll_once(wait.as_mut()).is_ready());
    }
    assert!(poll_once(pin!(unpolled)).is_ready());
    assert!(poll_once(late.as_mut()).is_pending(), "it came later, and the one was taken");
}

#[test]
fn cancelled_waits_take_nothing() {
    in_both_worlds(20, || {
        let rt = runtime(2);
        let notify = Arc::new(Notify::new());
        notify.notify_one();
        let gate = Event::default();
        let task = rt.spawn({
            let (notify, go) = (notify.clone(), gate.clone());
            async move {
                dapple::shield(go.happened()).await;
                notify.notified().await
            }
        });
        task.cancel();
        gate.set();
        assert!(rt.block_on(task).unwrap().is_err());
        rt.block_on(notify.notified()).unwrap();
        // Woken, then cancelled, before it was polled: it has it, or the next gets it.
        let (color, begun) = (rt.handle().color(), Event::default());
        let waiter = color.spawn({
            let (notify, begun) = (notify.clone(), begun.clone());
            async move {
                let mut wait = pin!(notify.notified());
                std::future::poll_fn(|cx| {
                    let polled = wait.as_mut().poll(cx);
                    begun.set();
                    polled
                })
                .await
            }
        });
        begun.wait();
        let task = waiter.task().unwrap().clone();
        let judge = color.call({
            let notify = notify.clone();
            move || {
                notify.notify_one();
                task.cancel();
            }
        });
        rt.block_on(judge).unwrap();
        assert_eq!(rt.block_on(waiter).unwrap(), Ok(()));
        drop(waiting(&notify));
    });
}

#[test]
fn ping_pong_between_threads_loses_no_notification() {
    in_both_worlds(20, || {
        let (rt, times) = (runtime(2), rounds(1000, 30));
        let pair = Arc::new((Notify::new(), Notify::new()));
        let other = pair.clone();
        let task = rt.spawn(async move {
            for _ in 0..times {
                other.0.notified().await.unwrap();
                other.1.notify_one();
            }
        });
        let thread = start_thread(move || {
            for _ in 0..times {
                pair.0.notify_one();
                foreign_block_on(pair.1.notified()).unwrap();
            }
        });
        thread.join().unwrap();
        rt.block_on(task).unwrap();
    });
}

/// One of two waiters is aborted just when it is notified: it has taken the notification, or the other waiter gets it.
#[test]
fn an_aborted_waiter_passes_its_notification_on() {
    let (taken, left) = (Cell::new(0), Cell::new(0));
    sim::explore(0..100, || async {
        let notify = Arc::new(Notify::new());
        let wait = || {
            let notify = notify.clone();
            dapple::spawn(async move { notify.notified().await })
        };
        let (first, second) = (wait(), wait());
        sleep(Duration::from_millis(1)).await.unwrap(); // both wait
        notify.notify_one();
        sim::work(Duration::from_nanos(1 << (sim::random() % 25))); // so that another worker may run it first
        first.abort();
        let count = match first.await {
            Ok(told) => {
                told.unwrap();
                notify.notify_one();
                &taken
            }
            Err(error) => {
                assert!(error.is_aborted());
                &left
            }
        };
        count.set(count.get() + 1);
        second.await.unwrap().unwrap();
        drop(waiting(&notify)); // nothing is stored
    });
    assert!(taken.get() > 0 && left.get() > 0, "both happen: {taken:?}, {left:?}");
}
