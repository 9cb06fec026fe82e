//! Virtual time: the same scheduler on simulated workers, by seed.
//!
//! A [`Sim`] runs a future as [`dapple::run`](crate::run) does, but on as many *virtual* workers as one
//! asks for, all on one thread, and by a *virtual clock*, which moves only when nothing can run. A sleep
//! of an hour takes no time. Lanes, queues, stealing, timers, channels and locks are the same code.
//! Whatever real concurrency leaves open (who steals from whom, who goes first, how long a wake-up
//! takes) is settled by the seed. The same seed is the same run, bit for bit: on every machine, and after
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
//! # Finding what goes wrong once in a thousand times
//!
//! [`explore`] tries one seed after the other and stops at the first that fails. A test does so with
//! `#[dapple::test(sim)]`. The seed is printed, with a line that runs it again; that run is the same, so
//! it can be looked at ([`Trace`]) until it is understood. A deadlock is a failure, too: if nothing can
//! run and no timer is pending, all tasks are named, with what they wait for.
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
//! | `DAPPLE_SEEDS=5000` | how many seeds `#[dapple::test(sim)]` tries, whatever the test says: for a nightly run |
//! | `DAPPLE_CANCEL=17:late` | [`cancel_everywhere`] runs this wait and mode alone, with the seed of `DAPPLE_SEED` |
//! | `DAPPLE_TRACE=FILE` | where the [`Trace`] of a run that fails is written to; `-` is stderr |
//!
//! They are for [`explore`], [`Sim::explore`], [`Sim::run`] and tests. What returns a failure as a value
//! ([`Sim::try_run`], [`Sim::try_explore`]) does not look at them.
//!
//! # Time and work
//!
//! Code takes no virtual time, but for a fraction of a microsecond per poll, which differs, so that polls
//! come in any order. [`work`] stands for code that takes long: it keeps its virtual worker busy, while
//! others go on. That makes a simulation a plan of a machine with more cores than one has. For that there
//! are [steady](Sim::steady) simulations, in which nothing else takes time. Nobody stands in for a worker that is busy
//! for long, as in a real runtime, unless [`Sim::max_spares`] says so.
//!
//! # What a simulation is not
//!
//! * A poll runs from its start to its end, unless it calls [`work`]: what can go wrong between two
//!   *instructions* is not found here, but by loom. So a test of exclusion must [`work`] inside of what is
//!   to be exclusive (zero is enough), or it cannot fail.
//! * There is no outside. Sockets, processes, signals and names fail with an error that says so;
//!   [`net`] has listeners and streams for inside. [`blocking`](crate::blocking()) works, on virtual
//!   threads; a call in it that really blocks, and a thread that is started, holds up everything and
//!   is not simulated.
//! * Instants and timers (a [`sleep`](crate::time::sleep()), a [`timeout`](crate::time::timeout())) that are made outside
//!   of the simulation go by the real clock: awaited inside, a timer is over too early or too late. Make them inside.
//! * What is random by itself is not the same every time: the order of a `HashMap` with the standard
//!   hasher, addresses, the clock of the standard library. [`random`] is the same.
//! * Virtual workers share their real thread's `thread_local!`s; and a lock of the standard library that
//!   is held over [`work`] blocks the real thread if another virtual worker wants it.

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

/// Stands for so much work of the processor.
///
/// In a simulation, virtual time passes on this worker, which is busy with it, while others go on. It
/// is a place where others may come between, also if `duration` is zero. Elsewhere it really computes,
/// for so much time of the processor: so a program can be run both ways, and compared.
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

/// Computes for so much time of the processor.
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

/// A random number, by the seed of the simulation.
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
    world::with(|world| world.dice.next()).expect("dapple::sim::random() called outside of a simulation")
}

/// Has a future run after the program of this simulation has ended, uncancelled: for its invariants.
///
/// A program that returns early, cancelled perhaps, does not get to the assertions at its end. One that was dropped by
/// [`cancel_everywhere`] does not either. These futures run in any case, in the order in which they were registered,
/// after the future of [`Sim::run`] has returned. A future owns what it captures until then: capture the state to look
/// at, not a sender, whose channel would stay open. (They do not run if that has panicked, or if nothing can go on: the run
/// has failed anyway.)
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
    /// Runs those of this simulation.
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

/// Whether this is a simulation.
#[must_use]
pub fn is_simulated() -> bool {
    world::is_simulated()
}
