//! What a runtime consists of, shared by its threads, its handles and whatever outlives them.
//!
//! # Invariants
//!
//! * **WHOLE**: the home is the first field of the scheduler, that the first of the core, and the
//!   pointer that tasks have of their home comes from the core's `Arc`. So the hooks may go back
//!   from the one to the other.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::builder::RuntimeBuilder;
use super::main_colors::MainColors;
use crate::blocking::{Pool, PoolLimits};
use crate::context::with_context;
use crate::driver::clock::Time;
use crate::driver::uring::backend::Choice;
use crate::prim::{AtomicBool, Mutex, lock};
use crate::sched::Sched;
use crate::task::RuntimeShared;
use crate::task::runtime_shared::Hooks;
use crate::world;

#[repr(C)]
pub(crate) struct Core {
    pub(crate) sched: Sched,
    pub(crate) pool: Pool,
    pub(super) mains: MainColors,
    /// How files are read and written.
    pub(crate) files: Choice,
    /// The threads that were started, but for those known to have ended: of workers, spares and the monitor.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The same of the pool.
    pool_threads: Mutex<Vec<JoinHandle<()>>>,
    pub(super) has_ended: AtomicBool,
    thread_name: Box<str>,
    stack_size: Option<usize>,
}

static HOOKS: Hooks = Hooks {
    enqueue: |home, runnable, place| {
        // SAFETY: WHOLE.
        unsafe { &*home.cast::<Sched>() }.enqueue(runnable, place);
    },
    enqueue_blocking: |home, runnable| {
        // SAFETY: WHOLE; whoever submits a call keeps the core alive while it does.
        let core = unsafe { &*home.cast::<Core>() };
        core.pool.submit(runnable, || core.start_pool_thread());
    },
    // SAFETY: WHOLE; the caller runs one of its tasks.
    is_left_alone: |home, task, stays| super::grace::is_left_alone(unsafe { &*home }, task, stays),
    // SAFETY: WHOLE; the core is alive when it is called.
    keep: |home| unsafe { Arc::increment_strong_count(home.cast::<Core>()) },
    // SAFETY: gives back what `keep` took.
    retire: |home| unsafe { Arc::decrement_strong_count(home.cast::<Core>()) },
};

impl Core {
    /// A core whose workers nobody drives yet.
    pub(crate) fn new(builder: &RuntimeBuilder) -> io::Result<Arc<Core>> {
        let mut pool = builder.pool.clone();
        if world::is_simulated() {
            // A virtual thread is had at once: none waits for calls that may come.
            pool = PoolLimits { keep_alive: Duration::ZERO, ..pool };
        }
        let core = Arc::new(Core {
            sched: Sched::new(&builder.sched_settings(), &HOOKS)?,
            pool: Pool::new(pool),
            mains: MainColors::default(),
            files: Choice::new(builder.files)?,
            threads: Mutex::default(),
            pool_threads: Mutex::default(),
            has_ended: AtomicBool::new(false),
            thread_name: builder.thread_name.as_deref().unwrap_or("dapple").into(),
            stack_size: builder.stack_size,
        });
        RuntimeShared::settle(Arc::as_ptr(&core).cast());
        Ok(core)
    }

    /// Starts threads for the given workers, and the monitor if there is somebody whom a worker could
    /// hold up. If one cannot be had, those that were started leave.
    pub(super) fn start_workers(self: &Arc<Core>, workers: Range<usize>) -> io::Result<()> {
        let mut started = 0;
        self.start_all(workers.clone(), &mut started).inspect_err(|_| {
            self.sched.stop();
            self.sched.forgo(workers.len() - started);
        })
    }

    fn start_all(self: &Arc<Core>, workers: Range<usize>, started: &mut usize) -> io::Result<()> {
        // A worker that `run` drives, alone and without spares, has nobody beside it whom it could hold up.
        let is_alone = workers == (1..1) && !self.sched.has_spares();
        for index in workers {
            let core = self.clone();
            self.start_thread(&self.threads, &index.to_string(), move || {
                let seat = core.sched.take_seat(index);
                seat.drive_alone(|| seat.is_stopped());
            })?;
            *started += 1;
        }
        if !is_alone {
            let core = self.clone();
            self.start_thread(&self.threads, "monitor", move || {
                core.sched.watch(|spare| core.start_spare(spare))
            })?;
        }
        Ok(())
    }

