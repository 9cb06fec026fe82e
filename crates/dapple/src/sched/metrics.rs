//! Counters of the scheduler as a plain snapshot.

use std::time::Duration;

use super::Sched;
use super::worker::Worker;

/// A snapshot of a runtime's counters. It is taken without stopping any worker, so the numbers may not match each
/// other exactly.
///
/// # Examples
///
/// ```
/// dapple::run(async {
///     dapple::spawn(async {}).await.unwrap();
///     let metrics = dapple::Handle::current().metrics();
///     assert!(metrics.spawned >= 1 && metrics.finished >= 1);
///     assert_eq!(metrics.panics, 0);
/// });
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// One for each worker.
    pub workers: Vec<WorkerMetrics>,
    /// One for each spare that has replaced a worker so far, whether or not it does now.
    pub spares: Vec<WorkerMetrics>,
    /// Spares that do not rest: they replace a stuck worker, or are stuck themselves.
    pub spares_running: usize,
    /// How often a worker was found to be stuck in one runnable for longer than
    /// [`stall_after`](crate::runtime::Builder::stall_after).
    pub stalls: u64,
    /// How often a spare was sent to replace a stuck worker.
    pub spares_sent: u64,
    /// How often a spare was needed and could not be had; see [`max_spares`](crate::runtime::Builder::max_spares).
    pub stalls_unrelieved: u64,
    /// The longest of these stalls, including one that still goes on.
    pub longest_stall: Duration,
    /// Tasks spawned so far, blocking calls included.
    pub spawned: u64,
    /// Tasks that have ended in any way.
    pub finished: u64,
    /// Tasks that a [`Limit`](crate::limit::Limit) has refused before they began.
    pub refused: u64,
    /// Panics that ended a task, a callback or a blocking call, whether or not a handle is there to see them. Panics
    /// of their destructors and of the [hook](crate::runtime::Builder::on_panic) itself are included.
    pub panics: u64,
    /// Runnables in the shared queue, except those that came from outside just now.
    pub shared_line: usize,
    /// Lanes that are queued by priority.
    pub ranked: usize,
    /// Workers that sleep.
    pub sleeping: usize,
    /// Threads of the pool for blocking calls.
    pub blocking_threads: usize,
    /// Blocking calls that wait for a thread.
    pub blocking_queued: usize,
    /// Promised writes that failed when no [`File`](crate::fs::File) was left to report them: it was dropped before
    /// the write was done, or without a flush after it.
    pub failed_writes: u64,
}

impl Metrics {
    /// Tasks that exist.
    #[must_use]
    pub fn alive(&self) -> u64 {
        self.spawned.saturating_sub(self.finished)
    }
}

/// Counters of one worker.
///
/// # Examples
///
/// ```
/// let runtime = dapple::Runtime::builder().workers(2).build().unwrap();
/// runtime.block_on(runtime.spawn(async {})).unwrap();
/// let metrics = runtime.metrics();
/// assert_eq!(metrics.workers.len(), 2);
/// println!("tasks taken from other workers: {}", metrics.workers.iter().map(|worker| worker.stolen).sum::<u64>());
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// Runnables run: polls of tasks, and turns of lanes.
    pub runs: u64,
    /// Successful searches at other workers.
    pub steals: u64,
    /// Runnables stolen from other workers.
    pub stolen: u64,
    /// How often it went to sleep.
    pub sleeps: u64,
    /// How often its run queue was full, and half of it was moved to the shared queue.
    pub overflows: u64,
    /// Runnables in its queues.
    pub queued: usize,
}

impl Sched {
    pub(crate) fn metrics(&self) -> Metrics {
        let (spawned, finished) = self.task_counts();
        let of = |worker: &Worker| WorkerMetrics {
            runs: worker.counts.runs.get(),
            steals: worker.counts.steals.get(),
            stolen: worker.counts.stolen.get(),
            sleeps: worker.counts.sleeps.get(),
            overflows: worker.counts.overflows.get(),
            queued: worker.queued(self),
        };
        let stalls = &self.monitor.stalls;
        Metrics {
            workers: self.workers.iter().map(of).collect(),
            spares: self.spares.made().map(of).collect(),
            spares_running: self.spares.out(),
            stalls: stalls.count(),
            spares_sent: stalls.relieved(),
            stalls_unrelieved: stalls.unrelieved(),
            longest_stall: stalls.longest(),
            spawned,
            finished,
            refused: self.shared.refused(),
            panics: self.shared.panics.count(),
            shared_line: self.injector.queue_len(),
            ranked: self.ranks.len(),
            sleeping: self.idle.sleeping(),
            blocking_threads: 0,
            blocking_queued: 0,
            failed_writes: 0,
        }
    }

    /// Tasks spawned and finished so far.
    fn task_counts(&self) -> (u64, u64) {
        // Finished tasks are counted first: they were spawned before.
        let finished: u64 = self.all_workers().map(|worker| worker.slab.finished.get()).sum();
        let finished = finished + self.shared.foreign_counts().1;
        let spawned: u64 = self.all_workers().map(|worker| worker.slab.spawned.get()).sum();
        (spawned + self.shared.foreign_counts().0, finished)
    }

    /// Tasks that exist.
    pub(crate) fn alive(&self) -> u64 {
        let (spawned, finished) = self.task_counts();
        spawned - finished
    }
}
