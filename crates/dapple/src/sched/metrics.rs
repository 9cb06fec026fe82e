//! What the scheduler has done so far, as plain numbers.

use std::time::Duration;

use super::Sched;
use super::worker::Worker;

/// A snapshot of a runtime's counters. Taken without stopping anybody, so the numbers need not fit
/// together exactly.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// One for each worker.
    pub workers: Vec<WorkerMetrics>,
    /// One for each spare that has stood in for a worker so far, whether or not it does now.
    pub spares: Vec<WorkerMetrics>,
    /// Spares that do not rest: they stand in for a worker that is stuck, or are stuck themselves.
    pub spares_running: usize,
    /// How often a worker was found to be stuck in one runnable for longer than
    /// [`stall_after`](crate::RuntimeBuilder::stall_after).
    pub stalls: u64,
    /// How often a spare was sent to stand in for one.
    pub spares_sent: u64,
    /// How often a spare was needed and none was to be had; see
    /// [`max_spares`](crate::RuntimeBuilder::max_spares).
    pub stalls_unrelieved: u64,
    /// The longest of these stalls, or how long it has taken so far.
    pub longest_stall: Duration,
    /// Tasks spawned so far, blocking calls included.
    pub spawned: u64,
    /// Tasks that have ended, in whatever way.
    pub finished: u64,
    /// Tasks that a [`Limit`](super::Limit) has refused before they began.
    pub refused: u64,
    /// Panics of tasks, callbacks and blocking calls, those of their destructors included: of each one that ended such
    /// a runnable, whether or not a handle is there to see it, and of the
    /// [hook](crate::RuntimeBuilder::on_panic) itself.
    pub panics: u64,
    /// What waits in the shared line, but for what has come in from outside just now.
    pub shared_line: usize,
    /// What waits because of its priority, wherever it will run.
    pub ranked: usize,
    /// Workers that sleep.
    pub sleeping: usize,
    /// Threads of the pool for blocking calls.
    pub blocking_threads: usize,
    /// Blocking calls that wait for a thread.
    pub blocking_queued: usize,
    /// Promised writes that failed when no [`File`](crate::fs::File) was left to tell: it was dropped before the write
    /// was done, or without a flush after it.
    pub failed_writes: u64,
}

impl Metrics {
    /// Tasks that exist.
    #[must_use]
    pub fn alive(&self) -> u64 {
        self.spawned.saturating_sub(self.finished)
    }
}

/// What one worker has done so far.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// Runnables taken up: polls of tasks, and turns of lanes.
    pub runs: u64,
    /// Successful searches at other workers.
    pub steals: u64,
    /// Runnables that came from them.
    pub stolen: u64,
    /// How often it went to sleep.
    pub sleeps: u64,
    /// How often its queue was full, and half of it went to the shared line.
    pub overflows: u64,
    /// What waits in its queue.
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
            shared_line: self.injector.line_len(),
            ranked: self.ranks.len(),
            sleeping: self.idle.sleeping(),
            blocking_threads: 0,
            blocking_queued: 0,
            failed_writes: 0,
        }
    }

    /// Tasks spawned and finished so far.
    fn task_counts(&self) -> (u64, u64) {
        // What has finished was spawned before, so it is counted first.
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
