//! The metrics page for Prometheus: counters of the program and of the runtime.

use std::fmt;
use std::time::Instant;

use dapple::limit::Limit;
use dapple_http::files::FileService;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge};
use prometheus_client::registry::Registry;

use crate::counts::Requests;
use crate::log::AccessLog;

/// Sources of the numbers on the metrics page.
pub(crate) struct Numbers {
    pub(crate) begun: Instant,
    pub(crate) runtime: dapple::Handle,
    pub(crate) server: dapple_http::StatsReader,
    pub(crate) limit: Option<Limit>,
    pub(crate) files: Option<FileService>,
    pub(crate) log: Option<&'static AccessLog>,
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
        let mut page = MetricsPage(encoder);
        self.http(&mut page)?;
        self.cache(&mut page)?;
        self.runtime(&mut page)
    }
}

impl Numbers {
    fn http(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
        let sums = Requests::ALL.sums();
        let statuses = sums.statuses.iter().map(|(status, count)| (status.to_string(), *count));
        page.counters(
            "http_requests",
            "Requests that the service has answered, by status",
            "status",
            statuses,
        )?;
        page.counter("http_response_bytes", "Bytes of bodies that were sent", sums.bytes)?;
        let help = "From the head of a request until the last of its answer was handed over, in seconds";
        let mut histogram = page.begin("http_request_seconds", help, MetricType::Histogram)?;
        histogram.encode_histogram::<NoLabelSet>(sums.seconds, sums.requests(), &sums.buckets(), None)?;

        let counts = self.server.snapshot();
        page.gauge("http_connections", "Connections that are open", counts.open as i64)?;
        page.counter("http_connections_accepted", "Connections that were accepted", counts.accepted)?;
        page.counter(
            "http_connections_turned_away",
            "Connections beyond what one address may have",
            counts.turned_away,
        )?;
        page.counter(
            "http_requests_begun",
            "Requests that were begun, whatever the response",
            counts.requests,
        )?;
        page.counter("http_requests_refused", "Requests refused with 503, over the limit", counts.refused)?;
        page.counter("http_requests_bad", "Requests refused as malformed or too large", counts.bad)?;
        page.counter("http_timeouts", "Clients and handlers that took too long", counts.timeouts)?;
        page.counter(
            "http_cancelled",
            "Requests that were cancelled, as their client had gone",
            counts.cancelled,
        )?;
        page.counter("http_panics", "Handlers that panicked", counts.panics)?;
        if let Some(limit) = &self.limit {
            let counts = limit.stats();
            let wait = counts.least_delay.unwrap_or_default().as_secs_f64();
            let help =
                "The least time that a request has waited for a worker in the last half second, in seconds";
            ConstGauge::new(wait).encode(page.begin("http_wait_seconds", help, MetricType::Gauge)?)?;
            page.gauge("http_overloaded", "Whether requests wait for too long", i64::from(counts.is_over))?;
            page.gauge(
                "http_requests_running",
                "Requests that were begun and not answered yet",
                counts.running as i64,
            )?;
        }
        let lost = self.log.map_or(0, AccessLog::lost);
        page.counter(
            "log_lines_lost",
            "Lines of the access log that were dropped because the log was read too slowly",
            lost,
        )
    }

    fn cache(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
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

    fn runtime(&self, page: &mut MetricsPage<'_>) -> fmt::Result {
        let metrics = self.runtime.metrics();
        page.gauge("uptime_seconds", "Since the start", self.begun.elapsed().as_secs() as i64)?;
        page.gauge("workers", "Workers of the runtime", metrics.workers.len() as i64)?;
        page.gauge("workers_sleeping", "Workers with nothing to do", metrics.sleeping as i64)?;
        let of_each = |of: fn(&dapple::runtime::WorkerMetrics) -> u64| {
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
        let lanes = queued + metrics.shared_queue + metrics.ranked;
        page.gauge("lanes_waiting", "Lanes and tasks that wait for a worker", lanes as i64)?;
        page.counter("stalls", "Workers that were stuck in one task for too long", metrics.stalls)?;
        page.counter(
            "stalls_unrelieved",
            "Stalls for which no spare worker was left",
            metrics.stalls_unrelieved,
        )?;
        page.counter("spares_sent", "How often a spare replaced a stalled worker", metrics.spares_sent)?;
        page.gauge(
            "spares_running",
            "Spares that replace a stalled worker now",
            metrics.spares_running as i64,
        )?;
        let runs = metrics.spares.iter().map(|spare| spare.runs).sum();
        page.counter("spare_runs", "Polls of tasks, and turns of lanes, by spares", runs)?;
        let longest = metrics.longest_stall.as_secs_f64();
        let help = "The longest stall so far, in seconds";
        ConstGauge::new(longest).encode(page.begin("longest_stall_seconds", help, MetricType::Gauge)?)?;
        page.counter("tasks_refused", "Tasks refused before they began, by a limit", metrics.refused)?;
        page.counter("tasks_spawned", "Tasks spawned", metrics.spawned)?;
        page.gauge("tasks", "Tasks that exist", metrics.alive() as i64)?;
        page.gauge("blocking_threads", "Threads for calls that block", metrics.blocking_threads as i64)?;
        page.gauge("blocking_waiting", "Calls that wait for such a thread", metrics.blocking_queued as i64)
    }
}

/// Writer of the page, a metric at a time.
struct MetricsPage<'a>(DescriptorEncoder<'a>);

impl MetricsPage<'_> {
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
