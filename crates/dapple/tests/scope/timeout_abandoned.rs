//! Waits that rest in a collection that is not polled any more do not keep a `timeout` or a `race` from ending.

use std::future::{pending, poll_fn};
use std::task::Poll;

use dapple::channel::mpsc;
use dapple::sim::Sim;
use dapple::time::{Duration, Instant, sleep, timeout};
use dapple::{race, shield};
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
