//! A simulation: its settings, and one run of it.

use std::cell::RefCell;
use std::fmt::Write as _;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::{Checks, Failure, Outcome, Trace};
use crate::cancel::points::CancelPoints;
use crate::context::for_virtual_thread;
use crate::runtime::Builder as RuntimeBuilder;
use crate::runtime::{Core, STALL_AFTER, assert_not_on_worker, run_on};
use crate::sched::{Chosen, Policy};
use crate::task::panics::{OnPanic, PanicReport};
use crate::world::{EarlyEnd, World};

/// The default limit on the polls of a run: some ten seconds of them.
const MOST_POLLS: u64 = 100_000_000;

/// A simulation: it runs a future on virtual workers, in virtual time, by a seed. See [the module](super).
///
/// # Examples
///
/// ```
/// use dapple::sim::Sim;
///
/// let sum = Sim::new(42).workers(8).run(async {
///     let tasks: Vec<_> = (1..=10).map(|i| dapple::spawn(async move { i })).collect();
///     let mut sum = 0;
///     for task in tasks {
///         sum += task.await.unwrap();
///     }
///     sum
/// });
/// assert_eq!(sum, 55);
/// ```
#[derive(Clone, Debug)]
#[must_use = "call `.run(future)`"]
pub struct Sim {
    pub(super) seed: u64,
    pub(super) workers: usize,
    pub(super) is_steady: bool,
    pub(super) max_polls: u64,
    pub(super) is_traced: bool,
    pub(super) policy: Chosen,
    pub(super) stall_after: Duration,
    pub(super) max_spares: usize,
    pub(super) on_panic: OnPanic,
}

impl Sim {
    /// Makes a simulation of four workers, with this seed.
    pub fn new(seed: u64) -> Sim {
        Sim {
            seed,
            workers: crate::world::WORKERS,
            is_steady: false,
            max_polls: MOST_POLLS,
            is_traced: false,
            policy: Chosen::default(),
            stall_after: STALL_AFTER,
            max_spares: 0,
            on_panic: OnPanic::default(),
        }
    }

    /// Sets the number of virtual workers.
    ///
    /// # Panics
    ///
    /// If it is zero, or more than 32768.
    #[track_caller]
    pub fn workers(mut self, workers: usize) -> Sim {
        let settings = RuntimeBuilder::default().workers(workers);
        settings.check().unwrap_or_else(|error| panic!("Sim::workers: {error}"));
        self.workers = workers;
        self
    }

    /// Sets the scheduling policy, which decides where runnable tasks go, and in which order they run; see
    /// [`runtime::Builder::policy`](RuntimeBuilder::policy).
    pub fn policy(mut self, policy: impl Policy) -> Sim {
        self.policy = Chosen::new(policy);
        self
    }

    /// Sets the time after which a worker counts as stalled; see [`runtime::Builder::stall_after`](RuntimeBuilder::stall_after).
    ///
    /// # Panics
    ///
    /// If it is zero.
    #[track_caller]
    pub fn stall_after(mut self, time: Duration) -> Sim {
        let settings = RuntimeBuilder::default().stall_after(time);
        settings.check().unwrap_or_else(|error| panic!("Sim::stall_after: {error}"));
        self.stall_after = time;
        self
    }

    /// Sets the most spares that may replace stalled workers; see [`runtime::Builder::max_spares`](RuntimeBuilder::max_spares). Unlike in a real
    /// runtime the default is none: a simulation has as many cores as it has workers, and a spare that runs
    /// is one more core, because [`work`](super::work) on one worker does not slow down the others.
    ///
    /// # Panics
    ///
    /// If it is more than 16384.
    #[track_caller]
    pub fn max_spares(mut self, spares: usize) -> Sim {
        let settings = RuntimeBuilder::default().max_spares(spares);
        settings.check().unwrap_or_else(|error| panic!("Sim::max_spares: {error}"));
        self.max_spares = spares;
        self
    }

