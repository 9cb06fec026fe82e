//! The value of a started child reaches whatever awaits it, or stays where it is: also by a foreign waker that is passed
//! on late, when a `timeout` is up, a task is cancelled or a `race` is decided.

use std::cell::Cell;
use std::future::{pending, poll_fn};
use std::pin::pin;
use std::task::Poll;

use crate::late_common::Late;
use dapple::sim::Sim;
use dapple::time::{Duration, Instant, sleep, timeout};
use dapple::{finish, finish_local, race, shield};
use futures_util::stream::{FuturesUnordered, StreamExt};

const MS: Duration = Duration::from_millis(1);
const LIMIT: Duration = Duration::from_millis(50);
const HOUR: Duration = Duration::from_secs(3600);

/// A child that returns its value `after` this time, or when it is cancelled.
async fn child(after: Duration) -> &'static str {
    match sleep(after).await {
        Ok(()) => "done",
        Err(_) => "cancelled",
    }
}

/// A scope whose body awaits a child by a waker that is passed on late.
async fn scope_that_is_late(after: Duration, delay: Duration) -> &'static str {
    finish(async |scope| Late::new(scope.start(child(after)), delay).await).await
}

#[test]
fn a_timed_out_scope_returns_the_value_of_a_child_that_was_cancelled() {
    Sim::new(1).run(async {
        let elapsed = timeout(LIMIT, scope_that_is_late(HOUR, 300 * MS)).await.unwrap_err();
        assert_eq!(elapsed.into_inner(), Some("cancelled"));
    });
}

#[test]
fn a_timed_out_scope_returns_the_value_of_a_child_that_was_done_before() {
    Sim::new(1).run(async {
        let elapsed = timeout(LIMIT, scope_that_is_late(LIMIT - MS, 300 * MS)).await.unwrap_err();
        assert_eq!(elapsed.into_inner(), Some("done"));
    });
}

/// The scope itself is polled by a foreign waker.
#[test]
fn a_timed_out_scope_in_a_collection_returns_the_value_of_its_child() {
    Sim::new(1).run(async {
        let elapsed = timeout(LIMIT, async {
            let mut scopes = FuturesUnordered::from_iter([Box::pin(scope_that_is_late(HOUR, 300 * MS))]);
            scopes.next().await
        });
        assert_eq!(elapsed.await.unwrap_err().into_inner(), Some(Some("cancelled")));
    });
}

#[test]
fn a_cancelled_task_returns_the_value_of_a_child() {
    Sim::new(1).run(async {
        let task = dapple::spawn(scope_that_is_late(HOUR, 300 * MS));
        sleep(LIMIT).await.unwrap();
        task.cancel();
        assert_eq!(task.await.unwrap(), "cancelled");
    });
}

#[test]
fn a_timeout_inside_of_the_scope_returns_the_value_of_a_child_that_is_done() {
    Sim::new(1).run(async {
        finish(async |scope| {
            let started = scope.start(child(LIMIT - MS));
            let elapsed = timeout(LIMIT, Late::new(started, 300 * MS)).await.unwrap_err();
            assert_eq!(elapsed.into_inner(), Some("done"));
        })
        .await;
    });
}

#[test]
fn nested_timeouts_inside_of_the_scope_return_the_value_of_a_child_that_is_done() {
    Sim::new(1).run(async {
        finish(async |scope| {
            let started = scope.start(child(LIMIT - MS));
            let inner = async { timeout(HOUR, Late::new(started, 300 * MS)).await.unwrap() };
            let elapsed = timeout(LIMIT, inner).await.unwrap_err();
            assert_eq!(elapsed.into_inner(), Some("done"));
        })
        .await;
    });
}

/// A child that is not done yet is foreign to the timeout: the wait is dropped at once, and the child goes on.
#[test]
fn a_timeout_around_a_child_that_is_not_done_is_not_held_up() {
    Sim::new(1).run(async {
        finish(async |scope| {
            let begun = Instant::now();
            let mut started = scope.start(child(10 * LIMIT));
            let elapsed = timeout(LIMIT, Late::new(&mut started, 300 * MS)).await.unwrap_err();
            assert_eq!(elapsed.into_inner(), None);
            assert!(begun.elapsed() < LIMIT + 10 * MS, "{:?}", begun.elapsed());
            assert_eq!(started.await, "done");
        })
        .await;
    });
}

/// A value that is on its way elsewhere in the scope holds up no timeout that does not await it.
#[test]
fn a_timeout_beside_a_value_that_is_on_its_way_is_not_held_up() {
    Sim::new(1).run(async {
        finish(async |scope| {
            let mut late = pin!(Late::new(scope.start(child(MS)), HOUR));
            poll_fn(|cx| {
                assert!(late.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            sleep(2 * MS).await.unwrap();
            let begun = Instant::now();
            timeout(LIMIT, pending::<()>()).await.unwrap_err();
            assert!(begun.elapsed() < LIMIT + 10 * MS, "{:?}", begun.elapsed());
        })
        .await;
    });
}

/// A collection that is not polled any more holds a timeout up for a second, and not for ever.
#[test]
fn a_timed_out_scope_beside_an_abandoned_child_ends() {
    Sim::new(1).run(async {
        let begun = Instant::now();
        let scope = finish(async |scope| {
            let mut all = FuturesUnordered::from_iter([scope.start(child(MS)), scope.start(child(HOUR))]);
            assert_eq!(all.next().await, Some("done"));
            pending::<()>().await;
        });
        assert_eq!(timeout(LIMIT, scope).await.unwrap_err().into_inner(), None);
        assert!(begun.elapsed() < LIMIT + Duration::from_secs(2), "{:?}", begun.elapsed());
    });
}

/// A race that is decided waits for a shield: a loser that awaits a child, which is done meanwhile, leaves the value there.
#[test]
fn a_loser_of_a_race_does_not_take_the_value_of_a_child() {
    Sim::new(1).run(async {
        finish(async |scope| {
            let mut started = scope.start(child(20 * MS));
            let awaits = async { (&mut started).await };
            let cleans_up = async {
                shield(sleep(100 * MS)).await.unwrap();
                "clean"
            };
            let wins = async {
                sleep(10 * MS).await.unwrap();
                "won"
            };
            assert_eq!(race((awaits, cleans_up, wins)).await, "won");
            assert_eq!(started.await, "done");
        })
        .await;
    });
}

/// A scope that loses as a whole still gets the values of its children, so that its body can end.
#[test]
fn a_scope_that_loses_a_race_gets_the_values_of_its_children() {
    Sim::new(1).run(async {
        let value = Cell::new("none");
        let loses = finish_local(async |scope| value.set(scope.start(child(HOUR)).await));
        race((loses, async { sleep(LIMIT).await.unwrap() })).await;
        assert_eq!(value.get(), "cancelled");
    });
}
