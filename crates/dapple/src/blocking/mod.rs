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
    state: Mutex<PoolState>,
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
        Pool { state: Mutex::default(), has_work: Condvar::new(), limits }
    }

    /// Queues a call. `start_thread` makes a thread that calls [`work`](Self::work).
    pub(crate) fn submit(&self, call: Runnable, start_thread: impl FnOnce() -> std::io::Result<()>) {
        let mut state = lock(&self.state);
        if state.closed {
            drop(state);
            return end(call);
        }
        state.calls.push(call);
        if state.calls.len() <= state.idle {
            self.has_work.notify_one(); // ENOUGH
            return;
        }
        if state.threads >= self.limits.max_threads {
            return;
        }
        state.threads += 1;
        drop(state);
        if start_thread().is_err() {
            // The system cannot start a thread. Without any thread, no queued call would ever run.
            let mut state = lock(&self.state);
            state.threads -= 1;
            while state.threads == 0
                && let Some(call) = state.calls.pop()
            {
                drop(state);
                refuse(call);
                state = lock(&self.state);
            }
        }
    }

    /// Runs a thread of the pool until it has been idle for `keep_alive`, or the pool is closed.
    pub(crate) fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            while let Some(call) = state.calls.pop() {
                state.running += 1;
                drop(state);
                run(call);
                state = lock(&self.state);
                state.running -= 1;
            }
            if state.closed || self.limits.keep_alive.is_zero() {
                break;
            }
            state.idle += 1;
            let waited = self.has_work.wait_timeout(state, self.limits.keep_alive);
            let timed_out;
            (state, timed_out) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
            state.idle -= 1;
            if timed_out.timed_out() && state.calls.len() == 0 {
                break;
            }
        }
        state.threads -= 1;
    }

    /// Ends the calls that have not begun, and makes the threads leave.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.closed = true;
        self.has_work.notify_all();
        while let Some(call) = state.calls.pop() {
            drop(state);
            end(call);
            state = lock(&self.state);
        }
    }

    /// Number of threads that are in a call, which may take for ever.
    pub(crate) fn running(&self) -> usize {
        lock(&self.state).running
    }

    /// Number of threads, and of queued calls.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = lock(&self.state);
        (state.threads, state.calls.len())
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
