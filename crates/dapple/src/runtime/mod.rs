//! A runtime: building, entering, inspecting and ending it.
//!
//! [`dapple::run`](crate::run) is enough for most programs. For settings, for several runtimes, or to shut down with a time
//! limit, build a [`Runtime`]. A [`Handle`] uses a runtime from other threads.
//!
//! # Inside
//!
//! ```text
//! core      shared by its threads; builder: the settings; on_pool: spawning on the pool for blocking calls
//! block_on  the main color: run, block_on; main_colors: those that are open
//! shutdown  cancel, wait, drop, report; dump: every task by name
//! grace     the time that a cancelled task is given
//! ```

mod block_on;
mod builder;
mod core;
mod dump;
mod grace;
mod main_colors;
mod on_pool;
mod shutdown;

use std::fmt;
use std::hash::Hash;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use self::block_on::run;
pub(crate) use self::block_on::{assert_not_on_worker, run_on, run_with};
pub use self::builder::RuntimeBuilder as Builder;
pub(crate) use self::builder::STALL_AFTER;
pub use self::dump::{Dump, TaskInfo, TaskState};
pub(crate) use self::main_colors::{has_stopped, in_main_color};
pub(crate) use self::on_pool::OnPool;
pub use self::shutdown::Shutdown;
pub use crate::sched::metrics::{Metrics, WorkerMetrics};
pub use crate::task::panics::PanicReport;

pub(crate) use self::core::Core;
use crate::context::require;
#[cfg(feature = "fs")]
use crate::driver::uring::backend::Files;
use crate::spawn::submit::{FreshColor, submit};
use crate::task::header::Meta;
use crate::task::poll::ClosureFuture;
use crate::task::runtime_shared::WholeRuntime;
use crate::{Color, JoinHandle};

/// A runtime: its workers, its pool for blocking calls, and all tasks spawned on it.
///
/// [`dapple::run`](crate::run) is enough for most programs. Make a `Runtime` for settings, for several runtimes in
/// one process, and for threads that come and go.
///
/// Dropping a runtime drops its tasks where they wait, and waits up to a second for its workers to return from the
/// polls that they are in. It does not wait for [`blocking`](crate::blocking()) calls that have begun: they go on,
/// each on its thread. Inside one of its own tasks it does not wait. [`shutdown`](Runtime::shutdown) lets tasks end
/// by themselves.
///
/// # Examples
///
/// ```
/// let rt = dapple::Runtime::builder().workers(2).thread_name("web").build()?;
/// let sum = rt.block_on(async { dapple::spawn(async { 1 + 2 }).await });
/// assert_eq!(sum.unwrap(), 3);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Runtime {
    handle: Handle,
}

impl Runtime {
    /// Makes a runtime with default settings.
    ///
    /// # Errors
    ///
    /// If the system cannot start a thread.
    pub fn new() -> io::Result<Runtime> {
        Runtime::builder().build()
    }

    /// A builder with default settings.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::time::Duration;
    ///
    /// let runtime = dapple::Runtime::builder()
    ///     .workers(2)
    ///     .thread_name("office")
    ///     .stall_after(Duration::from_millis(20))
    ///     .build()
    ///     .unwrap();
    /// assert_eq!(runtime.metrics().workers.len(), 2);
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn of(core: Arc<Core>) -> Runtime {
        Runtime { handle: Handle { core } }
    }

    /// A handle to the runtime, which can be cloned and sent anywhere.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::thread;
    ///
    /// let runtime = dapple::Runtime::new().unwrap();
    /// let handle = runtime.handle();
    /// let computed = thread::spawn(move || handle.block_on(async { dapple::spawn(async { 7 }).await.unwrap() }));
    /// assert_eq!(computed.join().unwrap(), 7);
    /// ```
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs a future on this thread until it is done, in the main color; see [`Handle::block_on`].
    ///
    /// # Examples
    ///
    /// ```
    /// let runtime = dapple::Runtime::new().unwrap();
    /// let name = String::from("bach");
    /// assert_eq!(runtime.block_on(async { name.len() }), 4); // may borrow, and need not be `Send`
    /// ```
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.handle.block_on(future)
    }

    /// Starts a task with a color of its own; see [`Handle::spawn`].
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn(future)
    }

    /// Returns a snapshot of the runtime's counters: tasks, workers, stalls, panics.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.handle.metrics()
    }

    /// How files are read and written: by io_uring, or by the pool for blocking calls; see [`Handle::files`].
    #[cfg(feature = "fs")]
    #[must_use]
    pub fn files(&self) -> Files {
        self.handle.files()
    }

    /// Returns all tasks, each with its name, color, state and wait. Use it to find out why a program hangs.
    #[must_use]
    pub fn dump(&self) -> Dump {
        self.handle.dump()
    }

    /// Ends the runtime: cancels all tasks, gives them until `timeout` to end by themselves, then
    /// drops them.
    ///
    /// Returns once all tasks have ended, or at the timeout. [`blocking`](crate::blocking()) calls that are running
    /// by then are left behind on their threads, and named in the result. So are tasks that do not return from their
    /// polls, after the workers had up to a second more. With a timeout of zero no task gets time to end by itself.
    /// Inside a task of the runtime it does not wait: all tasks that have not ended are dropped and named.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::time::Duration;
    ///
    /// let runtime = dapple::Runtime::new().unwrap();
    /// runtime.spawn(async { dapple::time::sleep(Duration::from_secs(3600)).await }).detach();
    /// let left = runtime.shutdown(Duration::from_secs(5)); // cancels, and waits for at most five seconds
    /// assert!(left.is_clean());
    /// ```
    pub fn shutdown(self, timeout: Duration) -> Shutdown {
        self.handle.core.shut_down(timeout)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.handle.core.end();
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime").finish_non_exhaustive()
    }
}

