//! What the scheduler has done so far, as plain numbers.

use super::Sched;

/// A snapshot of a runtime's counters. Taken without stopping anybody, so the numbers need not fit
/// together exactly.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// One for each worker.
    pub workers: Vec<WorkerMetrics>,
    /// Tasks spawned so far, blocking calls included.
    pub spawned: u64,
    /// Tasks that have ended, in whatever way.
    pub finished: u64,
    /// Tasks that a [`Limit`](super::Limit) has refused before they began.
    pub refused: u64,
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
        let workers = self.workers.iter().map(|worker| WorkerMetrics {
            runs: worker.counts.runs.get(),
            steals: worker.counts.steals.get(),
            stolen: worker.counts.stolen.get(),
            sleeps: worker.counts.sleeps.get(),
            overflows: worker.counts.overflows.get(),
            queued: worker.queued(self),
        });
        Metrics {
            workers: workers.collect(),
            spawned,
            finished,
            refused: self.home.refused(),
            shared_line: self.injector.line_len(),
            ranked: self.ranks.len(),
            sleeping: self.idle.sleeping(),
            blocking_threads: 0,
            blocking_queued: 0,
        }
    }

    /// Tasks spawned and finished so far.
    fn task_counts(&self) -> (u64, u64) {
        // What has finished was spawned before, so it is counted first.
        let finished: u64 = self.workers.iter().map(|worker| worker.slab.finished.get()).sum();
        let finished = finished + self.home.foreign_counts().1;
        let spawned: u64 = self.workers.iter().map(|worker| worker.slab.spawned.get()).sum();
        (spawned + self.home.foreign_counts().0, finished)
    }

    /// Tasks that exist.
    pub(crate) fn alive(&self) -> u64 {
        let (spawned, finished) = self.task_counts();
        spawned - finished
    }
}
