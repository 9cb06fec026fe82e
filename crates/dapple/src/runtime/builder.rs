//! How a runtime is set up.

use std::io;
use std::time::Duration;

use super::Runtime;
use super::core::Core;
use crate::blocking::Limits;
use crate::driver::ring::choice::Files;
use crate::sched::{Chosen, Policy, Priority, Settings};
use crate::world;

/// The settings of a runtime to be built; see [`Runtime::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "call `.build()`"]
pub struct RuntimeBuilder {
    workers: Option<usize>,
    pub(super) thread_name: Option<String>,
    pub(super) stack_size: Option<usize>,
    pub(super) pool: Limits,
    pub(super) files: Files,
    seed: Option<u64>,
    policy: Chosen,
    events: Priority,
}

/// More workers than this are taken for a mistake.
const MAX_WORKERS: usize = 1 << 15;

impl RuntimeBuilder {
    /// How many workers run tasks. By default as many as there are processors for this process,
    /// its affinity and its cgroup considered.
    pub fn workers(mut self, workers: usize) -> RuntimeBuilder {
        self.workers = Some(workers);
        self
    }

    /// What threads are called: `name-0`, `name-1`, ..., `name-blocking`. By default `dapple`.
    pub fn thread_name(mut self, name: impl Into<String>) -> RuntimeBuilder {
        self.thread_name = Some(name.into());
        self
    }

    /// The stack size of the runtime's threads, in bytes. By default the system's.
    pub fn thread_stack_size(mut self, bytes: usize) -> RuntimeBuilder {
        self.stack_size = Some(bytes);
        self
    }

    /// How many threads the pool for blocking calls may have. By default 512.
    pub fn max_blocking_threads(mut self, threads: usize) -> RuntimeBuilder {
        self.pool.max_threads = threads;
        self
    }

    /// How long an idle thread of the pool for blocking calls stays. By default 10 seconds.
    pub fn blocking_keep_alive(mut self, time: Duration) -> RuntimeBuilder {
        self.pool.keep_alive = time;
        self
    }

    /// How files are read and written: by io_uring, or by the pool for blocking calls. By default by io_uring
    /// if it is to be had; see [`Runtime::files`] for what that turned out to be.
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
    pub fn files(mut self, files: Files) -> RuntimeBuilder {
        self.files = files;
        self
    }

    /// What the choices that the scheduler leaves to chance (whom to steal from) start from.
    pub fn random_seed(mut self, seed: u64) -> RuntimeBuilder {
        self.seed = Some(seed);
        self
    }

    /// Who decides where what has become runnable goes, and what goes first. By default
    /// [`Home`](crate::sched::Home).
    pub fn policy(self, policy: impl Policy) -> RuntimeBuilder {
        self.chosen_policy(Chosen::new(policy))
    }

    pub(crate) fn chosen_policy(mut self, policy: Chosen) -> RuntimeBuilder {
        self.policy = policy;
        self
    }

    /// How soon the kernel is asked for events (what has come in at sockets) while there is something to run,
    /// which goes ahead of them: with [`Normal`](Priority::Normal), the default, every 100 microseconds, with
    /// `Low` every millisecond, with `High` every 25 microseconds, with `Urgent` before each runnable, which
    /// costs a system call each time. Workers with nothing to run wait for events in any case.
    pub fn event_priority(mut self, priority: Priority) -> RuntimeBuilder {
        self.events = priority;
        self
    }

    /// Builds the runtime and starts its workers.
    ///
    /// # Errors
    ///
    /// If a setting makes no sense (no workers, no blocking threads, a zero byte in the name), or
    /// if the system has no thread to give, or no io_uring although it was asked for by name. Nothing is left
    /// running then.
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

    pub(super) fn sched_settings(&self) -> Settings {
        let (workers, seed) = (self.worker_count(), self.seed());
        Settings { workers, seed, policy: self.policy.clone(), events: self.events }
    }

    fn seed(&self) -> u64 {
        use std::hash::{BuildHasher, RandomState};
        let seed = self.seed.or_else(|| world::with(|world| world.dice.next()));
        seed.unwrap_or_else(|| RandomState::new().hash_one(0))
    }
}