/// A handle to a runtime, for threads and code outside of its tasks: it spawns, blocks on futures, and reads counters.
///
/// A handle does not keep the runtime from ending. If a task is spawned after that end,
/// [`is_gone`](crate::JoinError::is_gone) holds for the error of its [`JoinHandle`].
#[derive(Clone)]
pub struct Handle {
    core: Arc<Core>,
}

impl Handle {
    /// The current runtime.
    ///
    /// # Panics
    ///
    /// Outside of a runtime: anywhere but in a task, a [`blocking`](crate::blocking()) call,
    /// [`dapple::run`](crate::run) or [`block_on`](Handle::block_on).
    ///
    /// # Examples
    ///
    /// ```
    /// let spawned = dapple::run(async { dapple::Handle::current().metrics().spawned });
    /// assert_eq!(spawned, 1);
    /// ```
    #[must_use]
    #[track_caller]
    pub fn current() -> Handle {
        Handle { core: Core::of(require("Handle::current()", "")).counted() }
    }

    /// Spawns a task with a color of its own, from any thread. Inside of a task, [`spawn`](crate::spawn()) does the same.
    ///
    /// If the runtime has ended, [`is_gone`](crate::JoinError::is_gone) holds for the error of the handle.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::thread;
    ///
    /// dapple::run(async {
    ///     let handle = dapple::Handle::current();
    ///     let task = thread::spawn(move || handle.spawn(async { 7 })).join().unwrap(); // from a thread without a runtime
    ///     assert_eq!(task.await.unwrap(), 7);
    /// });
    /// ```
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        submit(FreshColor(self.core.runtime_shared()), future, Meta::of_caller())
    }

    /// Calls `f` on a thread where it may block; see [`blocking`](crate::blocking()).
    ///
    /// # Cancellation
    ///
    /// As [`blocking`](crate::blocking()).
    #[track_caller]
    pub fn blocking<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        submit(OnPool(&self.core), ClosureFuture::new(f), Meta::of_caller())
    }

    /// Runs `future` on this thread, in a main color of its own, until it is done.
    ///
    /// The future need not be `Send`. Tasks that it spawns with [`spawn_local`](crate::spawn_local) run on this
    /// thread too. Those that are left when the future is done are cancelled, may run until they wait again, and are
    /// dropped. Calls may be nested on a thread that is not a worker.
    ///
    /// # Panics
    ///
    /// On a worker, whose other tasks would have to wait: await the future there, or move the call into
    /// [`blocking`](crate::blocking()). If the runtime has ended. If the future panics.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        block_on::block_on(&self.core, future)
    }

    /// A new color of this runtime.
    ///
    /// # Panics
    ///
    /// If the runtime has ended.
    #[must_use]
    pub fn color(&self) -> Color {
        Color::new_in(self.core.runtime_shared()).expect("the runtime has ended")
    }

    /// The color of a key in this runtime; see [`Color::keyed`].
    ///
    /// # Panics
    ///
    /// If the runtime has ended.
    #[must_use]
    pub fn keyed_color(&self, key: &(impl Hash + ?Sized)) -> Color {
        Color::keyed_in(self.core.runtime_shared(), key).expect("the runtime has ended")
    }

    /// Returns a snapshot of the runtime's counters: tasks, workers, stalls, panics.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let mut metrics = self.core.sched.metrics();
        (metrics.blocking_threads, metrics.blocking_queued) = self.core.pool.counts();
        metrics.failed_writes = self.core.files.failures.count();
        metrics
    }

    /// How files are read and written: [`Files::Ring`] or [`Files::Pool`]. This is decided at the first call, or with
    /// the first file, and then reported to `tracing` (with that feature). Needs the feature `fs`.
    #[cfg(feature = "fs")]
    #[must_use]
    pub fn files(&self) -> Files {
        self.core.files.in_use(self.core.sched.driver_here())
    }

    /// Returns all tasks, each with its name, color, state and wait. Use it to find out why a program hangs.
    #[must_use]
    pub fn dump(&self) -> Dump {
        Dump::of(self.core.runtime_shared())
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").finish_non_exhaustive()
    }
}
