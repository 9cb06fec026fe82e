//! Trying one seed after the other.

use std::fmt::Debug;
use std::ops::Range;

use super::{Failure, Sim, Trace};

/// What a run can end in: `()`, or a `Result`, whose error is a failure.
pub trait Outcome {
    /// What went wrong, if it did.
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

/// Tries.
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
    if let Err(failure) = try_explore(sim, seeds, f, |_| {}) {
        failure.report_and_unwind();
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
        let sim = Sim { seed, ..sim.clone() };
        let output = sim.try_run(f())?;
        if let Some(why) = output.failure() {
            return Err(Failure::of(&sim, why, Trace::new(&sim, Default::default())));
        }
    }
    Ok(count)
}
