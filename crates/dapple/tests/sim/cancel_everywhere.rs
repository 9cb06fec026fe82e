//! `sim::cancel_everywhere`: planted bugs are found, right programs pass, and the report says where.

use std::future::ready;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::children::{child, is_child, shell};
use dapple::channel::mpsc;
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::sim::{self, CancelCount, CancelEverywhere, Failure};
use dapple::task::yield_now;
use dapple::time::{Duration, sleep, timeout};
use dapple::{Cancelled, Shared, finish, race, shield};
use futures_util::future::{Either, select};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// The counts of a program that passes.
pub(crate) fn count<F: Future<Output: sim::Ending>>(work: impl FnMut() -> F) -> CancelCount {
    CancelEverywhere::new().try_run(work, || async {}).unwrap()
}

pub(crate) fn failure<F: Future<Output: sim::Ending>>(work: impl FnMut() -> F) -> Failure {
    CancelEverywhere::new().try_run(work, || async {}).unwrap_err()
}

/// An error that says that its wait was cancelled, or that it was closed, which is a failure.
pub(crate) type Anything = Box<dyn std::error::Error + Send + Sync>;

#[test]
fn a_program_without_waits_is_run_for_reference_alone() {
    let runs = AtomicUsize::new(0);
    let count = count(|| async {
        runs.fetch_add(1, Relaxed);
    });
    assert_eq!((count.waits, count.runs, runs.load(Relaxed)), (0, 0, 2));
}

#[test]
fn each_wait_is_cancelled_dropped_and_late() {
    let seen = Mutex::new(Vec::new());
    let count = count(|| async {
        let result = sleep(SECOND).await;
        seen.lock().unwrap().push(result);
        result
    });
    assert_eq!((count.waits, count.tried, count.shielded, count.runs), (1, 1, 0, 4));
    let (ok, cancelled) = (Ok(()), Err(Cancelled));
    // Twice undisturbed; cancelled before and after; dropped, so that there is no result; late.
    assert_eq!(*seen.lock().unwrap(), [ok, ok, cancelled, cancelled, ok]);
}

#[test]
fn a_wait_that_is_ready_at_once_is_not_cancelled_while_it_waits() {
    let count = count(|| async {
        let (sender, mut receiver) = mpsc::bounded(1);
        sender.send(1).await?;
        receiver.recv().await?;
        Ok::<(), Anything>(())
    });
    assert_eq!((count.waits, count.runs), (2, 4)); // before and late, each
}

#[test]
fn yields_are_no_waits() {
    assert_eq!(count(|| async { yield_now().await }).waits, 0);
}

#[test]
fn a_wait_for_a_task_counts_whether_or_not_it_has_ended() {
    let count = count(|| async {
        let one = dapple::spawn(ready(1));
        one.await?;
        let two = dapple::spawn(ready(2));
        sleep(SECOND).await?;
        two.await?;
        Ok::<(), Anything>(())
    });
    assert_eq!((count.waits, count.runs), (3, 4 + 4 + 2));
}

#[test]
fn nested_waits_count_once() {
    // A step of `read_exact` is a wait around the read of the stream.
    let count = count(|| async {
        let (mut near, mut far) = dapple::io::duplex(16);
        far.write_all(b"four").await?;
        near.read_exact(&mut [0; 4]).await?;
        io::Result::Ok(())
    });
    assert_eq!(count.waits, 2);
}

#[test]
fn waits_of_tasks_that_work_at_the_same_time_are_told_apart() {
    let work = |length: Duration| {
        move || async move {
            let task = |_| {
                let state = Shared::new(0);
                dapple::spawn(async move { state.write(|_| sim::work(length)).await })
            };
            for task in (0..2).map(task).collect::<Vec<_>>() {
                task.await??;
            }
            Ok::<(), Anything>(())
        }
    };
    assert_eq!(count(work(Duration::ZERO)).waits, 4);
    assert_eq!(count(work(SECOND)).waits, 4);
}

#[test]
fn shielded_waits_are_skipped_and_counted() {
    let count = count(|| async {
        shield(sleep(SECOND)).await?;
        sleep(SECOND).await
    });
    assert_eq!((count.waits, count.shielded, count.runs), (1, 1, 4));
}

#[test]
fn a_wait_before_a_shield_did_not_wait_because_the_shield_does() {
    let count = count(|| async {
        let (sender, mut receiver) = mpsc::bounded(1);
        sender.send(1).await?;
        receiver.recv().await?;
        shield(sleep(SECOND)).await?;
        Ok::<(), Anything>(())
    });
    assert_eq!((count.waits, count.shielded, count.runs), (2, 1, 4)); // ready at once: before and late, each
}

