//! Settings of a runtime.

use std::io;
use std::time::Duration;

use super::Runtime;
use super::core::Core;
use crate::blocking::PoolLimits;
use crate::driver::uring::backend::Files;
use crate::sched::{Chosen, Policy, Priority, SchedSettings};
use crate::task::panics::{OnPanic, PanicReport};
use crate::world;

/// Builds a [`Runtime`] with settings of its own: the number of workers, limits on threads, a hook for panics. Make one
/// by [`Runtime::builder`], which has an example.
#[derive(Clone, Debug)]
#[must_use = "call `.build()`"]
pub struct RuntimeBuilder {
    workers: Option<usize>,
    pub(super) thread_name: Option<String>,
    pub(super) stack_size: Option<usize>,
    pub(super) pool: PoolLimits,
    pub(super) files: Files,
    seed: Option<u64>,
    policy: Chosen,
    events: Priority,
    stall_after: Duration,
    max_spares: usize,
    on_panic: OnPanic,
}

impl Default for RuntimeBuilder {
    fn default() -> RuntimeBuilder {
        RuntimeBuilder {
            workers: None,
            thread_name: None,
            stack_size: None,
            pool: PoolLimits::default(),
            files: Files::default(),
            seed: None,
            policy: Chosen::default(),
            events: Priority::default(),
            stall_after: STALL_AFTER,
            max_spares: MAX_SPARES,
            on_panic: OnPanic::default(),
        }
    }
}

/// Defaults: when a worker counts as stalled, and how many spares there may be.
pub(crate) const STALL_AFTER: Duration = Duration::from_millis(if cfg!(miri) { 10_000 } else { 10 }); // Miri is slow
const MAX_SPARES: usize = 64;

/// A larger number of spares is rejected as a mistake.
const MOST_SPARES: usize = 1 << 14;

/// A larger number of workers is rejected as a mistake.
const MAX_WORKERS: usize = 1 << 15;

impl RuntimeBuilder {
    /// Sets how many workers run tasks. By default the number of processors that this process may use, by its
    /// affinity and its cgroup.
    pub fn workers(mut self, workers: usize) -> RuntimeBuilder {
        self.workers = Some(workers);
        self
    }

    /// Sets the prefix of thread names: `name-0`, `name-1`, ..., `name-blocking`. By default `dapple`.
    pub fn thread_name(mut self, name: impl Into<String>) -> RuntimeBuilder {
        self.thread_name = Some(name.into());
        self
    }

    /// Sets the stack size of the runtime's threads, in bytes. By default the system's.
    pub fn thread_stack_size(mut self, bytes: usize) -> RuntimeBuilder {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets how many threads the pool for blocking calls may have. By default 512.
    pub fn max_blocking_threads(mut self, threads: usize) -> RuntimeBuilder {
        self.pool.max_threads = threads;
        self
    }

    /// Sets how long an idle thread of the pool for blocking calls stays. By default 10 seconds.
    pub fn blocking_keep_alive(mut self, time: Duration) -> RuntimeBuilder {
        self.pool.keep_alive = time;
        self
    }

    /// Sets how files are read and written: by io_uring, or by the pool for blocking calls. By default by io_uring if
    /// the system allows it; [`Runtime::files`] says which is in use. Needs the feature `fs`.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::fs::{self, Files};
    ///
    /// let rt = dapple::Runtime::builder().files(Files::Pool).build()?;
    /// assert_eq!(rt.files(), Files::Pool);
    /// assert!(rt.block_on(fs::try_exists("/"))?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "fs")]
    pub fn files(mut self, files: Files) -> RuntimeBuilder {
        self.files = files;
        self
    }

    /// Sets the seed of random scheduling decisions, such as which worker to steal from.
    pub fn random_seed(mut self, seed: u64) -> RuntimeBuilder {
        self.seed = Some(seed);
        self
    }

    /// Sets the policy: which worker a runnable lane goes to, and which lane goes first. By default
    /// [`Home`](crate::sched::Home).
    pub fn policy(self, policy: impl Policy) -> RuntimeBuilder {
        self.chosen_policy(Chosen::new(policy))
    }

    pub(crate) fn chosen_policy(mut self, policy: Chosen) -> RuntimeBuilder {
        self.policy = policy;
        self
    }

    /// Sets how often a busy worker asks the kernel for events, such as bytes that arrive at sockets. With
    /// [`Normal`](Priority::Normal), the default, every 100 microseconds; with `Low` every millisecond; with `High`
    /// every 25 microseconds; with `Urgent` before each runnable, which costs a system call each time. Idle workers
    /// wait for events in any case.
    pub fn event_priority(mut self, priority: Priority) -> RuntimeBuilder {
        self.events = priority;
        self
    }

    /// Sets how long a worker may be in one runnable (a poll of a task, or a turn of a color) before it counts as
    /// *stalled*. By default 10 milliseconds.
    ///
    /// A task that blocks, computes for long, or waits for a lock of the standard library holds up its color, but not
    /// other colors. A spare worker, on a thread of its own, replaces the stalled worker if any work could need that:
    /// tasks in its queue, its sockets, its timers, or work from outside. When the stalled worker comes back, the
    /// spare rests until it is needed again. So the number of workers that make progress is
    /// [`workers`](Self::workers), or a little more for a moment. Stalls are counted in [`Metrics`](crate::runtime::Metrics),
    /// and reported to `tracing` (with that feature), once for each kind of task.
    ///
    /// The spare starts up to a quarter of this time earlier, so that no task waits for longer. With a shorter time
    /// workers are checked more often while any is awake (four times in it, but at most every half millisecond), and
    /// a worker that waits for a processor is more often taken for a stalled one.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// let rt = dapple::Runtime::builder().workers(1).stall_after(Duration::from_millis(2)).build()?;
    /// let stuck = rt.spawn(async { std::thread::sleep(Duration::from_millis(50)) });
    /// let others = rt.spawn(async { "go on" });
    /// assert_eq!(rt.block_on(others).unwrap(), "go on");
    /// rt.block_on(stuck).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stall_after(mut self, time: Duration) -> RuntimeBuilder {
        self.stall_after = time;
        self
    }

