//! Counters of requests: statuses, bytes and response times, for metrics and the built-in site.
//!
//! # Invariants
//!
//! * **OWN-SHARD**: a [`CounterShard`] is written to by one thread at a time, the one that has taken it from the pool,
//!   so counting is a load and a store, and no cache line moves between workers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The upper bounds of the latency histogram, in microseconds.
const BOUNDS: [u64; 16] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000,
];

/// Number of possible statuses: 100 to 599.
const STATUSES: usize = 500;

/// Counters of one thread. Only that thread writes to them. OWN-SHARD
struct CounterShard {
    statuses: [AtomicU64; STATUSES],
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
    bytes: AtomicU64,
}

impl CounterShard {
    fn new() -> CounterShard {
        let zero = || AtomicU64::new(0);
        CounterShard {
            statuses: std::array::from_fn(|_| zero()),
            buckets: std::array::from_fn(|_| zero()),
            nanos: zero(),
            bytes: zero(),
        }
    }
}

/// Adds to a counter without a locked instruction. Only for the thread that has the shard: OWN-SHARD.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
}

/// All shards, and those that no thread has taken. A thread takes one at its first request.
struct ShardPool {
    all: Vec<&'static CounterShard>,
    free: Vec<&'static CounterShard>,
}

static SHARD_POOL: Mutex<ShardPool> = Mutex::new(ShardPool { all: Vec::new(), free: Vec::new() });

fn shard_pool() -> MutexGuard<'static, ShardPool> {
    SHARD_POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shard of a thread. It returns to the pool when the thread ends.
struct OwnedShard(&'static CounterShard);

impl Drop for OwnedShard {
    fn drop(&mut self) {
        shard_pool().free.push(self.0);
    }
}

thread_local! {
    static OWN: OwnedShard = {
        let mut pool = shard_pool();
        let shard = pool.free.pop().unwrap_or_else(|| {
            let shard: &'static CounterShard = Box::leak(Box::new(CounterShard::new()));
            pool.all.push(shard);
            shard
        });
        OwnedShard(shard)
    };
}

/// The right to count answered requests, and to read the sums.
pub(crate) struct Requests(());

/// Sums over all threads, read at one moment.
pub(crate) struct Sums {
    /// Number of responses for each status that occurred.
    pub(crate) statuses: Vec<(u16, u64)>,
    buckets: [u64; BOUNDS.len() + 1],
    /// Response times of all requests added up, in seconds.
    pub(crate) seconds: f64,
    pub(crate) bytes: u64,
}

impl Sums {
    pub(crate) fn requests(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the median response time, rounded up to a bound of the histogram. `None` without requests, or if the
    /// median is beyond the last bound.
    pub(crate) fn median(&self) -> Option<Duration> {
        let mut count = 0;
        let half = self.requests().div_ceil(2).max(1);
        let bound = BOUNDS.iter().zip(self.buckets).find(|(_, of_it)| {
            count += of_it;
            count >= half
        });
        bound.map(|(&micros, _)| Duration::from_micros(micros))
    }

    /// Returns the histogram of response times: for each upper bound, in seconds, the number of requests between it and the
    /// bound before.
    pub(crate) fn buckets(&self) -> Vec<(f64, u64)> {
        let bounds = BOUNDS.iter().map(|&micros| micros as f64 / 1e6).chain([f64::INFINITY]);
        bounds.zip(self.buckets).collect()
    }
}

impl Requests {
    /// The counters of the program. There are no others.
    pub(crate) const ALL: &'static Requests = &Requests(());

    /// Counts an answered request. Called by the thread that has handed over the last of its body.
    pub(crate) fn note(&self, status: u16, bytes: u64, took: Duration) {
        let micros = took.as_micros() as u64;
        let bucket = BOUNDS.iter().position(|&bound| micros <= bound).unwrap_or(BOUNDS.len());
        // A thread that is on its way out counts nothing more.
        let _ = OWN.try_with(|own| {
            if let Some(counter) = own.0.statuses.get(usize::from(status).wrapping_sub(100)) {
                add(counter, 1);
            }
            add(&own.0.buckets[bucket], 1);
            add(&own.0.nanos, took.as_nanos() as u64);
            add(&own.0.bytes, bytes);
        });
    }

    pub(crate) fn sums(&self) -> Sums {
        let pool = shard_pool();
        let sum = |of: &dyn Fn(&'static CounterShard) -> &'static AtomicU64| -> u64 {
            pool.all.iter().map(|shard| of(shard).load(Relaxed)).sum()
        };
        let statuses = (0..STATUSES).map(|i| (i as u16 + 100, sum(&|shard| &shard.statuses[i])));
        Sums {
            statuses: statuses.filter(|(_, count)| *count > 0).collect(),
            buckets: std::array::from_fn(|i| sum(&|shard| &shard.buckets[i])),
            seconds: sum(&|shard| &shard.nanos) as f64 / 1e9,
            bytes: sum(&|shard| &shard.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_threads_count_is_added_up_and_nothing_is_lost() {
        // Several at a time and one after the other, so that shards are shared out and used again.
        for _ in 0..3 {
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        for i in 0..1000 {
                            let status = if i % 10 == 0 { 404 } else { 200 };
                            Requests::ALL.note(status, 2, Duration::from_micros(i * 1500));
                        }
                        Requests::ALL.note(99, 0, Duration::ZERO); // no status that there is
                    });
                }
            });
        }
        let sums = Requests::ALL.sums();
        assert_eq!(sums.statuses, [(200, 10_800), (404, 1200)]);
        assert_eq!((sums.requests(), sums.bytes), (12_012, 24_000));
        let buckets = sums.buckets();
        assert_eq!(buckets.first(), Some(&(0.000_01, 24)));
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, 3996)));
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), 12_012);
        assert!((sums.seconds - 12.0 * 999.0 * 1000.0 / 2.0 * 0.0015).abs() < 1e-6);
        assert!(shard_pool().all.len() <= 12);
        assert_eq!(sums.median(), Some(Duration::from_secs(1)));
    }
}