    /// Calls `hook` for each panic that ends a task, a callback or a blocking call; see [`runtime::Builder::on_panic`](RuntimeBuilder::on_panic).
    pub fn on_panic(mut self, hook: impl Fn(&PanicReport<'_>) + Send + Sync + 'static) -> Sim {
        self.on_panic = OnPanic::new(hook);
        self
    }

    /// Makes sleeps and [`work`](super::work) the only operations that take virtual time: wake-ups take none, and a poll
    /// takes a nanosecond, so that the clock moves. Use it to model performance rather than to test: seeds then differ
    /// less.
    pub fn steady(mut self) -> Sim {
        self.is_steady = true;
        self
    }

    /// Sets the number of polls after which a run counts as endless. The default is a hundred
    /// million.
    pub fn max_polls(mut self, polls: u64) -> Sim {
        self.max_polls = polls.max(1);
        self
    }

    /// Runs a future to its end, as [`dapple::run`](crate::run) does: in the main color, on the first
    /// virtual worker. It need not be `Send`. When it has ended, all tasks are cancelled, get one second of virtual
    /// time, and are then dropped.
    ///
    /// Make timers inside of the future: `run(async { timeout(limit, work()).await })`. In `run(timeout(limit, work()))`
    /// the deadline is taken from the real clock, before the simulation exists, and means nothing in virtual time.
    ///
    /// # Panics
    ///
    /// If the future panics, if nothing can run (a deadlock), and if the run does not end. The seed is
    /// printed, with a command line that runs it again. Also on a worker of a runtime, and inside of a simulation.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::sim::Sim;
    /// use dapple::time::{Duration, sleep};
    ///
    /// let slept = Sim::new(7).run(async { sleep(Duration::from_secs(3600)).await }); // returns at once
    /// assert_eq!(slept, Ok(()));
    /// ```
    #[track_caller]
    pub fn run<F: Future>(&self, future: F) -> F::Output {
        // The future cannot be run again, so a trace that may be wanted is kept from the start.
        let is_traced = self.is_traced || super::failure::wants_trace().is_some();
        let sim = Sim { is_traced, ..self.clone() };
        sim.try_run(future).unwrap_or_else(|failure| failure.report_and_unwind())
    }

    /// As [`run`](Self::run), and also returns a trace of the run.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    #[track_caller]
    pub fn run_traced<F: Future>(&self, future: F) -> (F::Output, Trace) {
        let sim = Sim { is_traced: true, ..self.clone() };
        sim.start(future).unwrap_or_else(|failure| failure.report_and_unwind())
    }

    /// As [`run`](Self::run), but returns a failure as a value.
    ///
    /// # Errors
    ///
    /// If the future panics, if nothing can run (a deadlock), and if the run does not end.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::sim::Sim;
    ///
    /// let failure = Sim::new(7).try_run(std::future::pending::<()>()).unwrap_err();
    /// assert_eq!(failure.seed(), 7);
    /// assert!(failure.why().contains("deadlock"));
    /// ```
    ///
    /// # Panics
    ///
    /// On a worker of a runtime, and inside of a simulation.
    #[track_caller]
    pub fn try_run<F: Future>(&self, future: F) -> Result<F::Output, Failure> {
        self.start(future).map(|(output, _)| output)
    }

    /// Runs the future that `f` makes with one seed after the other, and stops at the first that fails: see
    /// [`explore`](super::explore()).
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::mpsc;
    /// use dapple::sim::Sim;
    ///
    /// Sim::new(0).explore(0..100, || async {
    ///     let (sender, mut receiver) = mpsc::bounded(1);
    ///     dapple::spawn(async move { sender.send(7).await.unwrap() }).detach();
    ///     assert_eq!(receiver.recv().await, Ok(7)); // in each of a hundred orders of events
    /// });
    /// ```
    #[track_caller]
    pub fn explore<F: Future>(&self, seeds: Range<u64>, f: impl FnMut() -> F)
    where
        F::Output: Outcome,
    {
        super::explore::explore_with(self, seeds, f);
    }

    /// As [`explore`](Self::explore), without output. Returns the first failure as a value, or the number of seeds that
    /// were tried.
    ///
    /// # Errors
    ///
    /// The first failure.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::sim::Sim;
    /// use dapple::time::{Duration, sleep};
    ///
    /// let failure = Sim::new(0)
    ///     .try_explore(0..100, || async {
    ///         let racer = |name| async move { sleep(Duration::from_millis(1)).await.map(|()| name) };
    ///         assert_eq!(dapple::race((racer("ann"), racer("bob"))).await, Ok("bob"), "ann was first");
    ///     })
    ///     .unwrap_err();
    /// println!("{failure}"); // the seed, the reason, and the command that runs it again
    /// ```
    #[track_caller]
    pub fn try_explore<F: Future>(&self, seeds: Range<u64>, f: impl FnMut() -> F) -> Result<u64, Failure>
    where
        F::Output: Outcome,
    {
        super::explore::try_explore(self, seeds, f, |_| {})
    }

    /// As [`try_run`](Self::try_run), with cancellation points and a trace.
    #[track_caller]
    pub(super) fn try_run_observed<F: Future>(
        &self,
        points: Rc<CancelPoints>,
        future: F,
    ) -> Result<(F::Output, Trace), Failure> {
        self.start_observed(Some(points), future)
    }

    #[track_caller]
    fn start<F: Future>(&self, future: F) -> Result<(F::Output, Trace), Failure> {
        self.start_observed(None, future)
    }

    #[track_caller]
    fn start_observed<F: Future>(
        &self,
        points: Option<Rc<CancelPoints>>,
        future: F,
    ) -> Result<(F::Output, Trace), Failure> {
        assert_not_on_worker("Sim::run");
        let world = World::new(self.seed, self.is_steady, for_virtual_thread);
        world.log.borrow_mut().is_kept = self.is_traced;
        let report = Rc::new(RefCell::new(String::new()));
        let ran = world.enter(|| {
            let builder = RuntimeBuilder::default().workers(self.workers).thread_name("sim");
            let builder = builder.chosen_policy(self.policy.clone()).stall_after(self.stall_after);
            let builder = builder.max_spares(self.max_spares).random_seed(world.rng.next());
            let builder = builder.chosen_hook(self.on_panic.clone());
            let core = Core::new(&builder).unwrap_or_else(|error| panic!("Sim::run: {error}"));
            world.limit(self.max_polls, {
                let (core, report) = (core.clone(), report.clone());
                move || {
                    *report.borrow_mut() = describe(&core);
                    core.sched.driver(0).wake();
                }
            });
            if let Some(points) = points {
                world.when_stuck(move || points.let_go());
            }
            let future = Box::pin(future); // it may be large, and the async block would have room for it twice
            let program = async {
                let output = future.await;
                crate::shield(Checks::run()).await; // the program may have cancelled its task
                output
            };
            run_on(&core, self.workers, program, || world.ended().is_some())
        });
        let trace = Trace::new(self, world.log.take());
        let failure = match ran {
            Some(Ok(output)) => return Ok((output, trace)),
            Some(Err(error)) => match error.try_into_panic() {
                Ok(payload) => Failure::panicked(self, payload, trace),
                Err(error) => Failure::of(self, format!("the future did not end: {error}"), trace),
            },
            None => {
                let elapsed = world.elapsed();
                let why = match world.ended() {
                    Some(EarlyEnd::Endless) => format!(
                        "it does not end: {} polls in {elapsed:?} of virtual time (Sim::max_polls sets the limit)",
                        world.polls()
                    ),
                    _ => format!(
                        "deadlock: nothing can run and no timer is pending, after {elapsed:?} of virtual time"
                    ),
                };
                Failure::of(self, why + &report.borrow(), trace)
            }
        };
        Err(failure)
    }
}

/// Describes all tasks, each in a line.
fn describe(core: &Arc<Core>) -> String {
    let mut text = String::new();
    core.runtime_shared().each_task(|task| {
        let number = task.number().unwrap_or_default();
        let what = match task {
            _ if task.is_blocking() => "is a blocking call".to_owned(),
            _ if !task.is_waiting() => "can run".to_owned(),
            _ => format!("waits for {}", task.waited_for().unwrap_or("something that is not dapple's")),
        };
        let place = task.spawned_at().map(|place| format!(", spawned at {place}")).unwrap_or_default();
        let _ = write!(text, "\n  task {number} ({}{place}) {what}", task.name());
    });
    text
}
