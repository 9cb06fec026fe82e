//! What the program counts, and the page that shows it to Prometheus.
//!
//! # Invariants
//!
//! * **ONE-WRITES**: a [`Shard`] is written to by one thread at a time, the one that has taken it from the shelf, so
//!   that to count is a load and a store, and no line of memory goes to and fro between workers.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use dapple_http::files::Files;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge};
use prometheus_client::registry::Registry;

use crate::log::Log;

/// The upper bounds of the latency histogram, in microseconds.
const BOUNDS: [u64; 16] = [
    10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000,
];

/// The statuses that there are: 100 to 599.
const STATUSES: usize = 500;

/// What one thread has counted.
struct Shard {
    statuses: [AtomicU64; STATUSES],
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanos: AtomicU64,
    bytes: AtomicU64,
}

impl Shard {
    fn new() -> Shard {
        let zero = || AtomicU64::new(0);
        Shard {
            statuses: std::array::from_fn(|_| zero()),
            buckets: std::array::from_fn(|_| zero()),
            nanos: zero(),
            bytes: zero(),
        }
    }
}

/// ONE-WRITES.
fn add(counter: &AtomicU64, count: u64) {
    counter.store(counter.load(Relaxed).wrapping_add(count), Relaxed);
}

/// All shards, and those that no thread has at the moment.
struct Shelf {
    all: Vec<&'static Shard>,
    free: Vec<&'static Shard>,
}

static SHELF: Mutex<Shelf> = Mutex::new(Shelf { all: Vec::new(), free: Vec::new() });

fn shelf() -> MutexGuard<'static, Shelf> {
    SHELF.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shard of a thread, which goes back to the shelf with its end.
