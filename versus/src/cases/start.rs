//! `start`: a child that is ready at once.
//!
//! `ready`: a task starts children, one after the other, and takes the value of each: the cost of a child where it is
//! least useful, and most common. Each side starts a thousand in its own kind of group, a scope or a set, which is made
//! anew for each thousand. `join!` and `join_all`, which keep the futures themselves and no set, take eight at a time.
//!
//! `allocations`: how often Dapple asks for memory, per child, with the scope's own. See `versus-probe`.

use std::hint::black_box;
use std::marker::PhantomData;

use futures_util::future::join_all;
use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::contest::{Contest, Entry, Metric, Role};
use crate::probe;
use crate::sides::{Dapple, Side, Tokio};
use crate::work::{self, BATCH, Work};

pub(crate) fn contests() -> Vec<Contest> {
    let about = "a task starts 1000 children that are ready, and takes the value of each; per child";
    let entries = vec![
        work::entry::<Dapple, Ready<Scope>>(Role::Ours),
        work::entry_as::<Tokio, Ready<Unordered>>("FuturesUnordered", Role::Rival),
        work::entry_as::<Tokio, Ready<Call>>("call", Role::Reference),
        work::entry_as::<Tokio, Ready<Join>>("join!", Role::Reference),
        work::entry_as::<Tokio, Ready<JoinAll>>("join_all", Role::Reference),
        work::entry_as::<Tokio, Ready<Moro>>("moro", Role::Reference),
    ];
    let allocations = Contest {
        name: "start/allocations",
        about: "how often memory is asked for while a task starts 100,000 children that are ready",
        metrics: ALLOCATIONS,
        warm_up: false,
        at_most: 1,
        entries: vec![Entry {
            side: "dapple",
            role: Role::Ours,
            round: Box::new(|_| Ok(vec![probe::run(&probe::build("probe", "")?, "allocations", 100_000)?])),
        }],
    };
    vec![work::timed("start/ready", about, entries), allocations]
}

const ALLOCATIONS: &[Metric] = &[Metric::new("", "per start")];

/// Children of `join!` and `join_all`.
const JOINED: usize = 8;

/// A way to start children inside of a task.
trait Way: 'static {
    /// Starts a batch of children; the sum of their values.
    fn batch() -> impl Future<Output = usize> + Send;
}

struct Ready<W>(PhantomData<W>);

impl<W: Way> Work for Ready<W> {
    const BATCHES: usize = 5000;
    const OPERATIONS: usize = BATCH;

    async fn run<S: Side>(_: S, batches: usize) {
        for _ in 0..batches {
            assert_eq!(W::batch().await, BATCH * (BATCH - 1) / 2);
            S::yield_now().await;
        }
    }
}

/// A child: no more than a value that the compiler does not know.
async fn child(number: usize) -> usize {
    black_box(number)
}

struct Scope;

impl Way for Scope {
    async fn batch() -> usize {
        dapple::finish(async |scope| {
            let mut sum = 0;
            for number in 0..BATCH {
                sum += scope.start(child(number)).await;
            }
            sum
        })
        .await
    }
}

struct Unordered;

impl Way for Unordered {
    async fn batch() -> usize {
        let mut set = FuturesUnordered::new();
        let mut sum = 0;
        for number in 0..BATCH {
            set.push(child(number));
            sum += set.next().await.expect("what was pushed");
        }
        sum
    }
}

struct Call;

impl Way for Call {
    async fn batch() -> usize {
        let mut sum = 0;
        for number in 0..BATCH {
            sum += child(number).await;
        }
        sum
    }
}

struct Join;

impl Way for Join {
    async fn batch() -> usize {
        let mut sum = 0;
        for n in (0..BATCH).step_by(JOINED) {
            let (a, b, c, d, e, f, g, h) = futures_util::join!(
                child(n),
                child(n + 1),
                child(n + 2),
                child(n + 3),
                child(n + 4),
                child(n + 5),
                child(n + 6),
                child(n + 7)
            );
            sum += a + b + c + d + e + f + g + h;
        }
        sum
    }
}

struct JoinAll;

impl Way for JoinAll {
    async fn batch() -> usize {
        let mut sum = 0;
        for number in (0..BATCH).step_by(JOINED) {
            let values = join_all((number..number + JOINED).map(child)).await;
            sum += values.iter().sum::<usize>();
        }
        sum
    }
}

struct Moro;

impl Way for Moro {
    async fn batch() -> usize {
        moro::async_scope!(|scope| {
            let mut sum = 0;
            for number in 0..BATCH {
                sum += scope.spawn(child(number)).await;
            }
            sum
        })
        .await
    }
}
