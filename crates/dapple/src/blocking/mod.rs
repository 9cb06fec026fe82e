//! The pool for blocking calls: threads that are started when needed and end when idle.
//!
//! # Invariants
//!
//! * **ENOUGH**: for each queued call there is an idle thread that was notified or a thread that is starting, or the
//!   pool is at its limit (or at the system's). Each thread that becomes free looks at the queue.
//! * **BEGUN-OR-ENDED**: a queued call is run, or ended when the pool closes.

#[expect(unsafe_code, reason = "reads the part of a cell that belongs to its kind")]
mod kind;

use std::time::Duration;

pub(crate) use self::kind::Blocking;
use crate::context::{SetAside, with_context};

use crate::prim::{Condvar, Mutex, lock};
use crate::task::poll::refuse;
use crate::task::queue::RunnableQueue;
use crate::task::state::ABORTED;
use crate::task::{Runnable, RuntimeShared};

/// Limits of a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolLimits {
    pub(crate) max_threads: usize,
    pub(crate) keep_alive: Duration,
}

impl Default for PoolLimits {
    fn default() -> PoolLimits {
        PoolLimits { max_threads: 512, keep_alive: Duration::from_secs(10) }
    }
}

pub(crate) struct Pool {
    line: Mutex<PoolState>,
    has_work: Condvar,
    limits: PoolLimits,
}

#[derive(Default)]
struct PoolState {
    calls: RunnableQueue,
    threads: usize,
    idle: usize,
    /// Threads that are in a call.
    running: usize,
    closed: bool,
}

impl Pool {
    pub(crate) fn new(limits: PoolLimits) -> Pool {
        Pool { line: Mutex::default(), has_work: Condvar::new(), limits }
    }

    /// Queues a call. `start_thread` makes a thread that calls [`work`](Self::work).
    pub(crate) fn submit(&self, call: Runnable, start_thread: impl FnOnce() -> std::io::Result<()>) {
        let mut line = lock(&self.line);
        if line.closed {
            drop(line);
            return end(call);
        }
        line.calls.push(call);
        if line.calls.len() <= line.idle {
            self.has_work.notify_one(); // ENOUGH
            return;
        }
        if line.threads >= self.limits.max_threads {
            return;
        }
        line.threads += 1;
        drop(line);
        if start_thread().is_err() {
            // The system cannot start a thread. Without any thread, no queued call would ever run.
            let mut line = lock(&self.line);
            line.threads -= 1;
            while line.threads == 0
                && let Some(call) = line.calls.pop()
            {
                drop(line);
                refuse(call);
                line = lock(&self.line);
            }
        }
    }

    /// Runs a thread of the pool until it has been idle for `keep_alive`, or the pool is closed.
    pub(crate) fn work(&self) {
        let mut line = lock(&self.line);
        loop {
            while let Some(call) = line.calls.pop() {
                line.running += 1;
                drop(line);
                run(call);
                line = lock(&self.line);
                line.running -= 1;
            }
            if line.closed || self.limits.keep_alive.is_zero() {
                break;
            }
            line.idle += 1;
            let waited = self.has_work.wait_timeout(line, self.limits.keep_alive);
            let timed_out;
            (line, timed_out) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
            line.idle -= 1;
            if timed_out.timed_out() && line.calls.len() == 0 {
                break;
            }
        }
        line.threads -= 1;
    }

    /// Ends the calls that have not begun, and makes the threads leave.
    pub(crate) fn close(&self) {
        let mut line = lock(&self.line);
        line.closed = true;
        self.has_work.notify_all();
        while let Some(call) = line.calls.pop() {
            drop(line);
            end(call);
            line = lock(&self.line);
        }
    }

    /// Number of threads that are in a call, which may take for ever.
    pub(crate) fn running(&self) -> usize {
        lock(&self.line).running
    }

    /// Number of threads, and of queued calls.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let line = lock(&self.line);
        (line.threads, line.calls.len())
    }
}

/// Ends a call that will not begin, because the runtime is ending. This thread may be in the middle of another task.
fn end(call: Runnable) {
    let runtime = with_context(|context| context.runtime::<RuntimeShared>());
    let _aside = SetAside::new();
    with_context(|context| context.enter_runtime(runtime));
    call.header().state.mark(ABORTED);
    run(call);
}

fn run(call: Runnable) {
    let again = with_context(|context| call.run(context)); // panics are caught at the task
    debug_assert!(again.is_none(), "a closure does not wait");
}