struct Own(&'static Shard);

impl Drop for Own {
    fn drop(&mut self) {
        shelf().free.push(self.0);
    }
}

thread_local! {
    static OWN: Own = {
        let mut shelf = shelf();
        let shard = shelf.free.pop().unwrap_or_else(|| {
            let shard: &'static Shard = Box::leak(Box::new(Shard::new()));
            shelf.all.push(shard);
            shard
        });
        Own(shard)
    };
}

/// The requests that were answered.
pub(crate) struct Requests(());

/// All of them, added up.
pub(crate) struct Sums {
    statuses: Vec<(u16, u64)>,
    buckets: [u64; BOUNDS.len() + 1],
    seconds: f64,
    pub(crate) bytes: u64,
}

impl Sums {
    pub(crate) fn requests(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

impl Requests {
    /// There is one for the program.
    pub(crate) const ALL: &'static Requests = &Requests(());

    /// Counts a request.
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
        let shelf = shelf();
        let sum = |of: &dyn Fn(&'static Shard) -> &'static AtomicU64| -> u64 {
            shelf.all.iter().map(|shard| of(shard).load(Relaxed)).sum()
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

/// Everything that there is to count.
pub(crate) struct Numbers {
    pub(crate) begun: Instant,
    pub(crate) runtime: dapple::Handle,
    pub(crate) server: dapple_http::Stats,
    pub(crate) files: Option<Files>,
    pub(crate) log: Option<&'static Log>,
}

impl fmt::Debug for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Numbers").finish_non_exhaustive()
    }
}

/// The page of metrics, in the text format of Prometheus (OpenMetrics).
pub(crate) fn page(numbers: &'static Numbers) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("dapple");
    registry.register_collector(Box::new(numbers));
    let mut page = String::new();
    text::encode(&mut page, &registry)?;
    Ok(page)
}

impl Collector for &'static Numbers {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut page = Page(encoder);
        self.http(&mut page)?;
        self.cache(&mut page)?;
        self.runtime(&mut page)
    }
}

impl Numbers {
    fn http(&self, page: &mut Page<'_>) -> fmt::Result {
        let sums = Requests::ALL.sums();
        let statuses = sums.statuses.iter().map(|(status, count)| (status.to_string(), *count));
        page.counters("http_requests", "Requests that were answered, by status", "status", statuses)?;
        page.counter("http_response_bytes", "Bytes of bodies that were sent", sums.bytes)?;
        let mut buckets: Vec<(f64, u64)> = Vec::new();
        for (i, count) in sums.buckets.iter().enumerate() {
            buckets.push((BOUNDS.get(i).map_or(f64::INFINITY, |&micros| micros as f64 / 1e6), *count));
        }
        let help = "From the head of a request until the last of its answer was handed over, in seconds";
        let mut histogram = page.begin("http_request_seconds", help, MetricType::Histogram)?;
        histogram.encode_histogram::<NoLabelSet>(sums.seconds, sums.requests(), &buckets, None)?;

        let counts = self.server.snapshot();
        page.gauge("http_connections", "Connections that are open", counts.open as i64)?;
        page.counter("http_connections_accepted", "Connections that were accepted", counts.accepted)?;
        page.counter(
            "http_connections_turned_away",
            "Connections beyond what one address may have",
            counts.turned_away,
        )?;
        page.counter("http_requests_begun", "Requests that came, whatever the answer", counts.requests)?;
        page.counter("http_requests_refused", "Requests refused with 503, over the limit", counts.refused)?;
        page.counter("http_requests_bad", "Requests refused as malformed or too large", counts.bad)?;
        page.counter("http_timeouts", "Clients and handlers that took too long", counts.timeouts)?;
        page.counter(
            "http_cancelled",
            "Requests that were cancelled, as their client had gone",
            counts.cancelled,
        )?;
        page.counter("http_panics", "Handlers that panicked", counts.panics)?;
        let lost = self.log.map_or(0, Log::lost);
        page.counter("log_lines_lost", "Lines of the access log that nobody read in time", lost)
    }

    fn cache(&self, page: &mut Page<'_>) -> fmt::Result {
        let Some(files) = &self.files else { return Ok(()) };
        let stats = files.stats();
        page.counter("cache_hits", "Requests answered without asking the file system", stats.hits)?;
        page.counter("cache_misses", "Requests for which the file system was asked", stats.misses)?;
        page.counter("cache_checks", "Pages found unchanged when they were looked at again", stats.checks)?;
        page.counter("files_read", "Files read into memory", stats.loads)?;
        page.counter("files_opened", "Files opened to be sent in pieces", stats.opens)?;
        page.gauge("cache_pages", "Pages in memory", stats.cached_pages as i64)?;
        page.gauge("cache_bytes", "Memory that they take, in bytes", stats.cached_bytes as i64)
    }

    fn runtime(&self, page: &mut Page<'_>) -> fmt::Result {
        let metrics = self.runtime.metrics();
        page.gauge("uptime_seconds", "Since the start", self.begun.elapsed().as_secs() as i64)?;
        page.gauge("workers", "Workers of the runtime", metrics.workers.len() as i64)?;
        page.gauge("workers_sleeping", "Workers with nothing to do", metrics.sleeping as i64)?;
        let of_each = |of: fn(&dapple::WorkerMetrics) -> u64| {
            metrics.workers.iter().enumerate().map(move |(i, worker)| (i.to_string(), of(worker)))
        };
        page.counters(
            "worker_runs",
            "Polls of tasks, and turns of lanes",
            "worker",
            of_each(|worker| worker.runs),
        )?;
        page.counters(
            "worker_steals",
            "Successful searches at other workers",
            "worker",
            of_each(|worker| worker.steals),
        )?;
        page.counters(
            "worker_sleeps",
            "How often it went to sleep",
            "worker",
            of_each(|worker| worker.sleeps),
        )?;
        let queued: usize = metrics.workers.iter().map(|worker| worker.queued).sum();
        let lanes = queued + metrics.shared_line + metrics.ranked;
        page.gauge("lanes_waiting", "Lanes and tasks that wait for a worker", lanes as i64)?;
        page.counter("tasks_spawned", "Tasks spawned", metrics.spawned)?;
        page.gauge("tasks", "Tasks that exist", metrics.alive() as i64)?;
        page.gauge("blocking_threads", "Threads for calls that block", metrics.blocking_threads as i64)?;
        page.gauge("blocking_waiting", "Calls that wait for such a thread", metrics.blocking_queued as i64)
    }
}

/// The page, as it is written.
struct Page<'a>(DescriptorEncoder<'a>);

impl Page<'_> {
    fn begin<'s>(
        &'s mut self,
        name: &'s str,
        help: &str,
        kind: MetricType,
    ) -> Result<MetricEncoder<'s>, fmt::Error> {
        self.0.encode_descriptor(name, help, None, kind)
    }

    fn counter(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        ConstCounter::new(count).encode(self.begin(name, help, MetricType::Counter)?)
    }

    fn counters(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        counts: impl Iterator<Item = (String, u64)>,
    ) -> fmt::Result {
        let mut family = self.begin(name, help, MetricType::Counter)?;
        for (value, count) in counts {
            ConstCounter::new(count).encode(family.encode_family(&[(label, value.as_str())])?)?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, value: i64) -> fmt::Result {
        ConstGauge::new(value).encode(self.begin(name, help, MetricType::Gauge)?)
    }
}
