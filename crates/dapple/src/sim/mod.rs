//! Deterministic simulation: the real scheduler on virtual workers, in virtual time, by a seed.
//!
//! A [`Sim`] runs a future as [`dapple::run`](crate::run) does, but on any number of *virtual* workers,
//! all on one thread, and by a *virtual clock*, which moves only when nothing can run. A sleep
//! of an hour takes no time. Lanes, queues, stealing, timers, channels and locks are the same code.
//! Each choice that real concurrency leaves open (which worker steals from which, which task goes first, how long a
//! wake-up takes) is made by the seed. The same seed is the same run, bit for bit: on every machine, and after
//! every rebuild.
//!
//! ```
//! use dapple::sim::Sim;
//! use dapple::time::{Duration, Instant, sleep};
//!
//! let late = Sim::new(7).workers(64).run(async {
//!     let begun = Instant::now();
//!     sleep(Duration::from_secs(3600)).await.unwrap();
//!     begun.elapsed()
//! });
//! assert_eq!(late.as_secs(), 3600);
//! ```
//!
//! # Finding rare failures
//!
//! [`explore`] tries one seed after the other and stops at the first that fails. A test does so with
//! `#[dapple::test(sim)]`. The failure prints its seed, with a command line that runs it again. That run is the same,
//! so it can be examined ([`Trace`]) until the failure is understood. A deadlock is a failure, too: if nothing can
//! run and no timer is pending, the report lists all tasks and the waits that they are in.
//!
//! # Cancelling everywhere
//!
//! [`cancel_everywhere`], and `#[dapple::test(cancel_everywhere)]`, run a program once for each of its waits: cancelled
//! there, dropped there, or held up there. [`check_after`] registers its invariants.
//!
//! # Environment
//!
//! | variable | |
//! |---|---|
//! | `DAPPLE_SEED=17` | [`explore`] and `#[dapple::test(sim)]` run this seed alone: so a run that failed is run again |
//! | `DAPPLE_SEEDS=5000` | the number of seeds that `#[dapple::test(sim)]` tries, in place of the test's own number: for a nightly run |
//! | `DAPPLE_CANCEL=17:late` | [`cancel_everywhere`] runs this wait and mode alone, with the seed of `DAPPLE_SEED` |
//! | `DAPPLE_TRACE=FILE` | the file for the [`Trace`] of a run that fails; `-` is stderr |
//!
//! They are for [`explore`], [`Sim::explore`], [`Sim::run`] and tests. The functions that return a failure as a value
//! ([`Sim::try_run`], [`Sim::try_explore`]) ignore them.
//!
//! # Time and work
//!
//! Code takes no virtual time, except for a random fraction of a microsecond per poll, so that polls
//! come in any order. [`work`] stands for code that takes long: it keeps its virtual worker busy, while
//! others go on. So a simulation can model a machine with more cores than the real one. Use a
//! [steady](Sim::steady) simulation for that, in which nothing else takes time. Unlike in a real runtime, no spare
//! replaces a worker that is busy for long, unless [`Sim::max_spares`] allows it.
//!
//! # Limits of a simulation
//!
//! * A poll runs from its start to its end, unless it calls [`work`]. Errors that need a switch between two
//!   *instructions* are found by loom, not here. So a test of mutual exclusion must call [`work`] inside the
//!   critical section (zero is enough), or it cannot fail.
//! * There is no outside world. Sockets, processes, signals and name lookups return an error that explains it;
//!   [`net`] has listeners and streams for inside. [`blocking`](crate::blocking()) works, on virtual
//!   threads. A call in it that really blocks holds up everything, and a thread that it starts is not
//!   simulated.
//! * Instants and timers (a [`sleep`](crate::time::sleep()), a [`timeout`](crate::time::timeout())) that are made outside
//!   of the simulation go by the real clock: awaited inside, such a timer ends too early or too late. Make them inside.
//! * Other sources of randomness differ from run to run: the order of a `HashMap` with the standard
//!   hasher, addresses, the clock of the standard library. [`random`] is the same in each run.
//! * Virtual workers share the `thread_local!`s of their real thread. A lock of the standard library that
//!   is held over [`work`] blocks the real thread if another virtual worker locks it.

mod cancel_everywhere;
mod explore;
mod failure;
pub mod net;
mod simulation;
mod trace;

use std::cell::RefCell;
use std::pin::Pin;
use std::time::Duration;

