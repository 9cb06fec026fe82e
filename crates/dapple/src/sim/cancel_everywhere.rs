//! Runs a program many times, each time cancelled, dropped or delayed at another one of its waits.

mod place;
mod program;

use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};

use place::WaitSite;
use program::{Program, ProgramEnd, Run};

use super::explore::number;
use super::{Failure, Outcome, Sim, Trace};
use crate::cancel::JoinError;
use crate::cancel::error::{Cancelled, causes};
use crate::cancel::points::{CancelPoints, Mode, OBSERVES, Plan, ReferenceWait};
use crate::world;
use crate::world::log::PollLog;

/// The variable that names the only wait and mode to try.
const CANCEL: &str = "DAPPLE_CANCEL";
/// The default limit on the number of waits that are tried.
const WAITS: usize = 1000;
/// The limit on the polls of a run: this many times the polls of the reference, and at least `LEAST_POLLS`.
const MOST_POLLS: u64 = 10;
const LEAST_POLLS: u64 = 2000;
/// The least number of polls for which a wait is delayed, in a program that never rests.
const LEAST_PATIENCE: u64 = 500;
/// The limit on the polls of all tasks between the end of the program and the check.
const SETTLE_POLLS: u64 = 100_000;
/// The limit on the polls of a reference: a program that runs a thousand times should be short.
const REFERENCE_POLLS: u64 = 1_000_000;
/// The virtual time between the end of the program and the check. An aborted task is
/// dropped meanwhile.
const SETTLE: Duration = Duration::from_secs(1);

const MODES: [Mode; 4] = [Mode::CancelBefore, Mode::CancelAfter, Mode::Drop, Mode::Late];

/// Runs `work` in simulations, each time cancelled, dropped or delayed at another one of its waits, and runs `check`
/// after each.
///
/// This finds errors that a test with a few chosen cancellations misses: a message that is lost if the task is cancelled
/// between two awaits, a permit that is not returned, a message that was written by half. `work` is the program,
/// with its invariants in `check`, or registered by [`check_after`](super::check_after). Both closures are called
/// anew for each run, inside of the simulation.
///
/// First `work` runs undisturbed, twice: this is the reference, and `work` has to succeed there, within a million polls.
/// Then there is one run for each wait of the reference and each mode:
///
/// | mode | at that wait |
/// |---|---|
/// | `before` | the innermost [`finish`](crate::finish) around it is cancelled before the wait begins; if there is none, the task |
/// | `after` | the same, once the wait has returned `Pending` |
/// | `drop` | once the wait has returned `Pending`: in a spawned task, that task is [aborted](crate::JoinHandle::abort); in a [started](crate::Scope::start) child whose `Started` is gone, that child is dropped; else `work` is dropped |
/// | `late` | the wait stays `Pending` until nothing else can run, so that another branch of a `select` wins; in a program that never rests, for as many polls as the reference had (and 500) |
///
/// `after` and `drop` are left out for a wait that was ready at once in the reference. `drop` aborts tasks also in
/// programs that never abort one themselves, because a runtime that shuts down does, and so does each future that drops
/// another. A promise that must hold then is kept by a destructor.
///
/// A wait is a poll that begins to wait for an event of Dapple (a message, a permit, a lock, a timer, a simulated
/// socket, a task's end), whether or not it is pending. If one wait is inside another, as the reads in `read_exact`, the
/// innermost counts. Yields are not waits, and `finish` does not count while it waits for its children and tasks.
/// Waits in a [`shield`](crate::shield) are skipped. Callbacks with a time wait in tasks of their own: if such a wait
/// is cancelled, the callback is not called.
///
/// A late wait outlasts the timers of the program: a sleep of a second may end after one of an hour. So a check should
/// assert what must hold in any order, not how long it takes.
///
/// A run passes if `work` ends and then `check` passes. `work` may return an error that reports its cancellation:
/// one with [`Cancelled`] among its sources. A run fails if
///
/// * `work` or `check` panics, or a task or a destructor does, unless it panics with the same message undisturbed;
/// * nothing can run, which is a deadlock;
/// * it takes ten times as many polls as the reference (and two thousand);
/// * `work` returns another error, unless [`CancelEverywhere::allow_errors`] is set.
///
/// One seed is tried, with at most 1,000 waits, evenly drawn; [`CancelEverywhere`] has the options. At the end a line on
/// stderr reports the number of waits that were tried.
///
/// # Panics
///
/// At the first run that fails. The report names the seed, the wait, the mode, and the place in the program, with a
/// command line that runs it again. If the waits of the two reference runs differ, because something in `work` does not
/// depend on the seed alone. In a build without debug assertions, such as a release build: the hooks in each wait would
/// cost it a few instructions. On a worker of a runtime, and inside of a simulation.
///
/// # Examples
///
/// ```
/// use dapple::channel::mpsc;
/// use dapple::sim;
/// use std::sync::{Arc, Mutex};
///
/// let got = Arc::new(Mutex::new(Vec::new()));
/// let work = || {
///     let got = got.clone();
///     async move {
///         got.lock().unwrap().clear();
///         let (sender, mut receiver) = mpsc::bounded(1);
///         let producer = dapple::spawn(async move {
///             for number in 0..3 {
///                 if sender.send(number).await.is_err() {
///                     break; // cancelled, or the receiver is gone
///                 }
///             }
///         });
///         while let Ok(number) = receiver.recv().await {
///             got.lock().unwrap().push(number);
///         }
///         producer.detach();
///     }
/// };
/// let check = || {
///     let got = got.clone();
///     // Whatever was cancelled: what arrived has no gap.
///     async move { assert!([0, 1, 2].starts_with(&got.lock().unwrap())) }
/// };
/// sim::cancel_everywhere(work, check);
/// ```
#[track_caller]
pub fn cancel_everywhere<W, C>(work: impl FnMut() -> W, check: impl FnMut() -> C)
where
    W: Future,
    W::Output: Ending,
    C: Future,
    C::Output: Outcome,
{
    CancelEverywhere::new().run(work, check);
}

