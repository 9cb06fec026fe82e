//! `memo`: 64 tasks ask for values that take a millisecond to compute, each of which is computed once.
//!
//! The keys asked for follow Zipf's law: the second key half as often as the first, the third a third as often. First
//! all values are computed: every task asks for some of the popular keys, many tasks for the same at once, then for its
//! share of all of them. A computation sleeps for a millisecond in its runtime. Then the clock starts: the measure is
//! the CPU time of a lookup that finds its value. Computations are counted until the end; any other number of them than
//! the number of keys ends the run.
//!
//! `dashmap` has a `OnceCell` of tokio's for each key, and looks whether it is filled before it waits at it;
//! `moka` is its cache for futures, without a limit, so that nothing is evicted. Both run on tokio and both
//! count. All hash as they do by default; `dashmap-hasher`, a reference, hashes as Dapple's map does.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use dapple::{SharedMap, shared::MapHasher};
use dashmap::DashMap;
use tokio::sync::OnceCell;

use crate::contest::{Contest, DENIED, Entry, Failure, Metric, Role, Sample, Scale};
use crate::crowd::{Client, TASKS, work_all};
use crate::scatter::scatter;
use crate::sides::{Dapple, Host, TokioDriven};
use crate::work::{self, Stopwatch};

pub(crate) fn contest() -> Contest {
    let entries = vec![
        entry::<Dapple, OfDapple>("dapple", Role::Ours),
        entry::<TokioDriven, OfDashMap<RandomState>>("dashmap", Role::Rival),
        entry::<TokioDriven, OfMoka>("moka", Role::Rival),
        entry::<TokioDriven, OfDashMap<MapHasher>>("dashmap-hasher", Role::Reference),
    ];
    let about = "64 tasks ask for values that are computed once; CPU time of a hit";
    work::measured("memo", about, METRICS, entries)
}

const METRICS: &[Metric] = &[
    Metric::new("cpu", "ns"),
    Metric { name: "hits", unit: "M/cpu-s", ratios: false, absolutes: true },
    Metric::shown("computed", ""),
    Metric::shown("cpu/wall", ""),
    DENIED,
];

/// Keys, of which a smoke test uses a twentieth.
const KEYS: u64 = 10_000;

/// Answers that each task gets, before the clock starts and after.
const WARM_UP: u64 = 200;
const HITS: u64 = 100_000;

/// How long a value takes.
const COMPUTING: Duration = Duration::from_millis(1);

fn entry<H: Host, M: Memo>(side: &'static str, role: Role) -> Entry {
    Entry { side, role, round: Box::new(|scale| round::<H, M>(scale)) }
}

/// One round of one side, in the order of [`METRICS`].
fn round<H: Host, M: Memo>(scale: Scale) -> Result<Sample, Failure> {
    let less = if scale.quick { 20 } else { 1 };
    let (keys, hits) = (KEYS / less, HITS / less);
    let memo = M::new();
    let popular = Popular { memo: memo.clone(), keys: zipf(keys).into() };
    H::start().run(move |side| async move {
        work_all(&side, &popular, WARM_UP / less).await;
        work_all(&side, &Every { memo: memo.clone(), keys }, keys.div_ceil(TASKS as u64)).await;
        let stopwatch = Stopwatch::start();
        work_all(&side, &popular, hits).await;
        let times = stopwatch.contended(hits as usize * TASKS);
        let &[_, cpu, cores, denied] = &times[..] else { unreachable!("four values") };
        let computed = memo.computed().load(Relaxed);
        if computed != keys {
            return Err(format!("memo: {} computed {computed} values for {keys} keys", H::NAME));
        }
        Ok(vec![cpu, 1e3 / cpu, computed as f64, cores, denied])
    })
}

/// Keys in the order in which they are asked for, again and again.
fn zipf(keys: u64) -> Vec<u32> {
    // The `rank`-th key has the piece between the ones before and after it, of a line from 0 to the sum.
    let mut sum = 0.0;
    let ends: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += 1.0 / rank as f64;
            sum
        })
        .collect();
    let draw = |number| {
        let at = scatter(number) as f64 / 2_f64.powi(64) * sum;
        ends.partition_point(|&end| end <= at).min(ends.len() - 1) as u32
    };
    (0..DRAWN as u64).map(draw).collect()
}

