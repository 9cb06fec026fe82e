//! Exploration: a run for each of many seeds.

mod progress;

use std::fmt::Debug;
use std::ops::{Range, RangeInclusive};

use progress::Progress;

use super::failure::{Returned, wants_trace};
use super::{Failure, Sim};

/// The variable that names the only seed to try.
pub(super) const SEED: &str = "DAPPLE_SEED";
/// The variable for the number of seeds that a test tries.
const SEEDS: &str = "DAPPLE_SEEDS";
/// The number of seeds that a test tries by default.
const SEEDS_OF_A_TEST: u64 = 100;

/// The output of a run: `()`, or a `Result`, whose error is a failure.
///
/// A future must return one to be [explored](explore). Implement it for other types:
///
/// ```
/// use dapple::sim::{self, Outcome};
///
/// struct Balance(i64);
///
/// impl Outcome for Balance {
///     fn failure(&self) -> Option<String> {
///         (self.0 < 0).then(|| format!("overdrawn by {}", -self.0))
///     }
/// }
///
/// sim::explore(0..10, || async { Balance(5) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not tell whether a run failed",
    label = "ends in `{Self}`, which is no `sim::Outcome`",
    note = "a future that is explored returns `()` or a `Result`; if it never returns, or returns something else, end it with `()`"
)]
pub trait Outcome {
    /// The description of the failure, if the run has failed.
    fn failure(&self) -> Option<String>;
}

impl Outcome for () {
    fn failure(&self) -> Option<String> {
        None
    }
}

impl<T, E: Debug> Outcome for Result<T, E> {
    fn failure(&self) -> Option<String> {
        self.as_ref().err().map(|error| format!("returned an error: {error:?}"))
    }
}

/// Runs the future that `f` makes with one seed after the other, and stops at the first that fails.
///
/// A run fails if the future panics, or returns an `Err` (see [`Outcome`]); if nothing can run, which is
/// a deadlock; and if it does not end. Each run is a simulation of its own, as of `Sim::new(seed)`, on this
/// thread. `f` is called inside of it, and should make the same future every time. Use [`Sim::explore`] for other
/// settings, and [`Sim::try_explore`] to get the failure as a value.
///
/// On a terminal a progress bar is shown on stderr (in a test only if its output is not captured:
/// `cargo test -- --nocapture`). The last line is a summary.
///
/// If `DAPPLE_SEED` is set, only that seed is tried. Use it to repeat a run that failed.
///
/// # Panics
///
/// At the first run that fails, as [`Sim::run`]: the seed is printed, with a command line that runs it again.
/// If `DAPPLE_SEED` is not a number.
///
/// # Examples
///
/// Two tasks first look, and then act. With some seeds one task comes between the two steps of the other:
///
/// ```should_panic
/// use dapple::{sim, task::yield_now};
/// use std::sync::{Arc, atomic::{AtomicI64, Ordering::Relaxed}};
///
/// sim::explore(0..1000, || async {
///     let balance = Arc::new(AtomicI64::new(100));
///     let withdraw = |balance: Arc<AtomicI64>| async move {
///         if balance.load(Relaxed) >= 100 {
///             yield_now().await; // asks somebody, say
///             balance.fetch_sub(100, Relaxed);
///         }
///     };
///     let one = dapple::spawn(withdraw(balance.clone()));
///     let two = dapple::spawn(withdraw(balance.clone()));
///     (one.await.unwrap(), two.await.unwrap());
///     assert!(balance.load(Relaxed) >= 0, "no money left");
/// });
/// ```
#[track_caller]
pub fn explore<F: Future>(seeds: Range<u64>, f: impl FnMut() -> F)
where
    F::Output: Outcome,
{
    explore_with(&Sim::new(0), seeds, f);
}

#[track_caller]
pub(super) fn explore_with<F: Future>(sim: &Sim, seeds: Range<u64>, f: impl FnMut() -> F)
where
    F::Output: Outcome,
{
    explore_aloud(sim, None, seeds, f);
}