/// The output of a program for [`cancel_everywhere`]: `()`, or a `Result`, whose error may be a cancellation.
///
/// Any error that can be boxed will do: types that implement [`Error`], `Box<dyn Error + Send + Sync>`, `String`.
///
/// # Examples
///
/// ```
/// use dapple::sim::cancel_everywhere;
/// use dapple::time::{Duration, sleep};
/// use std::io;
///
/// async fn serve() -> io::Result<()> { // `io::Result<()>` is an `Ending`: its error can say `Cancelled`
///     sleep(Duration::from_secs(1)).await?;
///     Ok(())
/// }
///
/// cancel_everywhere(serve, || async {});
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not tell whether a program was cancelled",
    label = "ends in `{Self}`, which is no `sim::Ending`",
    note = "a program for `cancel_everywhere` returns `()` or a `Result` whose error is an `Error + Send + Sync`, such as `Box<dyn Error + Send + Sync>`"
)]
pub trait Ending {
    /// The error that the program ended with, if it did.
    fn into_error(self) -> Option<Box<dyn Error + Send + Sync>>;
}

impl Ending for () {
    fn into_error(self) -> Option<Box<dyn Error + Send + Sync>> {
        None
    }
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> Ending for Result<T, E> {
    fn into_error(self) -> Option<Box<dyn Error + Send + Sync>> {
        self.err().map(Into::into)
    }
}

/// The options of [`cancel_everywhere`].
///
/// # Examples
///
/// ```
/// use dapple::sim::CancelEverywhere;
/// use dapple::time::{Duration, sleep};
///
/// let count = CancelEverywhere::new()
///     .seeds(3)
///     .run(|| sleep(Duration::from_secs(60)), || async {});
/// assert_eq!(count.waits, 3); // one for each seed
/// assert_eq!(count.runs, 12); // cancelled before it began, and while it waited; dropped; late
/// ```
#[derive(Clone, Debug)]
#[must_use = "call `.run(work, check)`"]
pub struct CancelEverywhere {
    sim: Sim,
    seeds: u64,
    waits: usize,
    cancels_tasks: bool,
    allows_errors: bool,
    test: Option<&'static str>,
}

/// The numbers of waits and runs of [`CancelEverywhere::run`].
///
/// # Examples
///
/// ```
/// use dapple::sim::CancelEverywhere;
/// use dapple::time::{Duration, sleep};
///
/// let work = || async { sleep(Duration::from_secs(1)).await };
/// let count = CancelEverywhere::new().run(work, || async {});
/// assert_eq!((count.waits, count.tried), (1, 1));
/// assert!(count.runs >= count.tried); // each wait is tried in several ways
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CancelCount {
    /// The waits of all reference runs that count: not nested, not shielded.
    pub waits: usize,
    /// The waits at which something was tried.
    pub tried: usize,
    /// The waits that were skipped because they are in a [`shield`](crate::shield).
    pub shielded: usize,
    /// The runs, without the references.
    pub runs: usize,
}

impl Default for CancelEverywhere {
    fn default() -> CancelEverywhere {
        CancelEverywhere::new()
    }
}

impl CancelEverywhere {
    /// Makes options for one seed, at most 1,000 waits, and four workers.
    pub fn new() -> CancelEverywhere {
        CancelEverywhere {
            sim: Sim::new(0),
            seeds: 1,
            waits: WAITS,
            cancels_tasks: false,
            allows_errors: false,
            test: None,
        }
    }