    /// Sets how many spare workers may replace stalled workers; see [`stall_after`](Self::stall_after). By default
    /// 64. With 0 no worker is replaced.
    ///
    /// A spare is made when it is first needed, and kept. Beyond this number a stalled worker holds up the tasks that
    /// it has taken, and new tasks too if all workers are stalled. This is counted in
    /// [`Metrics::stalls_unrelieved`](crate::runtime::Metrics::stalls_unrelieved). A program in which that many tasks block at
    /// a time should call [`blocking`](crate::blocking()).
    pub fn max_spares(mut self, spares: usize) -> RuntimeBuilder {
        self.max_spares = spares;
        self
    }

    /// Calls `hook` for each panic that ends a task, a callback or a blocking call of this runtime. This includes a
    /// panic that no [`JoinHandle`](crate::JoinHandle) returns, such as that of a detached task. By default there is
    /// no hook: a panic is reported by the process's panic hook and counted in
    /// [`Metrics::panics`](crate::runtime::Metrics::panics).
    ///
    /// The hook is called on the thread that ran the task, in the color of the task, before the task counts as done,
    /// and holds up both while it runs. It may spawn, send and lock as any thread may. It has no current task, so it
    /// cannot wait. A panic of the hook is counted, and has no other effect. The future that is given to
    /// [`block_on`](Runtime::block_on) or [`run`](crate::run) is a task too, and its panic is also passed on to the
    /// caller.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::mpsc;
    ///
    /// let (say, hear) = mpsc::channel();
    /// let rt = dapple::Runtime::builder().on_panic(move |report| {
    ///     let unseen = if report.has_handle() { "" } else { ", and no handle is left to see it" };
    ///     let _ = say.send(format!("{}: {}{unseen}", report.task().name(), report.message()));
    /// });
    /// let rt = rt.build()?;
    /// rt.block_on(async {
    ///     dapple::task::Builder::new().name("cleaner").spawn(async { panic!("no soap") }).detach();
    /// });
    /// assert_eq!(hear.recv().unwrap(), "cleaner: no soap, and no handle is left to see it");
    /// assert_eq!(rt.metrics().panics, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn on_panic(self, hook: impl Fn(&PanicReport<'_>) + Send + Sync + 'static) -> RuntimeBuilder {
        self.chosen_hook(OnPanic::new(hook))
    }

    pub(crate) fn chosen_hook(mut self, on_panic: OnPanic) -> RuntimeBuilder {
        self.on_panic = on_panic;
        self
    }

    /// Builds the runtime and starts its workers.
    ///
    /// # Errors
    ///
    /// If a setting is not valid (no workers, no blocking threads, a zero byte in the name), if the system cannot
    /// start a thread, or if io_uring was asked for by name and is not available. No thread is left running then.
    pub fn build(self) -> io::Result<Runtime> {
        self.check()?;
        let core = Core::new(&self)?;
        core.start_workers(0..self.worker_count())?;
        Ok(Runtime::of(core))
    }

    pub(crate) fn check(&self) -> io::Result<()> {
        let name = self.thread_name.as_deref().unwrap_or_default();
        let wrong = match self {
            _ if self.workers == Some(0) => "a runtime needs at least one worker",
            _ if self.workers > Some(MAX_WORKERS) => "a runtime can have at most 32768 workers",
            _ if self.pool.max_threads == 0 => "the pool for blocking calls needs at least one thread",
            _ if self.stall_after.is_zero() => {
                "stall_after must be longer than zero; to have no spare replace a stalled worker, set max_spares(0)"
            }
            _ if self.max_spares > MOST_SPARES => "a runtime can have at most 16384 spares",
            _ if name.contains('\0') => "a thread's name cannot contain a zero byte",
            _ => return Ok(()),
        };
        Err(io::Error::new(io::ErrorKind::InvalidInput, wrong))
    }

    pub(super) fn worker_count(&self) -> usize {
        let available = || match world::is_simulated() {
            true => world::WORKERS,
            false => std::thread::available_parallelism().map_or(1, usize::from),
        };
        self.workers.unwrap_or_else(available).min(MAX_WORKERS)
    }

    pub(super) fn sched_settings(&self) -> SchedSettings {
        let (workers, seed) = (self.worker_count(), self.seed());
        let &RuntimeBuilder { events, stall_after, max_spares, .. } = self;
        let (policy, on_panic) = (self.policy.clone(), self.on_panic.clone());
        SchedSettings { workers, seed, policy, events, stall_after, max_spares, on_panic }
    }

    fn seed(&self) -> u64 {
        use std::hash::{BuildHasher, RandomState};
        let seed = self.seed.or_else(|| world::with(|world| world.rng.next()));
        seed.unwrap_or_else(|| RandomState::new().hash_one(0))
    }
}
