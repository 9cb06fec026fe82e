//! Of time limits inside of each other that are up at the same time, the outermost wins.

use dapple::sim::{Sim, work};
use dapple::sync::Notify;
use dapple::time::{Duration, Instant, sleep, timeout};
use dapple::{Cancelled, finish, race, shield};
use futures_util::future::join_all;

const MS: Duration = Duration::from_millis(1);

/// Works `for_so_long`, then waits for ever.
async fn works(for_so_long: Duration) -> Result<(), Cancelled> {
    let never = Notify::new();
    work(for_so_long);
    never.notified().await
}

#[test]
fn the_outer_of_two_that_are_up_wins() {
    for (outer, inner) in [(1, 2), (2, 1), (1, 1), (3, 4)] {
        Sim::new(0).run(async move {
            let both = timeout(MS * outer, timeout(MS * inner, works(5 * MS)));
            let elapsed = both.await.expect_err("the outer limit was up");
            assert_eq!(elapsed.into_inner(), Some(Ok(Err(Cancelled))), "the inner limit was up, too");
        });
    }
}

#[test]
fn the_outermost_of_many_that_are_up_wins() {
    Sim::new(0).run(async {
        let three = timeout(10 * MS, timeout(3 * MS, timeout(2 * MS, timeout(MS, works(5 * MS)))));
        let second = three.await.expect("the first is not up");
        let third = second.expect_err("the second is the outermost that is up").into_inner();
        assert_eq!(third, Some(Ok(Ok(Err(Cancelled)))));
    });
}

#[test]
fn an_inner_limit_that_is_up_alone_wins() {
    Sim::new(0).run(async {
        let begun = Instant::now();
        let said = timeout(100 * MS, timeout(2 * MS, works(5 * MS))).await;
        assert_eq!(said.unwrap().unwrap_err().into_inner(), Some(Err(Cancelled)));
        assert!(begun.elapsed() < 10 * MS);
    });
}

#[test]
fn through_scopes_races_and_foreign_combinators() {
    Sim::new(0).run(async {
        let scope = timeout(MS, finish(async |s| s.start(timeout(2 * MS, works(5 * MS))).await));
        assert_eq!(scope.await.unwrap_err().into_inner(), Some(Ok(Err(Cancelled))));
        let raced = timeout(MS, race((timeout(2 * MS, works(5 * MS)), timeout(9 * MS, works(MS)))));
        assert_eq!(raced.await.unwrap_err().into_inner(), Some(Ok(Err(Cancelled))));
        let joined = timeout(MS, join_all((0..40).map(|_| timeout(2 * MS, works(MS)))));
        let all = joined.await.unwrap_err().into_inner().expect("they have answered");
        assert!(all.iter().filter(|one| **one == Ok(Err(Cancelled))).count() >= 39, "{all:?}");
    });
}

/// An outer limit does not reach through a shield, so it cannot win in there.
#[test]
fn a_shield_keeps_the_limits_outside_out() {
    Sim::new(0).run(async {
        let inner =
            timeout(MS, shield(timeout(2 * MS, works(5 * MS)))).await.expect("it was done in this poll");
        assert_eq!(inner.unwrap_err().into_inner(), Some(Err(Cancelled)));
    });
}

/// Both come later, in one poll: the worker was busy.
#[test]
fn limits_that_run_out_while_the_task_waits_for_its_turn() {
    for seed in 0..50 {
        Sim::new(seed).run(async {
            let color = dapple::Color::new();
            let busy = color.spawn(async {
                sleep(MS).await.unwrap();
                work(10 * MS);
            });
            let both = color.spawn(async { timeout(2 * MS, timeout(3 * MS, sleep(60 * 60_000 * MS))).await });
            let elapsed = both.await.unwrap().expect_err("the outer limit was up first");
            assert_eq!(elapsed.into_inner(), Some(Ok(Err(Cancelled))));
            busy.await.unwrap();
        });
    }
}