    /// Sets the number of seeds, from 0 on. The order of tasks differs between them, and so may the waits.
    ///
    /// # Panics
    ///
    /// If it is zero.
    #[track_caller]
    pub fn seeds(mut self, seeds: u64) -> CancelEverywhere {
        assert!(seeds > 0, "CancelEverywhere::seeds: it must be at least 1");
        self.seeds = seeds;
        self
    }

    /// Sets the most waits of each seed that are tried. If there are more, they are evenly drawn.
    ///
    /// # Panics
    ///
    /// If it is zero.
    #[track_caller]
    pub fn waits(mut self, waits: usize) -> CancelEverywhere {
        assert!(waits > 0, "CancelEverywhere::waits: it must be at least 1");
        self.waits = waits;
        self
    }

    /// Sets the number of virtual workers.
    ///
    /// # Panics
    ///
    /// As [`Sim::workers`].
    #[track_caller]
    pub fn workers(mut self, workers: usize) -> CancelEverywhere {
        self.sim = self.sim.workers(workers);
        self
    }

    /// Cancels the task of a wait, and all of `work` for a wait in `work` itself, in place of the innermost `finish`.
    pub fn cancel_tasks(mut self) -> CancelEverywhere {
        self.cancels_tasks = true;
        self
    }

    /// Lets `work` return any error in a run that is disturbed: for programs in which the cancel of one task makes
    /// another fail, by a closed channel for example.
    pub fn allow_errors(mut self) -> CancelEverywhere {
        self.allows_errors = true;
        self
    }

    /// Makes the runs; see [`cancel_everywhere`].
    ///
    /// # Panics
    ///
    /// As [`cancel_everywhere`].
    #[track_caller]
    pub fn run<W, C>(&self, work: impl FnMut() -> W, check: impl FnMut() -> C) -> CancelCount
    where
        W: Future,
        W::Output: Ending,
        C: Future,
        C::Output: Outcome,
    {
        let begun = Instant::now();
        let (only, seed) = (Disturbance::from_environment(), number(super::explore::SEED));
        match self.try_all(only, seed, work, check) {
            Ok(count) => {
                let seeds = if seed.is_some() { 1 } else { self.seeds };
                eprintln!("{}", summary(count, seeds, only, begun.elapsed()));
                count
            }
            Err(failure) => failure.in_test(self.test).report_and_unwind(),
        }
    }

    /// As [`run`](Self::run), without output. Returns the first failure as a value, and ignores the environment.
    ///
    /// # Errors
    ///
    /// The first failure.
    ///
    /// # Panics
    ///
    /// On a worker of a runtime, and inside of a simulation.
    #[track_caller]
    pub fn try_run<W, C>(
        &self,
        work: impl FnMut() -> W,
        check: impl FnMut() -> C,
    ) -> Result<CancelCount, Failure>
    where
        W: Future,
        W::Output: Ending,
        C: Future,
        C::Output: Outcome,
    {
        self.try_all(None, None, work, check)
    }

    /// Runs the body of a test.
    #[track_caller]
    pub(crate) fn run_test<W>(
        name: &'static str,
        workers: Option<usize>,
        seeds: Option<u64>,
        waits: Option<usize>,
        allows_errors: bool,
        work: impl FnMut() -> W,
    ) where
        W: Future,
        W::Output: Ending,
    {
        let mut this = CancelEverywhere::new();
        this.allows_errors = allows_errors;
        this.test = Some(name.split_once("::").map_or(name, |(_, path)| path));
        this = workers.into_iter().fold(this, CancelEverywhere::workers);
        this = seeds.into_iter().fold(this, CancelEverywhere::seeds);
        this = waits.into_iter().fold(this, CancelEverywhere::waits);
        this.run(work, || async {});
    }

