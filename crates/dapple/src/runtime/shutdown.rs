//! The end of a runtime: cancel, wait, drop, report.
//!
//! ```text
//! running --cancel_all--> cancelling --stop--> stopped: workers leave, one by one;
//!                                              the last ends the tasks that are left (LAST-OUT in `sched`)
//! ```

use std::fmt;
use std::time::Duration;

use super::core::Core;
use super::dump::{Dump, TaskInfo};
use crate::context::with_context;
use crate::driver::clock::Time;
use crate::prim::{Ordering, heavy_fence};
use crate::task::Task;
use crate::task::runtime_shared::RuntimePhase;
use crate::world;

/// How long to wait for threads to end, beyond the caller's timeout.
const LEAVE: Duration = Duration::from_secs(if cfg!(miri) { 60 } else { 1 }); // Miri is slow

/// Report of a shutdown: the tasks that were still running.
///
/// # Examples
///
/// ```
/// use dapple::time::Duration;
///
/// let runtime = dapple::Runtime::new().unwrap();
/// runtime.spawn(async { dapple::time::sleep(Duration::from_secs(3600)).await }).detach();
/// let shutdown = runtime.shutdown(Duration::from_secs(5));
/// assert!(shutdown.is_clean()); // the sleep was cancelled, and the task ended
/// for task in shutdown.still_running {
///     eprintln!("{} did not end in time", task.name);
/// }
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Shutdown {
    /// Tasks that had not ended by the deadline. They were dropped then, except blocking calls and tasks that did not
    /// return from a poll, which go on until they return.
    pub still_running: Vec<TaskInfo>,
    /// Tasks with a [`Limit`](crate::limit::Limit) that had not begun when the shutdown began, and were refused.
    pub refused: u64,
}

impl Shutdown {
    /// Whether all tasks ended by themselves in time.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.still_running.is_empty()
    }
}

impl fmt::Display for Shutdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.still_running.len() {
            0 => f.write_str("all tasks ended in time"),
            1 => write!(f, "1 task was still running: {}", self.still_running[0]),
            n => {
                write!(f, "{n} tasks were still running:")?;
                self.still_running.iter().try_for_each(|task| write!(f, "\n  {task}"))
            }
        }
    }
}

impl Core {
    /// Cancels all tasks, and all that are spawned from now on.
    pub(super) fn cancel_all(&self) {
        self.runtime_shared().enter_phase(RuntimePhase::Cancelling);
        heavy_fence(); // CANCEL-OR-SEE in `task::cell`
        self.runtime_shared().each_task(|task: Task| task.cancel());
    }

    pub(super) fn shut_down(&self, timeout: Duration) -> Shutdown {
        // A deadline that overflows the clock counts as none.
        let deadline = Time::now().checked_add(timeout);
        let is_over = || deadline.is_some_and(|deadline| Time::now() >= deadline);
        let refused_before = self.runtime_shared().refused();
        self.cancel_all();
        // A caller in a task of this runtime, or in a `block_on`, must not wait for itself, and a worker that waits
        // would keep its tasks from ending.
        let inside = with_context(|context| std::ptr::eq(context.runtime(), self.runtime_shared()));
        let mut pause = Duration::from_micros(50);
        while !self.sched.is_here() && self.sched.alive() > u64::from(inside) && !is_over() {
            world::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(5));
        }
        let still_running =
            if self.sched.alive() > 0 { Dump::of(self.runtime_shared()).tasks } else { Vec::new() };
        self.end();
        Shutdown { still_running, refused: self.runtime_shared().refused() - refused_before }
    }

    /// Stops the workers and the pool, once. Waits for their threads for a short time, unless this thread is a
    /// worker. Does not wait for blocking calls that have begun.
    pub(super) fn end(&self) {
        if self.has_ended.swap(true, Ordering::AcqRel) {
            return;
        }
        let deadline = Time::now().later(LEAVE);
        self.sched.stop();
        self.pool.close();
        if !self.sched.is_here() {
            self.sched.wait_drained(LEAVE);
            self.join_threads(deadline);
        }
    }
}
