//! `stateful`: requests that compute, behind one cache; Figure 5 of the paper on Node.Scala.
//!
//! As in its first workload, every request is in the state with all that it does: an exclusive request computes and
//! changes the cache, any other computes and compares its result with the cache. The variants have 10 to 90 exclusive
//! requests of a hundred. A request runs one of five kernels ([`crate::kernels`]) for about ten microseconds, and lets
//! others run when it is done. No result may differ from an earlier one, and the cache counts its changes: both are
//! checked. Against `tokio` with its RwLock, which must be beaten.

use std::collections::HashMap;
use std::sync::Arc;

use dapple::Shared;

use crate::contest::Contest;
use crate::crowd::{self, Client, Fight};
use crate::kernels::Kernel;
use crate::scatter::{below, scatter};
use crate::sides::{Dapple, Side, Tokio};

pub(crate) fn contests() -> Vec<Contest> {
    vec![
        contest::<10>(
            "stateful/10",
            "64 tasks compute behind a cache, 10% of the requests change it; per request",
        ),
        contest::<30>("stateful/30", "the same with 30%"),
        contest::<50>("stateful/50", "the same with 50%"),
        contest::<70>("stateful/70", "the same with 70%"),
        contest::<90>("stateful/90", "the same with 90%"),
    ]
}

fn contest<const PERCENT: u64>(name: &'static str, about: &'static str) -> Contest {
    let entries = vec![
        crowd::ours::<Dapple, Requests<OfDapple, PERCENT>>(),
        crowd::rival::<Tokio, Requests<OfTokio, PERCENT>>("tokio"),
    ];
    crowd::contest(name, about, entries)
}

/// Seeds of each kernel: what can be asked for.
const SEEDS: u64 = 100;

/// The computed results, and the number of changes of the cache.
#[derive(Default)]
struct Cache {
    results: HashMap<(Kernel, u64), f64>,
    changes: u64,
}

impl Cache {
    /// A request that is not exclusive.
    fn compare(&self, kernel: Kernel, seed: u64) {
        let result = kernel.compute(seed);
        if let Some(known) = self.results.get(&(kernel, seed)) {
            assert_eq!(known.to_bits(), result.to_bits(), "another result than before");
        }
    }

    /// A request that is exclusive.
    fn change(&mut self, kernel: Kernel, seed: u64) {
        let result = kernel.compute(seed);
        if let Some(known) = self.results.insert((kernel, seed), result) {
            assert_eq!(known.to_bits(), result.to_bits(), "another result than before");
        }
        self.changes += 1;
    }
}

/// Where the cache is.
trait Place: Clone + Send + Sync + 'static {
    fn new() -> Self;
    fn read<R: Send>(&self, look: impl FnOnce(&Cache) -> R + Send) -> impl Future<Output = R> + Send;
    fn write<R: Send>(&self, change: impl FnOnce(&mut Cache) -> R + Send) -> impl Future<Output = R> + Send;
}

#[derive(Clone)]
struct Requests<P, const PERCENT: u64>(P);

impl<P: Place, const PERCENT: u64> Client for Requests<P, PERCENT> {
    const TURN: u64 = 1;

    /// One for each exclusive request.
    #[inline]
    async fn once(&self, number: u64) -> u64 {
        let scattered = scatter(number);
        let kernel = Kernel::ALL[number as usize % Kernel::ALL.len()];
        let seed = scattered % SEEDS;
        if below(scattered, 100) < PERCENT {
            self.0.write(|cache| cache.change(kernel, seed)).await;
            1
        } else {
            self.0.read(|cache| cache.compare(kernel, seed)).await;
            0
        }
    }
}

impl<P: Place, const PERCENT: u64> Fight for Requests<P, PERCENT> {
    const NANOS: u64 = 10_000;

    fn open<S: Side>(_: &S) -> Self {
        Self(P::new())
    }

    async fn check(&self, exclusive: u64) {
        assert_eq!(self.0.read(|cache| cache.changes).await, exclusive, "a change was lost");
    }
}

#[derive(Clone)]
struct OfDapple(Shared<Cache>);

impl Place for OfDapple {
    fn new() -> Self {
        Self(Shared::new(Cache::default()))
    }

    #[inline]
    async fn read<R: Send>(&self, look: impl FnOnce(&Cache) -> R + Send) -> R {
        self.0.read(look).await.expect("nobody cancels")
    }

    #[inline]
    async fn write<R: Send>(&self, change: impl FnOnce(&mut Cache) -> R + Send) -> R {
        self.0.write(change).await.expect("nobody cancels")
    }
}

#[derive(Clone)]
struct OfTokio(Arc<tokio::sync::RwLock<Cache>>);

impl Place for OfTokio {
    fn new() -> Self {
        Self(Arc::default())
    }

    #[inline]
    async fn read<R: Send>(&self, look: impl FnOnce(&Cache) -> R + Send) -> R {
        look(&*self.0.read().await)
    }

    #[inline]
    async fn write<R: Send>(&self, change: impl FnOnce(&mut Cache) -> R + Send) -> R {
        change(&mut *self.0.write().await)
    }
}