    #[track_caller]
    fn try_all<W, C>(
        &self,
        only: Option<Disturbance>,
        seed: Option<u64>,
        mut work: impl FnMut() -> W,
        mut check: impl FnMut() -> C,
    ) -> Result<CancelCount, Failure>
    where
        W: Future,
        W::Output: Ending,
        C: Future,
        C::Output: Outcome,
    {
        if !OBSERVES {
            panic!(
                "cancel_everywhere needs a build with debug assertions: test without `--release`, or set \
                 `debug-assertions = true` for dapple in the profile"
            );
        }
        assert!(
            !world::is_simulated(),
            "cancel_everywhere inside of a simulation: run them one after the other"
        );
        let mut count = CancelCount::default();
        for seed in seed.map_or(0..=self.seeds - 1, |seed| seed..=seed) {
            let sim = Sim { seed, ..self.sim.clone() };
            let traced = Sim { is_traced: true, ..sim.clone() };
            let mut run = |plan: Option<Plan>, polls| {
                // The place is only wanted for a run that has failed, so that run is also traced.
                let sim = if plan.is_some_and(|plan| plan.keeps_place) { &traced } else { &sim };
                let points = CancelPoints::new(plan, crate::scope::drop_started);
                let program = Program::new(async { work().await }, points.clone());
                (program::run(sim, &points, polls, program, &mut check), points)
            };
            let reference = Reference::find(&sim, &mut run)?;
            count.waits += reference.waits.len();
            count.shielded += reference.shielded;
            for target in reference.targets(self.waits, only) {
                count.tried += usize::from(target.is_first);
                count.runs += 1;
                let plan = Plan {
                    wait: reference.waits[target.number - 1],
                    mode: target.mode,
                    cancels_task: self.cancels_tasks,
                    keeps_place: false,
                    patience: reference.polls.max(LEAST_PATIENCE),
                };
                let most_polls = Some((reference.polls * MOST_POLLS).max(LEAST_POLLS));
                let tried = self.judge(&sim, &reference, run(Some(plan), most_polls));
                if let Err(failure) = tried {
                    // Runs it once more, to find the place.
                    let again = run(Some(Plan { keeps_place: true, ..plan }), most_polls);
                    let spawned_at = again.1.spawned_at();
                    let place = again.1.take_place().map(|place| WaitSite::of(&place, spawned_at));
                    let failure = self.judge(&traced, &reference, again).err().unwrap_or(failure);
                    return Err(reference.failed(target, failure, place));
                }
            }
            if let Some(only) = only.filter(|only| only.number > reference.waits.len()) {
                let why = format!("{CANCEL}={only}: there are only {} waits", reference.waits.len());
                return Err(failure(&sim, why));
            }
        }
        Ok(count)
    }

