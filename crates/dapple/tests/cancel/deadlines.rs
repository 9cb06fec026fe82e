//! Protocols in scopes that are ended from outside: timeouts, races, aborts.

use std::cell::Cell;
use std::future::pending;
use std::sync::{Arc, Mutex as StdMutex};

use dapple::sim::check_after;
use dapple::time::{Duration, sleep, timeout};
use dapple::{Cancelled, finish, finish_local, or_cancelled, race, shield, spawn};

use crate::Anything;
use crate::ledger::{InHand, Ledger, locked, sorted};

const MS: Duration = Duration::from_millis(1);

/// The parts of an upload. Unless it is complete, they are removed.
struct Upload<'a> {
    stored: &'a StdMutex<Vec<u32>>,
    is_complete: bool,
}

impl Drop for Upload<'_> {
    fn drop(&mut self) {
        if !self.is_complete {
            locked(self.stored).clear();
        }
    }
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn an_upload_within_a_limit_is_whole_or_gone() -> Result<(), Anything> {
    let stored = Arc::new(StdMutex::new(Vec::new()));
    let uploads = Ledger::new();
    check_after({
        let (stored, uploads) = (stored.clone(), uploads.clone());
        async move {
            let expected = uploads.list().last().map_or(0, |parts| *parts);
            assert_eq!(locked(&stored).len(), expected);
        }
    });
    for limit in [4, 9] {
        locked(&stored).clear();
        let mut upload = Upload { stored: &stored, is_complete: false };
        let parts = finish(async |scope| {
            let parts = [1, 2, 3, 4].map(|part| {
                scope.start(async move {
                    sleep(MS * 2 * part).await?;
                    locked(upload.stored).push(part);
                    Ok::<_, Cancelled>(())
                })
            });
            let mut count = 0;
            for part in parts {
                count += usize::from(part.await.is_ok());
            }
            count
        });
        let parts = timeout(MS * limit, parts).await.unwrap_or_else(|late| late.into_inner().unwrap());
        assert_eq!(locked(&stored).len(), parts, "the scope has counted another number of parts");
        upload.is_complete = parts == 4;
        uploads.add(if parts == 4 { 4 } else { 0 });
        drop(upload);
        sleep(MS).await?;
    }
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_race_between_sources_closes_both() -> Result<(), Anything> {
    let (opened, closed, answers) = (Ledger::new(), Ledger::new(), Ledger::new());
    check_after({
        let (opened, closed, answers) = (opened.clone(), closed.clone(), answers.clone());
        async move {
            assert_eq!(sorted(&[closed.list()]), sorted(&[opened.list()]));
            assert!(answers.len() <= 3, "two answers to one request");
        }
    });
    let source = async |name: &'static str, times: u32| {
        opened.add(name);
        let _source = InHand::new(name, &closed);
        sleep(MS * times).await?;
        Ok::<_, Cancelled>(name)
    };
    for (near, far) in [(1, 2), (3, 1), (2, 2)] {
        let first = race((source("near", near), source("far", far))).await;
        assert_eq!(closed.len(), opened.len(), "a source is open after the race");
        answers.add(first?);
    }
    assert_eq!((answers.len(), opened.len()), (3, 6));
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_foreign_wait_ends_with_its_scope() -> Result<(), Anything> {
    let (begun, dropped) = (Ledger::new(), Ledger::new());
    check_after({
        let (begun, dropped) = (begun.clone(), dropped.clone());
        async move { assert_eq!(sorted(&[dropped.list()]), sorted(&[begun.list()])) }
    });
    // Children of a local scope share a plain cell.
    let waiting = Cell::new(0);
    finish_local(async |scope| {
        for number in 0..3 {
            let (begun, dropped, waiting) = (&begun, &dropped, &waiting);
            scope.start(async move {
                let foreign = async move {
                    begun.add(number);
                    let _foreign = InHand::new(number, dropped);
                    waiting.set(waiting.get() + 1);
                    pending::<()>().await;
                };
                assert_eq!(or_cancelled(foreign).await, Err(Cancelled));
                waiting.set(waiting.get() - 1);
            });
        }
        let slept = sleep(2 * MS).await;
        scope.cancel();
        slept
    })
    .await?;
    // A child that is dropped while it waits does not decrement `waiting`.
    assert!(waiting.get() <= 1 && dropped.len() == begun.len());
    sleep(MS).await?;
    Ok(())
}

#[dapple::test(cancel_everywhere, seeds = 2)]
async fn a_task_that_does_not_stop_in_time_is_aborted() -> Result<(), Anything> {
    let (begun, ended, broken_off) = (Ledger::new(), Ledger::new(), Ledger::new());
    check_after({
        let (begun, ended, broken_off) = (begun.clone(), ended.clone(), broken_off.clone());
        async move { assert_eq!(sorted(&[ended.list(), broken_off.list()]), begun.list()) }
    });
    for cleanup in [1, 5, 9] {
        let (begun, ended, broken_off) = (begun.clone(), ended.clone(), broken_off.clone());
        let mut task = spawn(async move {
            begun.add(cleanup);
            let running = InHand::new(cleanup, &broken_off);
            let slept = sleep(100 * MS).await;
            let _ = shield(sleep(MS * cleanup)).await;
            ended.add(running.done());
            slept
        });
        let waited = sleep(MS).await;
        task.cancel();
        let joined = timeout(4 * MS, &mut task).await.unwrap_or_else(|late| late.into_inner().unwrap());
        if joined.is_err_and(|error| error.is_cancelled()) {
            task.abort();
            // The task has ended, or its future is dropped: it never goes on.
            let _ = shield(task).await;
        }
        waited?;
        sleep(MS).await?;
    }
    assert_eq!(ended.len() + broken_off.len(), 3);
    Ok(())
}
