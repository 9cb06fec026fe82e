//! `sim::cancel_everywhere`: programs that fail when they are disturbed, and programs that are refused.

use std::future::{pending, ready};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use crate::cancel_everywhere::{Anything, SECOND, count, failure};
use dapple::Cancelled;
use dapple::channel::{mpsc, oneshot};
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::shield;
use dapple::sim::{self, CancelEverywhere};
use dapple::sync::Semaphore;
use dapple::task::yield_now;
use dapple::time::{sleep, timeout};
use futures_util::future::{Either, select};

/// A producer sends messages, and `receive` takes them in pairs, in a branch of a select whose other branch is time.
/// Whatever is cancelled: unless the receiver itself ends early, what was sent is received.
async fn pairs_beside_a_clock(
    receive: impl AsyncFn(&mut mpsc::Receiver<usize>, &mut Option<usize>) -> Result<[usize; 2], mpsc::RecvError>,
) -> Result<(), Anything> {
    let (sender, mut receiver) = mpsc::bounded(4);
    let producer = dapple::spawn(async move {
        for number in 0..6 {
            if sender.send(number).await.is_err() || sleep(SECOND).await.is_err() {
                return number;
            }
        }
        6
    });
    let (mut half, mut got) = (None, 0);
    loop {
        match select(pin!(receive(&mut receiver, &mut half)), pin!(sleep(3 * SECOND / 2))).await {
            Either::Left((Ok(pair), _)) => got += pair.len(),
            Either::Left((Err(error), _)) if error.is_cancelled() => return Err(error.into()),
            Either::Left((Err(_closed), _)) => break,
            Either::Right((time, _)) => time?,
        }
    }
    let sent = producer.await?;
    got += usize::from(half.is_some());
    assert!(got >= sent, "got {got} of {sent} messages");
    Ok(())
}

#[test]
fn a_message_that_a_select_drops_is_found() {
    // The bug: the first of a pair is in the future that a select drops when time wins.
    let lossy = async |receiver: &mut mpsc::Receiver<usize>, _: &mut Option<usize>| {
        let one = receiver.recv().await?;
        Ok([one, receiver.recv().await?])
    };
    let failure = failure(|| pairs_beside_a_clock(lossy));
    assert!(failure.why().contains("messages"), "{failure}");

    let right = async |receiver: &mut mpsc::Receiver<usize>, half: &mut Option<usize>| {
        if half.is_none() {
            *half = Some(receiver.recv().await?);
        }
        let two = receiver.recv().await?;
        Ok([half.take().expect("the first one"), two])
    };
    assert!(count(|| pairs_beside_a_clock(right)).runs > 50);
}

#[test]
fn a_permit_that_is_not_given_back_is_found() {
    // The bug: the permit is given back by a line that a cancelled program does not reach.
    let work = || async {
        let permits = Arc::new(Semaphore::new(1));
        let after = permits.clone();
        sim::check_after(async move { assert_eq!(after.available_permits(), 1, "a permit is gone") });
        permits.acquire().await?.forget();
        sleep(SECOND).await?;
        permits.add_permits(1);
        Ok::<(), Anything>(())
    };
    let failure = failure(work);
    assert!(failure.why().contains("a permit is gone"), "{failure}");
    assert!(failure.why().starts_with("wait 2 of 2"), "{failure}");

    let right = || async {
        let permits = Arc::new(Semaphore::new(1));
        let after = permits.clone();
        sim::check_after(async move { assert_eq!(after.available_permits(), 1, "a permit is gone") });
        let _permit = permits.acquire().await?;
        sleep(SECOND).await?;
        Ok::<(), Anything>(())
    };
    assert_eq!(count(right).waits, 2);
}

#[test]
fn half_a_message_is_found_on_the_wire() {
    // The bug: after a limit of time the writer goes on with the next message, behind half of the one before.
    let work = || async {
        let (mut near, mut far) = dapple::io::duplex(4);
        let reader = dapple::spawn(async move {
            let mut all = Vec::new();
            let read = far.read_to_end(&mut all).await;
            read.map(|_| all)
        });
        for message in [b"aaaaaaaa", b"bbbbbbbb"] {
            let _ = timeout(SECOND, near.write_all(message)).await;
        }
        drop(near);
        let all = reader.await??;
        let is_whole = |part: &[u8]| part.len() == 8 && part.iter().all(|byte| *byte == part[0]);
        assert!(all.chunks(8).all(is_whole), "{}", String::from_utf8_lossy(&all));
        io::Result::Ok(())
    };
    let failure = failure(work);
    assert!(failure.why().contains("panicked: a"), "{failure}");
}