#[test]
fn the_innermost_finish_is_cancelled_and_no_more() {
    let work = || async {
        let inner = finish(async |_| sleep(SECOND).await).await;
        // The wait behind the scope goes on, unless it is the one that is cancelled.
        sleep(SECOND).await.map(|()| inner)
    };
    let results = Mutex::new(Vec::new());
    let count = count(|| async {
        let result = work().await;
        results.lock().unwrap().push(result);
    });
    assert_eq!((count.waits, count.runs), (2, 8));
    let results = results.into_inner().unwrap();
    let (inner, outer) = (Ok(Err(Cancelled)), Err(Cancelled));
    assert_eq!(results.iter().filter(|result| **result == inner).count(), 2);
    assert_eq!(results.iter().filter(|result| **result == outer).count(), 2);
}

#[test]
fn the_limit_of_a_timeout_is_no_finish() {
    let work = || async {
        let Ok(first) = timeout(2 * SECOND, sleep(SECOND)).await else { return };
        // If the limit were cancelled in place of the scope around it, the second wait would not be.
        assert_eq!(sleep(SECOND).await.is_err(), first.is_err());
    };
    // Cancelled at the second of these waits, they differ.
    let failure = failure(work);
    assert!(failure.why().starts_with("wait 3 of 3"), "{failure}");
}

#[test]
fn a_task_is_cancelled_on_request_in_place_of_its_scopes() {
    let work = || async {
        let inner = finish(async |_| sleep(SECOND).await).await;
        assert_eq!(inner.is_err(), sleep(SECOND).await.is_err(), "only one of them was cancelled");
    };
    assert!(failure(work).why().contains("only one of them was cancelled"));
    let work = || async {
        dapple::spawn(async {
            let inner = finish(async |_| sleep(SECOND).await).await;
            (inner, sleep(SECOND).await)
        })
        .await
        .map(|(inner, outer)| assert!(inner.is_ok() || outer.is_err()))
    };
    CancelEverywhere::new().cancel_tasks().run(work, || async {});
}

#[test]
fn a_spawned_task_is_aborted() {
    let aborted = AtomicUsize::new(0);
    let count = count(|| async {
        let task = dapple::spawn(sleep(SECOND));
        yield_now().await;
        let joined = task.await;
        aborted.fetch_add(usize::from(joined.as_ref().is_err_and(|error| error.is_aborted())), Relaxed);
        joined?.map_err(Anything::from)
    });
    assert_eq!((count.waits, aborted.load(Relaxed)), (2, 1));
}

#[test]
fn a_started_child_whose_value_is_not_wanted_is_dropped_alone() {
    struct Ends<'a>(&'a AtomicUsize);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, Relaxed);
        }
    }
    let (ended, returned) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let count = count(|| async {
        ended.store(0, Relaxed);
        finish(async |scope| {
            for _ in 0..3 {
                scope.start(async {
                    let _ends = Ends(&ended);
                    let _ = sleep(SECOND).await;
                });
            }
        })
        .await;
        assert_eq!(ended.load(Relaxed), 3, "finish waits for all");
        returned.fetch_add(1, Relaxed);
    });
    assert_eq!((count.waits, count.runs), (3, 12));
    assert_eq!(returned.load(Relaxed), 2 + 12, "the program was not dropped with its child");
}

#[test]
fn a_child_that_is_awaited_is_dropped_with_its_task() {
    let returned = AtomicUsize::new(0);
    let count = count(|| async {
        finish(async |scope| {
            let child = scope.start(async { sleep(SECOND).await.is_ok() });
            child.await
        })
        .await;
        returned.fetch_add(1, Relaxed);
    });
    assert_eq!((count.runs, returned.load(Relaxed)), (4, 2 + 3));
}

#[test]
fn a_late_wait_lets_the_other_branch_win() {
    let winners = Mutex::new(Vec::new());
    count(|| async {
        let (sender, mut receiver) = mpsc::bounded(1);
        sender.send(7).await.map_err(|_| Cancelled)?;
        let winner = match select(pin!(receiver.recv()), pin!(sleep(SECOND))).await {
            Either::Left((Ok(_), _)) => "message",
            Either::Right((Ok(()), _)) => "time",
            _ => return Err(Cancelled),
        };
        winners.lock().unwrap().push(winner);
        Ok(())
    });
    let winners = winners.into_inner().unwrap();
    assert_eq!(winners.iter().filter(|winner| **winner == "time").count(), 1, "{winners:?}");
}

#[test]
fn a_late_wait_goes_on_also_where_there_is_always_something_to_run() {
    let count = count(|| async {
        let stop = Arc::new(AtomicBool::new(false));
        let beats = dapple::spawn({
            let stop = stop.clone();
            async move { while !stop.load(Relaxed) && sleep(SECOND / 100).await.is_ok() {} }
        });
        let slept = sleep(SECOND).await;
        stop.store(true, Relaxed);
        beats.await?;
        slept.map_err(Anything::from)
    });
    assert!(count.waits > 100);
}

