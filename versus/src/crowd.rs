//! 64 tasks that fight for one thing: what the cases of shared state have in common.
//!
//! Two workers on every side, and many tasks on each, so that a task that waits leaves its worker something to do.
//! Every task has numbers of its own, the same on all sides. The table of such a case shows CPU time by wall time,
//! since contention that did not happen flatters locks: if another process had the second core, the tasks of this one
//! do not contend.

use crate::contest::{Contest, Entry, Role};
use crate::sides::{Host, Side};
use crate::work::{self, Work};

/// Tasks on every side.
pub(crate) const TASKS: usize = 64;

/// Operations in a batch: few, so that a smoke test is short.
const BATCH: usize = TASKS * 16;

/// The operation that a task repeats.
pub(crate) trait Client: Clone + Send + Sync + 'static {
    /// Operations after which a task lets others run.
    const TURN: u64 = 64;

    /// One operation. The results of all operations are added up.
    fn once(&self, number: u64) -> impl Future<Output = u64> + Send;
}

/// A whole case of such clients.
pub(crate) trait Fight: Client {
    /// About how long an operation takes: so that a round takes half a second.
    const NANOS: u64;

    /// Makes the state that all clients of a run share, inside of a task.
    fn open<S: Side>(side: &S) -> Self;

    /// Looks at what all have left, before the clock stops. Panics if it is wrong.
    fn check(&self, sum: u64) -> impl Future<Output = ()> + Send;
}

/// A contest of crowds.
pub(crate) fn contest(name: &'static str, about: &'static str, entries: Vec<Entry>) -> Contest {
    work::contended(name, about, entries)
}

/// Dapple's side of it.
pub(crate) fn ours<H: Host, F: Fight>() -> Entry {
    work::contended_entry::<H, Crowd<F>>("dapple", Role::Ours)
}

/// One of the others.
pub(crate) fn rival<H: Host, F: Fight>(side: &'static str) -> Entry {
    work::contended_entry::<H, Crowd<F>>(side, Role::Rival)
}

/// One that does not count.
pub(crate) fn reference<H: Host, F: Fight>(side: &'static str) -> Entry {
    work::contended_entry::<H, Crowd<F>>(side, Role::Reference)
}

struct Crowd<F>(F);

impl<F: Fight> Work for Crowd<F> {
    const BATCHES: usize = (500_000_000 / F::NANOS as usize).div_ceil(BATCH);
    const OPERATIONS: usize = BATCH;

    async fn run<S: Side>(side: S, batches: usize) {
        let client = F::open(&side);
        let sum = work_all(&side, &client, (batches * BATCH / TASKS) as u64).await;
        client.check(sum).await;
    }
}

/// Lets every task do `each` operations. Returns the sum of their results.
pub(crate) async fn work_all<S: Side, C: Client>(side: &S, client: &C, each: u64) -> u64 {
    let mut tasks = Vec::with_capacity(TASKS);
    for task in 0..TASKS as u64 {
        let client = client.clone();
        tasks.push(side.spawn(async move {
            let mut sum = 0_u64;
            for number in 0..each {
                sum = sum.wrapping_add(client.once(task * each + number).await);
                if number % C::TURN == C::TURN - 1 {
                    S::yield_now().await;
                }
            }
            sum
        }));
    }
    let mut sum = 0_u64;
    for task in tasks {
        sum = sum.wrapping_add(S::join(task).await);
    }
    sum
}