#[test]
fn a_deadlock_is_a_failure() {
    let work = || async {
        let (sender, receiver) = oneshot::channel::<()>();
        let task = dapple::spawn(async move {
            sleep(SECOND).await?;
            let _ = sender.send(());
            // The bug: cancelled, it keeps the sender for ever.
            Ok::<(), Cancelled>(())
        });
        let _ = task.await;
        let _ = receiver.await;
    };
    count(work);
    let work = || async {
        let (sender, receiver) = oneshot::channel::<()>();
        let task = dapple::spawn(async move {
            if sleep(SECOND).await.is_err() {
                shield(pending::<()>()).await;
            }
            let _ = sender.send(());
        });
        let _ = shield(receiver).await;
        task.detach();
    };
    let failure = failure(work);
    assert!(failure.why().contains("deadlock"), "{failure}");
}

#[test]
fn a_program_that_does_not_end_is_a_failure() {
    let work = || async {
        let slept = sleep(SECOND).await;
        while slept.is_err() {
            yield_now().await;
        }
    };
    let failure = failure(work);
    assert!(failure.why().contains("does not end"), "{failure}");
}

#[test]
fn a_task_that_panics_is_a_failure_also_if_nothing_waits_for_it() {
    let work = || async {
        dapple::spawn(async { sleep(SECOND).await.expect("not cancelled") }).detach();
        sleep(2 * SECOND).await
    };
    let failure = failure(work);
    assert!(failure.why().contains("a task panicked: not cancelled"), "{failure}");
}

#[test]
fn the_first_panic_is_in_the_report() {
    let work = || async {
        let task = dapple::spawn(async { sleep(SECOND).await.expect("not cancelled") });
        task.await.map_err(|error| if error.is_panic() { panic!("a consequence") } else { error })
    };
    let failure = failure(work);
    let both = "panicked: a consequence\nbefore that, a task panicked: not cancelled";
    assert!(failure.why().contains(both), "{failure}");
}

#[test]
fn a_callback_is_named_by_the_place_where_it_was_made() {
    let work = || async {
        let called = Arc::new(AtomicBool::new(false));
        let after = called.clone();
        sim::check_after(async move { assert!(after.load(Relaxed), "not called") });
        let callback = dapple::event::Callback::new(move || called.store(true, Relaxed));
        dapple::event::after(SECOND, callback).detach();
        shield(sleep(2 * SECOND)).await
    };
    let failure = failure(work);
    assert!(failure.why().contains("tests/sim/cancel_everywhere_failures.rs:"), "{failure}");
}

#[test]
fn a_check_that_fails_is_a_failure() {
    let cancelled = AtomicBool::new(false);
    let work = || async {
        let slept = sleep(SECOND).await;
        cancelled.store(slept.is_err(), Relaxed);
    };
    let check = || async {
        match cancelled.load(Relaxed) {
            false => Ok(()),
            true => Err("it was cancelled"),
        }
    };
    let failure = CancelEverywhere::new().try_run(work, check).unwrap_err();
    assert!(failure.why().contains("the check returned an error: \"it was cancelled\""), "{failure}");
}

#[test]
fn the_check_is_not_cancelled() {
    let checked = AtomicUsize::new(0);
    let check = || async {
        sleep(SECOND).await.unwrap();
        dapple::spawn(sleep(SECOND)).await.unwrap().unwrap();
        checked.fetch_add(1, Relaxed);
    };
    CancelEverywhere::new().run(|| async { sleep(SECOND).await }, check);
    assert_eq!(checked.load(Relaxed), 2 + 4);
}

#[test]
fn an_error_that_is_no_cancellation_is_a_failure_unless_it_is_allowed() {
    let work = || async {
        let (sender, mut receiver) = mpsc::bounded(1);
        let task = dapple::spawn(async move {
            sleep(SECOND).await.map_err(|_| "cancelled").unwrap_or_default();
            let _ = sender.send(1).await;
        });
        let received = receiver.recv().await;
        task.detach();
        received
    };
    let failure = failure(work);
    assert!(failure.why().contains("an error that is not a cancellation"), "{failure}");
    CancelEverywhere::new().allow_errors().run(work, || async {});
}

#[test]
fn a_program_that_fails_undisturbed_is_refused() {
    let failure = failure(|| ready(Err::<(), _>("no")));
    assert!(failure.why().contains("undisturbed, it returned an error: no"), "{failure}");
}

#[test]
fn a_program_that_is_stuck_undisturbed_is_refused_as_such() {
    let failure = failure(|| async {
        let (_sender, mut receiver) = mpsc::bounded::<u8>(1);
        let _ = receiver.recv().await;
    });
    assert!(failure.why().starts_with("undisturbed, before anything was cancelled: deadlock"), "{failure}");
}

#[test]
fn a_program_whose_waits_differ_is_refused() {
    let runs = AtomicUsize::new(0);
    let work = || async {
        for _ in 0..runs.fetch_add(1, Relaxed) {
            sleep(SECOND).await?;
        }
        Ok::<(), Cancelled>(())
    };
    let failure = failure(work);
    assert!(failure.why().contains("does not go by the seed"), "{failure}");
    assert!(failure.why().contains("number 1: none, then of task 1 for a time"), "{failure}");
}