/// How many keys are drawn.
const DRAWN: usize = 1 << 18;

/// Asks for popular keys more often.
#[derive(Clone)]
struct Popular<M> {
    memo: M,
    keys: Arc<[u32]>,
}

impl<M: Memo> Client for Popular<M> {
    #[inline]
    async fn once(&self, number: u64) -> u64 {
        ask(&self.memo, self.keys[number as usize % DRAWN].into()).await
    }
}

/// Asks for every key.
#[derive(Clone)]
struct Every<M> {
    memo: M,
    keys: u64,
}

impl<M: Memo> Client for Every<M> {
    async fn once(&self, number: u64) -> u64 {
        ask(&self.memo, number % self.keys).await
    }
}

#[inline]
async fn ask(memo: &impl Memo, key: u64) -> u64 {
    let value = memo.get(key).await;
    assert_eq!(value, scatter(key), "the value of another key");
    value
}

/// Something that remembers values, and computes each once.
trait Memo: Clone + Send + Sync + 'static {
    fn new() -> Self;

    /// The value of a key: [`value`], after a sleep, if it is not there.
    fn get(&self, key: u64) -> impl Future<Output = u64> + Send;

    /// How many were computed.
    fn computed(&self) -> &AtomicU64;
}

/// Computes the value of a key, and counts the computation.
fn value(key: u64, computed: &AtomicU64) -> u64 {
    computed.fetch_add(1, Relaxed);
    scatter(key)
}

#[derive(Clone)]
struct OfDapple {
    map: SharedMap<u64, u64>,
    computed: Arc<AtomicU64>,
}

impl Memo for OfDapple {
    fn new() -> Self {
        Self { map: SharedMap::new(), computed: Arc::default() }
    }

    #[inline]
    async fn get(&self, key: u64) -> u64 {
        let compute = async || {
            dapple::time::sleep(COMPUTING).await.expect("nobody cancels");
            value(key, &self.computed)
        };
        self.map.get_or_insert_with(key, compute).await.expect("nobody cancels")
    }

    fn computed(&self) -> &AtomicU64 {
        &self.computed
    }
}

#[derive(Clone)]
struct OfDashMap<H> {
    map: Arc<DashMap<u64, Arc<OnceCell<u64>>, H>>,
    computed: Arc<AtomicU64>,
}

impl<H: BuildHasher + Clone + Default + Send + Sync + 'static> Memo for OfDashMap<H> {
    fn new() -> Self {
        Self { map: Arc::default(), computed: Arc::default() }
    }

    #[inline]
    async fn get(&self, key: u64) -> u64 {
        if let Some(value) = self.map.get(&key).and_then(|cell| cell.get().copied()) {
            return value;
        }
        // The lock of the map must be free again before the wait.
        let cell = Arc::clone(&self.map.entry(key).or_default());
        let compute = async || {
            tokio::time::sleep(COMPUTING).await;
            value(key, &self.computed)
        };
        *cell.get_or_init(compute).await
    }

    fn computed(&self) -> &AtomicU64 {
        &self.computed
    }
}

#[derive(Clone)]
struct OfMoka {
    cache: moka::future::Cache<u64, u64>,
    computed: Arc<AtomicU64>,
}

impl Memo for OfMoka {
    fn new() -> Self {
        Self { cache: moka::future::Cache::builder().build(), computed: Arc::default() }
    }

    #[inline]
    async fn get(&self, key: u64) -> u64 {
        let compute = async {
            tokio::time::sleep(COMPUTING).await;
            value(key, &self.computed)
        };
        self.cache.get_with(key, compute).await
    }

    fn computed(&self) -> &AtomicU64 {
        &self.computed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tenth_key_is_asked_for_a_tenth_as_often_as_the_first() {
        let drawn = zipf(1000);
        let count = |key| drawn.iter().filter(|&&drawn| drawn == key).count() as f64;
        let ratio = count(0) / count(9);
        assert!((9.5..10.5).contains(&ratio), "{ratio}");
        assert!(drawn.iter().all(|&key| key < 1000) && count(999) > 0.0);
    }
}