#[test]
fn of_many_waits_some_are_tried() {
    let work = || async {
        for _ in 0..500 {
            sleep(SECOND).await?;
        }
        Ok::<(), Cancelled>(())
    };
    let count = CancelEverywhere::new().waits(10).seeds(2).run(work, || async {});
    assert_eq!((count.waits, count.tried, count.runs), (1000, 20, 80));
}

#[test]
fn states_and_races_are_observed() {
    let count = count(|| async {
        let state = Shared::new(1);
        state.write(|value| *value += 1).await?;
        let value = state.read(|value| *value).await?;
        let raced = race((async { sleep(SECOND).await.map(|()| value) }, async {
            sleep(2 * SECOND).await.map(|()| 0)
        }));
        raced.await.map(drop)
    });
    assert_eq!(count.waits, 4);
}

#[test]
fn runs_are_the_same_with_the_same_seed() {
    let orders = Mutex::new(Vec::new());
    let work = || async {
        let order = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..5)
            .map(|number| {
                let order = order.clone();
                dapple::spawn(async move {
                    let slept = sleep(SECOND * (sim::random() % 5) as u32).await;
                    order.lock().unwrap().push((number, slept));
                })
            })
            .collect();
        for task in tasks {
            let _ = task.await;
        }
        orders.lock().unwrap().push(order);
    };
    let run = || {
        count(work);
        let orders = std::mem::take(&mut *orders.lock().unwrap());
        orders.iter().map(|order| order.lock().unwrap().clone()).collect::<Vec<_>>()
    };
    assert_eq!(run(), run());
}

#[dapple::test(cancel_everywhere, seeds = 3, workers = 2)]
async fn an_attribute_does_it_too() -> Result<(), Cancelled> {
    let done = Arc::new(AtomicUsize::new(0));
    let after = done.clone();
    sim::check_after(async move { assert!(after.load(Relaxed) <= 3) });
    for _ in 0..3 {
        sleep(SECOND).await?;
        done.fetch_add(1, Relaxed);
    }
    Ok(())
}

#[dapple::test(cancel_everywhere)]
#[should_panic(expected = "too early")]
async fn an_attribute_fails_where_the_check_does() -> Result<(), Cancelled> {
    let done = Arc::new(AtomicBool::new(false));
    let after = done.clone();
    sim::check_after(async move { assert!(after.load(Relaxed), "too early") });
    sleep(SECOND).await?;
    done.store(true, Relaxed);
    Ok(())
}

/// Fails in a process of its own, which prints how to run it again.
#[dapple::test(cancel_everywhere)]
async fn loses_its_second_second() -> Result<(), Cancelled> {
    let seconds = Arc::new(AtomicUsize::new(0));
    let after = seconds.clone();
    sim::check_after(async move { assert!(!is_child() || after.load(Relaxed) != 1, "only one second") });
    sleep(SECOND).await?;
    seconds.fetch_add(1, Relaxed);
    sleep(SECOND).await?;
    seconds.fetch_add(1, Relaxed);
    Ok(())
}

#[test]
fn the_report_names_the_wait_and_runs_it_again() {
    let failed = child("loses_its_second_second", &[]);
    assert!(!failed.is_success);
    let text = &failed.stderr;
    assert!(text.contains("the simulation failed with seed 0: wait 2 of 2 ("), "{text}");
    assert!(
        text.contains(
            "(dapple::time::sleep, for a time), in task 1, cancelled before it began: panicked: only one"
        ),
        "{text}"
    );
    assert!(text.contains("cancel_everywhere.rs:") && text.contains("loses_its_second_second"), "{text}");
    let line = failed.run_again();
    assert!(line.starts_with("DAPPLE_SEED=0 DAPPLE_CANCEL=2:before "), "{line}");
    let again = shell(line);
    let text = &again.stderr;
    assert!(!again.is_success && text.contains("wait 2 of 2 ("), "{text}");
}

#[test]
fn the_trace_of_the_run_that_failed_is_written() {
    let failed = child("loses_its_second_second", &[("DAPPLE_TRACE", "-")]);
    let text = &failed.stderr;
    let trace = text.split_once("its trace:\n").expect("a trace").1;
    assert!(!failed.is_success && trace.lines().count() > 3, "{text}");
}

#[test]
fn another_wait_can_be_run_alone() {
    let other = child("loses_its_second_second", &[("DAPPLE_CANCEL", "1:late")]);
    let text = &other.stderr;
    assert!(other.is_success && text.contains("DAPPLE_CANCEL=1:late alone: it did not fail"), "{text}");
}

#[test]
fn a_wait_that_is_not_there_or_makes_no_sense_is_refused() {
    for (value, expected) in [
        ("3:drop", "there are only 2 waits"),
        ("late", "it must be the number of a wait and a mode (before, after, drop, late): 17:late"),
    ] {
        let other = child("loses_its_second_second", &[("DAPPLE_CANCEL", value)]);
        let text = &other.stderr;
        assert!(!other.is_success && text.contains(expected), "{text}");
    }
}
