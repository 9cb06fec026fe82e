//! Stalls: how many there were, which tasks workers are stuck in, and reports about them.
//!
//! A stuck worker cannot report its task, and may never come back. So other threads look at the pointer to the task
//! that the worker's thread is running, which that thread writes anyway (`with_context`). The task may end meanwhile,
//! and its memory may be used for another. So they ask the slab for a reference to the task at that address, as a
//! walk over all tasks does.
//!
//! # Invariants
//!
//! * **THERE-WHILE-SEATED**: `CurrentTaskView` points into the memory of a thread only while that thread drives the
//!   worker. The pointer is read and cleared under its lock.

use std::time::Duration;

use super::Sched;
use super::worker::Worker;
use crate::context::{OfTask, with_context};
use crate::driver::clock::Time;
use crate::prim::{AtomicU64, Mutex, Ordering, Published, lock};
use crate::task::Task;
#[cfg(feature = "tracing")]
use crate::task::guarded::guarded;
use crate::world;

/// Most kinds of tasks whose stalls are reported. A program that gives each task a name of its own gets no more
/// reports after that.
#[cfg(feature = "tracing")]
const MOST_TOLD: usize = 256;

/// Stall counters of the monitor.
#[derive(Default)]
pub(super) struct Stalls {
    count: AtomicU64,
    longest: AtomicU64,
    relieved: AtomicU64,
    unrelieved: AtomicU64,
    told: Mutex<Told>,
}

/// Reports made so far.
#[derive(Default)]
struct Told {
    #[cfg(feature = "tracing")]
    kinds: std::collections::HashSet<String>,
    #[cfg(feature = "tracing")]
    no_spare: bool,
}

impl Stalls {
    /// Counts a stall, or updates how long it has taken.
    pub(super) fn note(&self, is_new: bool, stuck_for: Duration) {
        if is_new {
            self.count.fetch_add(1, Ordering::Relaxed);
        }
        let nanos = u64::try_from(stuck_for.as_nanos()).unwrap_or(u64::MAX);
        self.longest.fetch_max(nanos, Ordering::Relaxed);
    }

    /// Counts a spare that was sent.
    pub(super) fn note_relief(&self) {
        self.relieved.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a spare that was needed and could not be had.
    pub(super) fn note_no_spare(&self) {
        self.unrelieved.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    pub(super) fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest.load(Ordering::Relaxed))
    }

    pub(super) fn relieved(&self) -> u64 {
        self.relieved.load(Ordering::Relaxed)
    }

    pub(super) fn unrelieved(&self) -> u64 {
        self.unrelieved.load(Ordering::Relaxed)
    }

    /// Reports the task that a worker is stuck in, once for each kind.
    #[cfg(feature = "tracing")]
    pub(super) fn tell(&self, task: &Task, stuck_for: Duration) {
        let name = task.name();
        let mut told = lock(&self.told);
        if told.kinds.len() >= MOST_TOLD || !told.kinds.insert(name.clone()) {
            return;
        }
        drop(told);
        let (place, color) = (task.spawned_at(), task.color_id());
        report(move || {
            guarded(|| {
                tracing::warn!(
                    task = name,
                    color = %crate::task::ColorName(color),
                    spawned_at = place.map(tracing::field::display),
                    ?stuck_for,
                    "a task does not return from its poll and holds up its worker, and all of its color: put what \
                     blocks or computes for long into dapple::blocking, or split it with color.call or \
                     task::yield_now (told once for each kind of task)"
                );
            });
        });
    }

    #[cfg(not(feature = "tracing"))]
    pub(super) fn tell(&self, _task: &Task, _stuck_for: Duration) {}

    /// Reports once that a spare was needed and could not be had.
    #[cfg(feature = "tracing")]
    pub(super) fn report_no_spare(&self, most: usize) {
        if std::mem::replace(&mut lock(&self.told).no_spare, true) {
            return;
        }
        report(move || {
            guarded(|| {
                tracing::warn!(
                    max_spares = most,
                    "a worker is stuck, and no spare is left to replace it: what it has taken waits, and if all are \
                     stuck, so does everything; put what blocks into dapple::blocking, or raise max_spares (told once)"
                );
            });
        });
    }

    #[cfg(not(feature = "tracing"))]
    pub(super) fn report_no_spare(&self, _most: usize) {
        let _ = &self.told;
    }
}

/// Runs the code of a report, for the monitor: on a thread of its own, since a subscriber may block, and then the monitor
/// would notice no other stuck worker. There are few such threads: `MOST_TOLD`, and one.
#[cfg(feature = "tracing")]
fn report(tell: impl FnOnce() + Send + 'static) {
    use tracing::level_filters::LevelFilter;
    if world::is_simulated() {
        tell();
    } else if LevelFilter::current() >= LevelFilter::WARN {
        let thread = std::thread::Builder::new().name("dapple-report".to_owned());
        drop(thread.spawn(tell)); // without a thread there is no report; the stall has been counted
    }
}

/// View of the task that a worker's thread is running, for other threads. THERE-WHILE-SEATED
#[derive(Default)]
pub(super) struct CurrentTaskView {
    current: Mutex<Option<RunningPtr>>,
    /// Since when, in nanoseconds, the worker has been stuck, if it is stalled. 0 otherwise.
    stalled_since: AtomicU64,
}

struct RunningPtr(*const Published<OfTask>);

// SAFETY: any thread may read the atomic that it points to while that exists.
unsafe impl Send for RunningPtr {}

impl CurrentTaskView {
    /// This thread drives the worker from now on.
    pub(super) fn open(&self) {
        // Virtual threads share the thread-local storage of one thread.
        if !world::is_simulated() {
            *lock(&self.current) = Some(RunningPtr(with_context(|context| context.published_task())));
        }
    }

    /// This thread stops driving the worker.
    pub(super) fn close(&self) {
        *lock(&self.current) = None;
    }

    /// The address of the task that is being polled.
    fn current(&self) -> Option<usize> {
        let current = lock(&self.current);
        // SAFETY: THERE-WHILE-SEATED.
        let current = unsafe { &*current.as_ref()?.0 }.get();
        (!current.is_null()).then(|| current.addr())
    }

    /// Whether the worker seems to be in a task.
    pub(super) fn shows_task(&self) -> bool {
        world::is_simulated() || self.current().is_some()
    }

    /// Notes since when the worker is stalled, if it is. For the monitor.
    pub(super) fn set_stalled(&self, since: Option<Time>) {
        self.stalled_since.store(since.map_or(0, Time::nanos), Ordering::Relaxed);
    }
}

impl Sched {
    /// The task that a worker is stuck in, if it can be found.
    pub(super) fn task_of(&self, worker: &Worker) -> Option<Task> {
        let progress = worker.progress().0;
        let current = worker.task_view.current()?;
        let task = self.shared.task_at(current)?;
        // The worker may have gone on, and the memory may be used for another task.
        let is_it = worker.task_view.current() == Some(current) && worker.progress().0 == progress;
        is_it.then_some(task)
    }

    /// The tasks that workers are stuck in, and for how long so far.
    pub(crate) fn stalled(&self) -> Vec<(Task, Duration)> {
        let now = Time::now();
        let stalled = |worker: &Worker| {
            let since = worker.task_view.stalled_since.load(Ordering::Relaxed);
            let task = if since == 0 { None } else { self.task_of(worker) };
            task.map(|task| (task, Duration::from_nanos(now.nanos().saturating_sub(since))))
        };
        self.all_workers().filter_map(stalled).collect()
    }
}
