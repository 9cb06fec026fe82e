//! Waits that rest in a collection that is not polled any more do not keep a `timeout`, a `race` or a cancelled task from
//! ending.

use std::future::{pending, poll_fn};
use std::task::Poll;

use crate::late_common::Late;
use dapple::channel::mpsc;
use dapple::sim::Sim;
use dapple::time::{Duration, Instant, sleep, timeout};
use dapple::{finish, race, shield};
use futures_util::stream::{FuturesUnordered, StreamExt};

const MS: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_millis(50);

/// Polls a collection of sleeps until one is over, and then waits in foreign code beside the others.
async fn sleeps_beside_foreign_code() {
    let mut sleeps = FuturesUnordered::from_iter([1, 100_000, 200_000].map(|count| sleep(count * MS)));
    assert!(sleeps.next().await.unwrap().is_ok());
    pending::<()>().await;
}

#[test]
fn a_timeout_around_abandoned_waits_fires() {
    Sim::new(1).run(async {
        let begun = Instant::now();
        let elapsed = timeout(LIMIT, sleeps_beside_foreign_code()).await.unwrap_err();
        assert_eq!(elapsed.into_inner(), None);
        assert!(begun.elapsed() < 2 * Duration::from_secs(1), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_race_with_abandoned_waits_ends() {
    Sim::new(1).run(async {
        let begun = Instant::now();
        race((sleeps_beside_foreign_code(), async { sleep(LIMIT).await.unwrap() })).await;
        assert!(begun.elapsed() < 2 * Duration::from_secs(1), "{:?}", begun.elapsed());
    });
}

#[test]
fn a_receiver_that_was_polled_by_an_abandoned_collection_keeps_no_timeout() {
    Sim::new(1).run(async {
        let (sender, mut receiver) = mpsc::bounded::<u8>(1);
        let elapsed = timeout(LIMIT, async {
            let mut all = FuturesUnordered::from_iter([receiver.recv()]);
            poll_fn(|cx| {
                assert!(all.poll_next_unpin(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            pending::<()>().await;
        });
        assert_eq!(elapsed.await.unwrap_err().into_inner(), None);
        // Nothing was lost.
        sender.send(7).await.unwrap();
        assert_eq!(receiver.recv().await.unwrap(), 7);
    });
}

#[test]
fn a_shield_in_a_collection_that_is_polled_is_waited_for_however_long() {
    Sim::new(1).run(async {
        let begun = Instant::now();
        let elapsed = timeout(LIMIT, async {
            let mut all = FuturesUnordered::from_iter([shield(sleep(60_000 * MS))]);
            all.next().await.unwrap().unwrap();
            "done"
        });
        assert_eq!(elapsed.await.unwrap_err().into_inner(), Some("done"));
        assert!(begun.elapsed() >= 60_000 * MS);
    });
}

/// A second and a bit, in which nothing happens, and not two.
fn assert_grace(begun: Instant) {
    let took = begun.elapsed();
    assert!(Duration::from_secs(1) <= took && took < Duration::from_secs(2), "{took:?}");
}

#[test]
fn a_cancelled_task_beside_abandoned_waits_ends() {
    Sim::new(1).run(async {
        let task = dapple::spawn(sleeps_beside_foreign_code());
        sleep(LIMIT).await.unwrap();
        let begun = Instant::now();
        task.cancel();
        assert!(task.await.unwrap_err().is_aborted());
        assert_grace(begun);
    });
}

#[test]
fn a_cancelled_task_of_the_main_color_beside_abandoned_waits_ends() {
    Sim::new(1).run(async {
        let not_send = std::rc::Rc::new(());
        let task = dapple::spawn_local(async move {
            sleeps_beside_foreign_code().await;
            drop(not_send);
        });
        sleep(LIMIT).await.unwrap();
        let begun = Instant::now();
        task.cancel();
        assert!(task.await.unwrap_err().is_aborted());
        assert_grace(begun);
    });
}

#[test]
fn a_task_spawned_in_a_cancelled_scope_beside_abandoned_waits_ends() {
    Sim::new(1).run(async {
        let begun = Instant::now();
        finish(async |scope| {
            scope.spawn(sleeps_beside_foreign_code()).detach();
            sleep(LIMIT).await.unwrap();
            scope.cancel();
        })
        .await;
        assert!(begun.elapsed() < LIMIT + Duration::from_secs(2), "{:?}", begun.elapsed());
    });
}

/// Abandoned waits are of a scope inside of the task, whose body waits in foreign code.
#[test]
fn a_cancelled_task_with_a_scope_beside_abandoned_waits_ends() {
    Sim::new(1).run(async {
        let task = dapple::spawn(finish(async |scope| {
            scope.start(sleeps_beside_foreign_code());
            sleeps_beside_foreign_code().await;
        }));
        sleep(LIMIT).await.unwrap();
        let begun = Instant::now();
        task.cancel();
        assert!(task.await.unwrap_err().is_aborted());
        assert_grace(begun);
    });
}

/// Is polled by others, again and again, and waits for nothing that could answer.
#[test]
fn a_cancelled_task_that_foreign_code_wakes_again_and_again_ends_all_the_same() {
    Sim::new(1).run(async {
        let (waker, wake) = std::sync::mpsc::channel::<std::task::Waker>();
        let task = dapple::spawn(async move {
            let mut sleeps = FuturesUnordered::from_iter([1, 100_000].map(|count| sleep(count * MS)));
            assert!(sleeps.next().await.unwrap().is_ok());
            poll_fn(|cx| {
                waker.send(cx.waker().clone()).unwrap();
                Poll::<()>::Pending
            })
            .await;
        });
        sleep(LIMIT).await.unwrap();
        let begun = Instant::now();
        task.cancel();
        while !task.is_finished() {
            sleep(70 * MS).await.unwrap();
            wake.try_iter().for_each(std::task::Waker::wake);
            assert!(begun.elapsed() < Duration::from_secs(60));
        }
        assert_grace(begun);
        assert!(task.await.unwrap_err().is_aborted());
    });
}

/// A waker that is passed on within the second is in time: the wait answers, and the task returns by itself.
#[test]
fn a_cancelled_task_whose_wakers_are_passed_on_late_ends_by_itself() {
    Sim::new(1).run(async {
        let task = dapple::spawn(Late::new(sleep(100_000 * MS), 400 * MS));
        sleep(LIMIT).await.unwrap();
        let begun = Instant::now();
        task.cancel();
        assert!(task.await.unwrap().is_err());
        assert_eq!(begun.elapsed().as_millis(), 400);
    });
}

/// A shield in the collection is waited for: also if there are abandoned waits beside it, which had their second.
#[test]
fn a_cancelled_task_waits_for_a_shield_beside_abandoned_waits() {
    Sim::new(1).run(async {
        let task = dapple::spawn(async {
            let mut sleeps = FuturesUnordered::from_iter([1, 100_000].map(|count| sleep(count * MS)));
            assert!(sleeps.next().await.unwrap().is_ok());
            shield(sleep(60_000 * MS)).await.unwrap();
            pending::<()>().await;
        });
        sleep(LIMIT).await.unwrap();
        let begun = Instant::now();
        task.cancel();
        assert!(task.await.unwrap_err().is_aborted());
        let took = begun.elapsed();
        assert!(60_900 * MS < took && took < 62_000 * MS, "{took:?}");
    });
}

/// A runtime that ends does not wait for the grace of a task that has ended.
#[test]
fn the_grace_of_a_task_that_has_ended_holds_up_no_shutdown() {
    Sim::new(1).run(async {
        let on_a_thread = || {
            let rt = dapple::Runtime::builder().workers(1).build().unwrap();
            let task = rt.spawn(async { Late::new(sleep(100_000 * MS), 10 * MS).await });
            rt.block_on(sleep(MS)).unwrap();
            task.cancel();
            assert!(rt.block_on(task).unwrap().is_err());
            let begun = Instant::now();
            assert!(rt.shutdown(Duration::from_secs(30)).is_clean());
            assert!(begun.elapsed() < 100 * MS, "{:?}", begun.elapsed());
        };
        dapple::blocking(on_a_thread).await.unwrap();
    });
}