    /// Starts the thread of a spare, which is in its place at a post already.
    fn start_spare(self: &Arc<Core>, spare: usize) -> io::Result<()> {
        let core = self.clone();
        self.start_thread(&self.threads, &format!("spare-{spare}"), move || core.sched.run_spare(spare))
    }

    /// Another reference to it.
    pub(super) fn counted(&self) -> Arc<Core> {
        let whole = self.sched.home.whole().cast::<Core>();
        // SAFETY: WHOLE; the core is alive, since we are called on it.
        unsafe { Arc::increment_strong_count(whole) };
        // SAFETY: the reference was just counted.
        unsafe { Arc::from_raw(whole) }
    }

    fn start_pool_thread(&self) -> io::Result<()> {
        let core = self.counted();
        self.start_thread(&self.pool_threads, "blocking", move || {
            with_context(|here| here.enter_runtime(core.sched.home.whole()));
            core.pool.work();
            with_context(|here| here.leave_runtime());
        })
    }

    fn start_thread(
        &self,
        threads: &Mutex<Vec<JoinHandle<()>>>,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        if world::is_simulated() {
            world::with(|world| world.start_thread(work));
            return Ok(());
        }
        let name = format!("{}-{name}", self.thread_name);
        let builder = thread::Builder::new().name(name.clone());
        let builder = match self.stack_size {
            Some(size) => builder.stack_size(size),
            None => builder,
        };
        let cannot =
            |error: io::Error| io::Error::new(error.kind(), format!("cannot start thread {name}: {error}"));
        let thread = builder.spawn(work).map_err(cannot)?;
        let mut threads = lock(threads);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(())
    }

    /// Waits for all threads to end, but not past `deadline`, not for itself, and not for threads of the pool that are in a
    /// call: nothing tells how long a call takes.
    pub(super) fn join_threads(&self, deadline: Time) {
        // The monitor, which is one of them, may start another one until it ends.
        let next = || lock(&self.threads).pop();
        for thread in std::iter::from_fn(next) {
            while !thread.is_finished() && !is_here(&thread) && Time::now() < deadline {
                thread::sleep(Duration::from_micros(50));
            }
            join_finished(thread);
        }
        let mut threads = std::mem::take(&mut *lock(&self.pool_threads));
        threads.retain(|thread| !is_here(thread));
        loop {
            let running = self.pool.running(); // before the look at who has ended: a thread ends its call first
            threads.extract_if(.., |thread| thread.is_finished()).for_each(join_finished);
            if threads.len() <= running || Time::now() >= deadline {
                return;
            }
            thread::sleep(Duration::from_micros(50));
        }
    }

    /// Calls `f` with the core of the runtime that this thread is in, if it is in one.
    #[inline]
    pub(crate) fn current<R>(f: impl FnOnce(&Core) -> R) -> Option<R> {
        let home = with_context(|here| here.runtime::<RuntimeShared>());
        // SAFETY: it is set while this thread is in the runtime, which it does not leave in `f`.
        let whole = unsafe { home.as_ref() }?.whole();
        // SAFETY: WHOLE.
        Some(f(unsafe { &*whole.cast::<Core>() }))
    }

    /// The core around a home.
    pub(super) fn of(home: &RuntimeShared) -> &Core {
        // SAFETY: WHOLE.
        unsafe { &*home.whole().cast::<Core>() }
    }

    pub(crate) fn runtime_shared(&self) -> &RuntimeShared {
        &self.sched.home
    }
}

fn is_here(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() == thread::current().id()
}

/// Joins a thread if it has ended.
fn join_finished(thread: JoinHandle<()>) {
    if thread.is_finished() {
        // It has nothing left to do, and its panics are caught at the task.
        let ended = thread.join();
        debug_assert!(ended.is_ok(), "a thread of the runtime panicked outside of any task");
    }
}