impl Sim {
    /// Runs the body of a test. Returns its output with the last seed.
    #[track_caller]
    pub(crate) fn explore_test<F: Future>(
        name: &'static str,
        workers: Option<usize>,
        seeds: Option<u64>,
        f: impl FnMut() -> F,
    ) -> F::Output
    where
        F::Output: Outcome,
    {
        let count = number(SEEDS).or(seeds).unwrap_or(SEEDS_OF_A_TEST);
        assert!(count > 0, "{SEEDS}=0: it must be at least 1");
        let sim = workers.into_iter().fold(Sim::new(0), Sim::workers);
        // The test harness names tests by their paths within the crate.
        let name = name.split_once("::").map_or(name, |(_, path)| path);
        explore_aloud(&sim, Some(name), 0..count, f).expect("a test tries at least one seed")
    }
}

#[track_caller]
pub(super) fn try_explore<F: Future>(
    sim: &Sim,
    seeds: Range<u64>,
    mut f: impl FnMut() -> F,
    mut progress: impl FnMut(u64),
) -> Result<u64, Failure>
where
    F::Output: Outcome,
{
    let count = seeds.end.saturating_sub(seeds.start);
    for seed in seeds {
        progress(seed);
        try_seed(&Sim { seed, ..sim.clone() }, async { f().await })?;
    }
    Ok(count)
}

/// Tries the seeds, shows progress, and reports the first failure. Returns the output of the last run.
#[track_caller]
fn explore_aloud<F: Future>(
    sim: &Sim,
    test: Option<&'static str>,
    seeds: Range<u64>,
    mut f: impl FnMut() -> F,
) -> Option<F::Output>
where
    F::Output: Outcome,
{
    let only = number(SEED);
    let mut progress = Progress::begin(match only {
        Some(_) => 1,
        None => seeds.end.saturating_sub(seeds.start),
    });
    let mut last = None;
    for seed in all_of(seeds, only) {
        // A single seed can be traced from the start.
        let is_traced = sim.is_traced || only.is_some() && wants_trace().is_some();
        let sim = Sim { seed, is_traced, ..sim.clone() };
        match try_seed(&sim, async { f().await }) {
            Ok(output) => last = Some(output),
            Err(failure) => {
                progress.end(&match only {
                    Some(_) => format!("seed {seed} alone, by {SEED}: it failed"),
                    None => format!("seed {seed} failed"),
                });
                with_trace(&sim, failure, f).in_test(test).report_and_unwind();
            }
        }
        progress.step();
    }
    progress.end(&match only {
        Some(seed) => format!("seed {seed} alone, by {SEED}: it did not fail"),
        None => "none failed".to_owned(),
    });
    last
}

/// The seeds of a range, or the only seed.
fn all_of(seeds: Range<u64>, only: Option<u64>) -> RangeInclusive<u64> {
    match only {
        Some(only) => only..=only,
        None if seeds.is_empty() => RangeInclusive::new(1, 0),
        None => seeds.start..=seeds.end - 1,
    }
}

/// Makes one run. An output that is a failure makes the run fail.
#[track_caller]
fn try_seed<F: Future>(sim: &Sim, future: F) -> Result<F::Output, Failure>
where
    F::Output: Outcome,
{
    sim.try_run(async {
        let output = future.await;
        let Some(why) = output.failure() else { return output };
        drop(output);
        fail_quietly(why)
    })
}

/// Ends a run by unwinding, without the message of a panic.
pub(super) fn fail_quietly(why: String) -> ! {
    std::panic::resume_unwind(Box::new(Returned(why)))
}

/// The failure with its trace, if a trace is wanted: runs the same seed once more.
#[track_caller]
fn with_trace<F: Future>(sim: &Sim, failure: Failure, mut f: impl FnMut() -> F) -> Failure
where
    F::Output: Outcome,
{
    if failure.is_traced() || wants_trace().is_none() {
        return failure;
    }
    eprintln!("dapple: runs seed {} again, for its trace", sim.seed);
    let by_chance = "is there anything in it that does not go by the seed? See dapple::sim";
    match try_seed(&Sim { is_traced: true, ..sim.clone() }, async { f().await }) {
        Err(traced) => {
            if traced.why() != failure.why() {
                eprintln!("dapple: it failed otherwise before: {}\n{by_chance}", failure.why());
            }
            traced
        }
        Ok(_) => {
            eprintln!("dapple: this time it did not fail: {by_chance}");
            failure
        }
    }
}

/// The number in a variable of the environment, if it is set.
#[track_caller]
pub(super) fn number(variable: &str) -> Option<u64> {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty())?;
    let number = value.to_str().and_then(|value| value.trim().replace('_', "").parse().ok());
    assert!(number.is_some(), "{variable}={}: it must be a number", value.display());
    number
}
