//! The loop of a worker's thread: pick, run, and sleep if there is nothing to run.

use std::time::Duration;

use super::Worker;
use crate::context::{SetAside, ThreadContext, with_context};
use crate::prim::{AbortOnUnwind, Ordering};
use crate::sched::Sched;
use crate::task::header::Runnable;

/// Most picks between two turns of the main color. Fewer if the picks take long.
const MAIN_EVERY: u64 = 16;
impl Sched {
    /// Makes this thread drive a worker until the guard is dropped. Once for each worker.
    pub(crate) fn enter_worker(&self, worker: usize) -> WorkerGuard<'_> {
        let aside = SetAside::new();
        let worker = self.worker(worker);
        with_context(|context| {
            context.drive(self.shared.whole(), std::ptr::from_ref(worker), &raw const worker.slab);
        });
        worker.task_view.open();
        WorkerGuard { sched: self, worker, aside: Some(aside) }
    }
}

/// The main color of `run`, which the thread of a worker runs beside the worker.
pub(crate) trait MainTurn {
    /// Whether a turn can be taken.
    fn is_ready(&self) -> bool;

    /// Takes a turn, if one can be taken.
    fn take_turn(&self);
}

/// The main color of a thread that has none.
struct NoMainTurn;

impl MainTurn for NoMainTurn {
    #[inline]
    fn is_ready(&self) -> bool {
        false
    }

    fn take_turn(&self) {}
}

/// The right to drive a worker. ONE-DRIVER
pub(crate) struct WorkerGuard<'a> {
    sched: &'a Sched,
    worker: &'a Worker,
    aside: Option<SetAside>,
}

impl WorkerGuard<'_> {
    /// Runs work until `until` returns true. Sleeps when there is none, for `limit` at a time. Without a limit, the
    /// thread that makes `until` true must notify the worker's driver.
    pub(crate) fn drive(&self, main: &impl MainTurn, limit: Option<Duration>, until: impl Fn() -> bool) {
        with_context(|context| self.drive_here(context, main, limit, until));
    }

    /// As `drive`, on a thread without a main color and without a limit.
    pub(crate) fn drive_alone(&self, until: impl Fn() -> bool) {
        self.drive(&NoMainTurn, None, until);
    }

    fn drive_here(
        &self,
        context: &ThreadContext,
        main: &impl MainTurn,
        limit: Option<Duration>,
        until: impl Fn() -> bool,
    ) {
        // A panic outside of a task is a defect of the runtime, and would leave tasks owned for ever.
        let abort = AbortOnUnwind("a worker panicked outside of any task");
        let (sched, worker) = (self.sched, self.worker);
        let mut until_main = 0;
        while !until() {
            if until_main == 0 && main.is_ready() {
                until_main = worker.picks_in_a_while(MAIN_EVERY);
                worker.found(sched);
                worker.counts.main_turns.add_one();
                main.take_turn();
                worker.look_soon();
            }
            let Some(runnable) = worker.pick(sched) else {
                until_main = 0;
                if main.is_ready() {
                    continue;
                }
                match worker.search(sched) {
                    Some(runnable) => worker.run(sched, context, runnable),
                    None => worker.sleep(sched, limit, || main.is_ready() || until()),
                }
                continue;
            };
            until_main = until_main.saturating_sub(1);
            worker.run(sched, context, runnable);
        }
        std::mem::forget(abort);
    }

    /// Whether the runtime has stopped, so that workers leave.
    pub(crate) fn is_stopped(&self) -> bool {
        self.sched.is_stopped()
    }
}

impl Drop for WorkerGuard<'_> {
    fn drop(&mut self) {
        self.worker.task_view.close();
        self.worker.retire(self.sched);
        self.sched.shared.slab.take_over(&self.worker.slab);
        drop(self.aside.take());
        self.sched.forgo(1);
    }
}

impl Worker {
    /// Runs a runnable that was found.
    #[inline]
    pub(super) fn run(&self, sched: &Sched, context: &ThreadContext, runnable: Runnable) {
        self.found(sched);
        self.counts.runs.add_one();
        if let Some(again) = runnable.run(context) {
            self.own.came_back.set(self.own.came_back.get() + 1);
            self.enqueue_back(sched, again, self.next.load(Ordering::Relaxed).is_null());
        }
    }
}
