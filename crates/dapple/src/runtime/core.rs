//! The parts of a runtime, shared by its threads and its handles.

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
use crate::task::runtime_shared::WholeRuntime;
use crate::world;

#[repr(C)]
pub(crate) struct Core {
    pub(crate) sched: Sched,
    pub(crate) pool: Pool,
    pub(super) main_colors: MainColors,
    /// How files are read and written.
    pub(crate) files: Choice,
    /// Threads of workers, spares and the monitor, except those known to have ended.
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Threads of the pool, except those known to have ended.
    pool_threads: Mutex<Vec<JoinHandle<()>>>,
    pub(super) has_ended: AtomicBool,
    thread_name: Box<str>,
    stack_size: Option<usize>,
}

// SAFETY: it is `repr(C)` and begins with the scheduler, and only `Core::new` makes one. WHOLE
unsafe impl WholeRuntime for Core {}

impl Core {
    /// Makes a core. No thread drives its workers yet.
    pub(crate) fn new(builder: &RuntimeBuilder) -> io::Result<Arc<Core>> {
        let mut pool = builder.pool.clone();
        if world::is_simulated() {
            // Starting a virtual thread costs little, so none waits for later calls.
            pool = PoolLimits { keep_alive: Duration::ZERO, ..pool };
        }
        let core = Arc::new(Core {
            sched: Sched::new(&builder.sched_settings(), super::grace::is_left_alone)?,
            pool: Pool::new(pool),
            main_colors: MainColors::default(),
            files: Choice::new(builder.files)?,
            threads: Mutex::default(),
            pool_threads: Mutex::default(),
            has_ended: AtomicBool::new(false),
            thread_name: builder.thread_name.as_deref().unwrap_or("dapple").into(),
            stack_size: builder.stack_size,
        });
        core.sched.settle(&core);
        Ok(core)
    }

    /// Starts threads for the given workers, and the monitor if a worker could hold up other work. If a thread cannot
    /// be started, those that were started leave.
    pub(super) fn start_workers(self: &Arc<Core>, workers: Range<usize>) -> io::Result<()> {
        let mut started = 0;
        self.start_all(workers.clone(), &mut started).inspect_err(|_| {
            self.sched.stop();
            self.sched.forgo(workers.len() - started);
        })
    }

    fn start_all(self: &Arc<Core>, workers: Range<usize>, started: &mut usize) -> io::Result<()> {
        // A worker that `run` drives, alone and without spares, cannot hold up other workers.
        let is_alone = workers == (1..1) && !self.sched.has_spares();
        for index in workers {
            let core = self.clone();
            self.start_thread(&self.threads, &index.to_string(), move || {
                let guard = core.sched.enter_worker(index);
                guard.drive_alone(|| guard.is_stopped());
            })?;
            *started += 1;
        }
        if !is_alone {
            let core = self.clone();
            self.start_thread(&self.threads, "monitor", move || {
                // A foreign waker that it calls may spawn a task, or poll a future that sleeps.
                with_context(|context| context.enter_runtime(core.sched.shared.whole()));
                core.sched.watch(|spare| core.start_spare(spare));
                with_context(|context| context.leave_runtime());
            })?;
        }
        Ok(())
    }

    /// Starts the thread of a spare, which owns its worker slot already.
    fn start_spare(self: &Arc<Core>, spare: usize) -> io::Result<()> {
        let core = self.clone();
        self.start_thread(&self.threads, &format!("spare-{spare}"), move || core.sched.run_spare(spare))
    }

    /// Another reference to this core.
    pub(super) fn counted(&self) -> Arc<Core> {
        self.sched.counted().downcast().expect("a scheduler is settled in its core")
    }

    pub(super) fn start_pool_thread(&self) -> io::Result<()> {
        let core = self.counted();
        self.start_thread(&self.pool_threads, "blocking", move || {
            with_context(|context| context.enter_runtime(core.sched.shared.whole()));
            core.pool.work();
            with_context(|context| context.leave_runtime());
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

    /// Waits for all threads to end, but not past `deadline`, not for the calling thread, and not for threads of the
    /// pool that are in a call: a call may take for ever.
    pub(super) fn join_threads(&self, deadline: Time) {
        // The monitor, whose thread is one of these, may start another thread until it ends.
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
            let running = self.pool.running(); // read before `is_finished`: a thread leaves its call before it ends
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
        let shared = with_context(|context| context.runtime::<RuntimeShared>());
        // SAFETY: it is set while this thread is in the runtime, which it does not leave in `f`.
        unsafe { shared.as_ref() }.map(|shared| f(Core::of(shared)))
    }

    pub(crate) fn runtime_shared(&self) -> &RuntimeShared {
        &self.sched.shared
    }
}

fn is_here(thread: &JoinHandle<()>) -> bool {
    thread.thread().id() == thread::current().id()
}

/// Joins a thread if it has ended.
fn join_finished(thread: JoinHandle<()>) {
    if thread.is_finished() {
        // It has nothing left to do, and panics are caught at the task.
        let ended = thread.join();
        debug_assert!(ended.is_ok(), "a thread of the runtime panicked outside of any task");
    }
}