    /// Decides whether a run has passed.
    fn judge<T: Ending>(
        &self,
        sim: &Sim,
        reference: &Reference,
        (run, points): (Run<T>, Rc<CancelPoints>),
    ) -> Result<(), Failure> {
        let trace = run.trace.unwrap_or_else(|| Trace::new(sim, PollLog::default()));
        let failed = |why| Err(Failure::of(sim, why, trace));
        // A later panic may only follow from the first: a poisoned lock, a dropped sender.
        let mut expected = reference.panics.clone();
        let first = run.panics.iter().find(|panic| {
            let at = expected.iter().position(|other| other == *panic);
            at.map(|at| expected.swap_remove(at)).is_none()
        });
        if let Some(failure) = run.failure {
            let earlier = first.filter(|first| !failure.why().contains(first.as_str()));
            let why =
                earlier.map(|earlier| format!("{}\nbefore that, a task panicked: {earlier}", failure.why()));
            return Err(match why {
                Some(why) => failure.with_why(why),
                None => failure,
            });
        }
        if !points.is_done() {
            return failed(NOT_THE_SAME.to_owned());
        }
        if let Some(first) = first {
            return failed(format!("a task panicked: {first}"));
        }
        match run.ended {
            Some(ProgramEnd::Returned(output)) => match output.into_error() {
                Some(error) if !self.allows_errors && !is_expected(&*error) => failed(format!(
                    "it returned an error that is not a cancellation: {error}. If that is right in a program of which \
                     one part was cancelled: #[dapple::test(cancel_everywhere, allow_errors)], or \
                     CancelEverywhere::allow_errors"
                )),
                _ => Ok(()),
            },
            Some(ProgramEnd::Dropped) | None => Ok(()),
        }
    }
}

fn summary(count: CancelCount, seeds: u64, only: Option<Disturbance>, elapsed: Duration) -> String {
    let CancelCount { waits, tried, shielded, runs } = count;
    if let Some(only) = only {
        return format!("dapple: {CANCEL}={only} alone: it did not fail");
    }
    let drawn = if tried < waits { ", evenly drawn (CancelEverywhere::waits sets how many)" } else { "" };
    let skipped = if shielded > 0 { format!("; {shielded} shielded ones skipped") } else { String::new() };
    let seeds = if seeds == 1 { "1 seed".to_owned() } else { format!("{seeds} seeds") };
    format!(
        "dapple: cancelled everywhere: {tried} of {waits} waits{drawn}, {runs} runs, {seeds}{skipped}; {:.1} s",
        elapsed.as_secs_f64()
    )
}

/// A failure other than a panic of the program.
fn failure(sim: &Sim, why: String) -> Failure {
    Failure::of(sim, why, Trace::new(sim, PollLog::default()))
}

const NOT_THE_SAME: &str = "the waits of two runs with the same seed differ: is there anything in it that does not go \
                            by the seed, such as a HashMap, the system's clock, a static or a thread of its own? See \
                            dapple::sim";

/// Whether an error is one that a cancelled or aborted program returns.
fn is_expected(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        cause.is::<Cancelled>() || cause.downcast_ref::<JoinError>().is_some_and(JoinError::is_aborted)
    })
}

/// A wait of the reference, and the disturbance there.
#[derive(Clone, Copy)]
struct Disturbance {
    /// The number of the wait, from 1, among those that count.
    number: usize,
    mode: Mode,
    /// Whether it is the first mode of its wait.
    is_first: bool,
}

impl std::fmt::Display for Disturbance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.number, name(self.mode))
    }
}

fn name(mode: Mode) -> &'static str {
    match mode {
        Mode::CancelBefore => "before",
        Mode::CancelAfter => "after",
        Mode::Drop => "drop",
        Mode::Late => "late",
    }
}

impl Disturbance {
    /// The target in the environment, if it is set.
    #[track_caller]
    fn from_environment() -> Option<Disturbance> {
        let value = std::env::var_os(CANCEL).filter(|value| !value.is_empty())?;
        let target = value.to_str().and_then(Disturbance::parse);
        assert!(
            target.is_some(),
            "{CANCEL}={}: it must be the number of a wait and a mode (before, after, drop, late): 17:late",
            value.display()
        );
        target
    }

    fn parse(text: &str) -> Option<Disturbance> {
        let (number, mode) = text.trim().split_once(':')?;
        let number = number.parse().ok().filter(|number| *number > 0)?;
        let mode = MODES.into_iter().find(|candidate| name(*candidate) == mode)?;
        Some(Disturbance { number, mode, is_first: true })
    }
}

/// An undisturbed run.
struct Reference {
    seen: Vec<ReferenceWait>,
    /// The indices of the waits that count.
    waits: Vec<usize>,
    shielded: usize,
    polls: u64,
    /// The messages of tasks that panic undisturbed, too.
    panics: Vec<String>,
}