pub use cancel_everywhere::{CancelCount, CancelEverywhere, Ending, cancel_everywhere};
pub use explore::{Outcome, explore};
pub use failure::Failure;
pub use simulation::Sim;
pub use trace::{Poll, Trace};

use crate::world;

/// Stands for CPU work of this duration.
///
/// In a simulation, virtual time passes on this worker, which is busy, while others go on. Other workers may run
/// in between, also if `duration` is zero. Outside of a simulation it really computes,
/// for `duration` of CPU time. So a program can be run both ways, and compared.
///
/// # Examples
///
/// ```
/// use dapple::sim::{self, Sim};
/// use dapple::time::{Duration, Instant};
///
/// let took = Sim::new(1).workers(4).steady().run(async {
///     let begun = Instant::now();
///     let work = || sim::work(Duration::from_millis(10));
///     let tasks: Vec<_> = (0..8).map(|_| dapple::spawn(async move { work() })).collect();
///     for task in tasks {
///         task.await.unwrap();
///     }
///     begun.elapsed()
/// });
/// assert_eq!(took.as_millis(), 20); // eight times ten, on four workers
/// ```
pub fn work(duration: Duration) {
    if world::with(|world| world.work(duration)).is_none() {
        burn(duration);
    }
}

/// Computes for `duration` of CPU time.
fn burn(duration: Duration) {
    use rustix::time::{ClockId, clock_gettime};
    let spent = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec.cast_unsigned(), time.tv_nsec as u32)
    };
    let until = spent() + duration;
    while spent() < until {
        for _ in 0..4 {
            std::hint::spin_loop();
        }
    }
}

/// Returns a random number, by the seed of the simulation.
///
/// # Panics
///
/// Outside of a simulation.
///
/// # Examples
///
/// ```
/// use dapple::sim::{self, Sim};
///
/// let roll = || Sim::new(3).run(async { sim::random() % 6 });
/// assert_eq!(roll(), roll());
/// ```
#[must_use]
#[track_caller]
pub fn random() -> u64 {
    world::with(|world| world.rng.next()).expect("dapple::sim::random() called outside of a simulation")
}

/// Registers a future that runs after the program of this simulation has ended, uncancelled. Use it to check invariants.
///
/// A program that returns early, because it was cancelled for example, does not reach the assertions at its end. Nor
/// does a program that was dropped by [`cancel_everywhere`]. These futures run in any case, in the order in which they
/// were registered, after the future of [`Sim::run`] has returned. A future keeps its captures alive until then: capture
/// the state to check, not a sender, whose channel would stay open. (They do not run after a panic of the program or a
/// deadlock: then the run has failed already.)
///
/// # Panics
///
/// Outside of a simulation.
///
/// # Examples
///
/// ```
/// use dapple::sim;
/// use dapple::sync::Semaphore;
/// use std::sync::Arc;
///
/// #[dapple::test(cancel_everywhere)]
/// async fn permits_come_back() -> Result<(), dapple::Cancelled> {
///     let permits = Arc::new(Semaphore::new(2));
///     let after = permits.clone();
///     sim::check_after(async move { assert_eq!(after.available_permits(), 2) });
///     let _permit = permits.acquire().await.map_err(|_| dapple::Cancelled)?;
///     dapple::time::sleep(dapple::time::Duration::from_secs(1)).await
/// }
/// ```
#[track_caller]
pub fn check_after(check: impl Future<Output = ()> + 'static) {
    let registered = world::with(|world| world.part::<Checks>().0.borrow_mut().push(Box::pin(check)));
    registered.expect("dapple::sim::check_after() called outside of a simulation");
}

/// The futures of [`check_after`].
#[derive(Default)]
struct Checks(RefCell<Vec<Pin<Box<dyn Future<Output = ()>>>>>);

impl Checks {
    /// Runs the checks of this simulation.
    async fn run() {
        let take = || world::with(|world| world.part::<Checks>().0.take()).unwrap_or_default();
        let mut checks = take();
        while !checks.is_empty() {
            for check in checks {
                check.await;
            }
            checks = take();
        }
    }
}

/// Whether the calling code runs in a simulation.
///
/// # Examples
///
/// ```
/// use dapple::sim::{Sim, is_simulated};
///
/// assert!(!is_simulated());
/// Sim::new(0).run(async { assert!(is_simulated()) });
/// ```
#[must_use]
pub fn is_simulated() -> bool {
    world::is_simulated()
}
