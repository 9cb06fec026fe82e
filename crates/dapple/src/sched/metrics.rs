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
    /// Counters of each worker, in the order of their indices.
    pub workers: Vec<WorkerMetrics>,
    /// Counters of each spare worker made so far, including spares that rest. A spare replaces a worker that is stuck.
    pub spares: Vec<WorkerMetrics>,
    /// Number of spare workers that run now: they replace a stuck worker, or are stuck themselves.
    pub spares_running: usize,
    /// How often a worker was found to be stuck in one runnable for longer than
    /// [`stall_after`](crate::runtime::Builder::stall_after).
    pub stalls: u64,
    /// How often a spare was sent to replace a stuck worker.
    pub spares_sent: u64,
    /// How often a spare was needed and could not be had; see [`max_spares`](crate::runtime::Builder::max_spares).
    pub stalls_unrelieved: u64,
    /// Duration of the longest stall so far, including one that still goes on.
    pub longest_stall: Duration,
    /// Tasks spawned so far, blocking calls included.
    pub spawned: u64,
    /// Tasks that have ended so far, in any way.
    pub finished: u64,
    /// Tasks that a [`Limit`](crate::limit::Limit) has refused before they began.
    pub refused: u64,
    /// Panics that ended a task, a callback or a blocking call, whether or not a handle is there to see them. Panics
    /// of their destructors and of the [hook](crate::runtime::Builder::on_panic) itself are included.
    pub panics: u64,
    /// Runnables (tasks and colors that are ready to run) in the queue that all workers share. It does not count those
    /// that a thread outside of the runtime has just submitted and no worker has seen.
    pub shared_queue: usize,
    /// Number of lanes (colors, or tasks with a color of their own) that wait in the queues by priority.
    pub ranked: usize,
    /// Number of workers that sleep now, since they have nothing to run.
    pub sleeping: usize,
    /// Number of threads that the pool for blocking calls has now.
    pub blocking_threads: usize,
    /// Number of blocking calls that wait for a thread now.
    pub blocking_queued: usize,
    /// Writes to files that failed after their [`File`](crate::fs::File) was dropped, so that no call could return the
    /// error. Flush a file before you drop it.
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
    /// Number of runnables that the worker has run: polls of tasks, and turns of lanes.
    pub runs: u64,
    /// How often the worker stole from the queue of another worker.
    pub steals: u64,
    /// Number of runnables that it stole; one theft takes several.
    pub stolen: u64,
    /// How often it went to sleep.
    pub sleeps: u64,
    /// How often its run queue was full, and half of it was moved to the shared queue.
    pub overflows: u64,
    /// Number of runnables in its queues now.
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
            shared_queue: self.injector.queue_len(),
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