impl Reference {
    /// Runs the program twice.
    #[track_caller]
    fn find<T: Ending>(
        sim: &Sim,
        run: &mut impl FnMut(Option<Plan>, Option<u64>) -> (Run<T>, Rc<CancelPoints>),
    ) -> Result<Reference, Failure> {
        let mut once = || {
            let (run, points) = run(None, Some(REFERENCE_POLLS));
            if let Some(failure) = run.failure {
                let why = format!("undisturbed, before anything was cancelled: {}", failure.why());
                return Err(failure.with_why(why));
            }
            let seen = points.take_seen();
            match run.ended {
                Some(ProgramEnd::Returned(output)) => match output.into_error() {
                    Some(error) => Err(failure(
                        sim,
                        format!(
                            "undisturbed, it returned an error: {error}. What is cancelled everywhere has to succeed when \
                         it is not"
                        ),
                    )),
                    None => Ok((seen, run.polls, run.panics, points.shielded())),
                },
                _ => unreachable!("without a plan nothing is dropped"),
            }
        };
        let (seen, polls, panics, shielded) = once()?;
        let (second, ..) = once()?;
        if seen != second {
            let at = seen.iter().zip(&second).take_while(|(one, two)| one == two).count();
            let what = |seen: &[ReferenceWait]| match seen.get(at) {
                Some(wait) => format!("of task {} for {}", wait.task, wait.waited_for.unwrap_or("nothing")),
                None => "none".to_owned(),
            };
            let why = format!(
                "{NOT_THE_SAME}. The first that differs is number {}: {}, then {}",
                at + 1,
                what(&seen),
                what(&second)
            );
            return Err(failure(sim, why));
        }
        let waits = (0..seen.len()).filter(|index| !seen[*index].is_outer).collect();
        Ok(Reference { seen, waits, shielded, polls, panics })
    }

    /// The targets: all waits, or `most` of them, evenly drawn, in all modes; or the only one.
    fn targets(&self, most: usize, only: Option<Disturbance>) -> Vec<Disturbance> {
        if let Some(only) = only {
            return (only.number <= self.waits.len()).then_some(only).into_iter().collect();
        }
        let count = self.waits.len().min(most);
        let numbers = (0..count).map(|index| index * self.waits.len() / count.max(1) + 1);
        numbers
            .flat_map(|number| {
                let has_waited = self.seen[self.waits[number - 1]].waited_for.is_some();
                let applies =
                    move |mode: &Mode| has_waited || matches!(mode, Mode::CancelBefore | Mode::Late);
                let is_first = |mode| mode == MODES[0];
                MODES.into_iter().filter(applies).map(move |mode| Disturbance {
                    number,
                    mode,
                    is_first: is_first(mode),
                })
            })
            .collect()
    }

    fn failed(&self, target: Disturbance, failure: Failure, place: Option<WaitSite>) -> Failure {
        let wait = &self.seen[self.waits[target.number - 1]];
        let what = match target.mode {
            Mode::CancelBefore => "cancelled before it began",
            Mode::CancelAfter => "cancelled while it waited",
            Mode::Drop => "dropped while it waited",
            Mode::Late => "held back until nothing else could run",
        };
        let kind = match (wait.waited_for, place.as_ref().and_then(WaitSite::kind)) {
            (Some(waited_for), Some(kind)) => format!("{kind}, for {waited_for}"),
            (Some(waited_for), None) => format!("for {waited_for}"),
            (None, Some(kind)) => kind.to_owned(),
            (None, None) => "ready at once".to_owned(),
        };
        let at = place
            .as_ref()
            .map_or("a place that is not known (no debug information?)".to_owned(), WaitSite::to_string);
        let why = format!(
            "wait {} of {} ({kind}), in task {}, {what}: {}\nthe wait began at {at}",
            target.number,
            self.waits.len(),
            wait.task,
            failure.why()
        );
        failure.with_why(why).with_variable(format!("{CANCEL}={target}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(waits: usize) -> Reference {
        let (panics, polls) = (Vec::new(), 0);
        let seen = (0..waits).map(|_| ReferenceWait::for_tests(Some("a message"))).collect();
        Reference { seen, waits: (0..waits).collect(), shielded: 0, polls, panics }
    }

    #[test]
    fn waits_are_evenly_drawn() {
        let numbers = |waits, most| -> Vec<usize> {
            let targets = reference(waits).targets(most, None);
            targets.iter().filter(|target| target.is_first).map(|target| target.number).collect()
        };
        assert_eq!(numbers(3, 10), [1, 2, 3]);
        assert_eq!(numbers(10, 5), [1, 3, 5, 7, 9]);
        assert_eq!(numbers(7, 2), [1, 4]);
        assert_eq!(numbers(0, 2), [0; 0]);
    }

    #[test]
    fn a_target_is_read_as_it_is_written() {
        let target = Disturbance::parse("17:late").unwrap();
        assert_eq!((target.number, target.mode, target.to_string()), (17, Mode::Late, "17:late".to_owned()));
        for wrong in ["", "17", "late", "0:late", "17:never", "-1:drop"] {
            assert!(Disturbance::parse(wrong).is_none(), "{wrong}");
        }
    }
}
