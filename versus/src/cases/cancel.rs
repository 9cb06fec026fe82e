//! `cancel`: ten thousand children wait in a sleep of an hour, and are cancelled.
//!
//! `cancel` itself is the time from the call that cancels them until all have ended and been counted; `cancel/whole`
//! also includes the time that it takes to start them. Dapple's children are cancelled: their sleeps return, and they
//! end by themselves. Those of a `JoinSet` are aborted: they are dropped in their sleep. A `FuturesUnordered` that is
//! dropped with its futures is a reference: its futures get no notice.
//!
//! Tasks of a `JoinSet` that do not wait yet are waited for, before the clock starts.

use std::future::poll_fn;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::task::JoinSet;

use crate::contest::{Contest, Entry, Role, Sample, Scale, TIMES};
use crate::sides::{Dapple, Host, TokioDriven};
use crate::work::Stopwatch;

pub(crate) fn contests() -> Vec<Contest> {
    let contest = |name, about, whole| Contest {
        name,
        about,
        metrics: TIMES,
        warm_up: true,
        at_most: usize::MAX,
        entries: vec![
            entry::<Dapple, Scope>("dapple", Role::Ours, whole),
            entry::<TokioDriven, Set>("JoinSet", Role::Rival, whole),
            entry::<TokioDriven, Unordered>("FuturesUnordered", Role::Reference, whole),
        ],
    };
    vec![
        contest("cancel", "10,000 children that sleep are cancelled and waited for; per child", false),
        contest("cancel/whole", "the same with the time that it takes to start them; per child", true),
    ]
}

const CHILDREN: usize = 10_000;

/// Longer than any child sleeps before it is cancelled.
const HOUR: Duration = Duration::from_secs(3600);

/// How often, in a round.
const TIMES_OVER: usize = 20;

/// A way to start children inside of a task, and to cancel them.
trait Way: 'static {
    /// Starts the children and cancels them. Returns the cost per child, with the start of the children or without.
    fn once(whole: bool) -> impl Future<Output = Sample> + Send;
}

fn entry<H: Host, W: Way>(side: &'static str, role: Role, whole: bool) -> Entry {
    Entry { side, role, round: Box::new(move |scale| Ok(round::<H, W>(scale, whole))) }
}

/// The mean of some times over.
fn round<H: Host, W: Way>(scale: Scale, whole: bool) -> Sample {
    let times_over = if scale.quick { 1 } else { TIMES_OVER };
    H::start().run(move |_| async move {
        W::once(whole).await; // to warm up
        let mut sums = vec![0.0; TIMES.len()];
        for _ in 0..times_over {
            for (sum, cost) in sums.iter_mut().zip(W::once(whole).await) {
                *sum += cost / times_over as f64;
            }
        }
        sums
    })
}

struct Scope;

impl Way for Scope {
    async fn once(whole: bool) -> Sample {
        let ended = AtomicUsize::new(0);
        let mut stopwatch = Stopwatch::start();
        dapple::finish(async |scope| {
            for _ in 0..CHILDREN {
                scope.start(async {
                    dapple::time::sleep(HOUR).await.expect_err("a sleep that is cancelled");
                    ended.fetch_add(1, Relaxed);
                });
            }
            if !whole {
                stopwatch = Stopwatch::start();
            }
            scope.cancel();
        })
        .await;
        assert_eq!(ended.load(Relaxed), CHILDREN);
        stopwatch.per_operation(CHILDREN)
    }
}

struct Set;

impl Way for Set {
    async fn once(whole: bool) -> Sample {
        static WAITING: AtomicUsize = AtomicUsize::new(0);
        WAITING.store(0, Relaxed);
        let mut stopwatch = Stopwatch::start();
        let mut children = JoinSet::new();
        for _ in 0..CHILDREN {
            children.spawn(async {
                WAITING.fetch_add(1, Release);
                tokio::time::sleep(HOUR).await;
            });
        }
        while WAITING.load(Acquire) < CHILDREN {
            tokio::task::yield_now().await;
        }
        if !whole {
            stopwatch = Stopwatch::start();
        }
        children.abort_all();
        let mut ended = 0;
        while let Some(result) = children.join_next().await {
            assert!(result.is_err_and(|error| error.is_cancelled()));
            ended += 1;
        }
        assert_eq!(ended, CHILDREN);
        stopwatch.per_operation(CHILDREN)
    }
}

struct Unordered;

impl Way for Unordered {
    async fn once(whole: bool) -> Sample {
        let mut stopwatch = Stopwatch::start();
        // Else tokio would let no more than 128 of them do anything at a time.
        let sleep = |_| tokio::task::unconstrained(tokio::time::sleep(HOUR));
        let mut children: FuturesUnordered<_> = (0..CHILDREN).map(sleep).collect();
        poll_fn(|cx| {
            assert!(children.poll_next_unpin(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        if !whole {
            stopwatch = Stopwatch::start();
        }
        drop(children);
        stopwatch.per_operation(CHILDREN)
    }
}
