//! A failed run: its seed, the reason, and the command that runs it again.

mod rerun;

use std::any::Any;
use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;

pub(super) use rerun::shows_all;

use super::{Sim, Trace};

/// The variable that names the file for the trace of a failed run.
const TRACE: &str = "DAPPLE_TRACE";

/// A failed run: its seed, the reason, and the command that runs it again.
///
/// `Display` writes all three. [`Sim::run`], [`explore`](super::explore()) and
/// `#[dapple::test(sim)]` print before they panic:
///
/// ```text
/// dapple: the simulation failed with seed 17: panicked: no money left
/// run it again: DAPPLE_SEED=17 cargo test -p bank --test accounts -- --exact --nocapture two_withdraw
/// ```
///
/// If `DAPPLE_TRACE` is set, they also write the [`Trace`] of that run: into the file that it names, or to
/// stderr if it is `-`. [`explore`](super::explore()) and tests repeat the failed run for that, because only
/// that run is traced.
///
/// # Examples
///
/// ```
/// use dapple::sim::Sim;
///
/// let failure = Sim::new(17).try_run(async { panic!("no money left") }).unwrap_err();
/// assert_eq!(failure.seed(), 17);
/// assert_eq!(failure.why(), "panicked: no money left");
/// assert!(failure.run_again().contains("DAPPLE_SEED=17 "));
/// ```
pub struct Failure {
    seed: u64,
    why: String,
    /// The payload of the future's panic.
    payload: Option<Box<dyn Any + Send>>,
    trace: Trace,
    is_traced: bool,
    /// The name of the test, if it is known.
    test: Option<Cow<'static, str>>,
    /// The assignment of a variable, besides the seed, that the repetition needs.
    variable: Option<Box<str>>,
}

/// The payload that a future unwinds with after it returned a failure. It is not a panic, and prints nothing.
pub(super) struct Returned(pub(super) String);

impl Failure {
    pub(super) fn of(sim: &Sim, why: String, trace: Trace) -> Failure {
        let test = rerun::test_of_this_thread().map(Cow::Owned);
        Failure { seed: sim.seed, why, payload: None, trace, is_traced: sim.is_traced, test, variable: None }
    }

    pub(super) fn panicked(sim: &Sim, payload: Box<dyn Any + Send>, trace: Trace) -> Failure {
        let payload = match payload.downcast::<Returned>() {
            Ok(returned) => return Failure::of(sim, returned.0, trace),
            Err(payload) => payload,
        };
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let why = format!("panicked: {}", text.unwrap_or("(not a text)"));
        Failure { payload: Some(payload), ..Failure::of(sim, why, trace) }
    }

    /// Sets the name of the test.
    pub(super) fn in_test(self, name: Option<&'static str>) -> Failure {
        Failure { test: name.map(Cow::Borrowed).or(self.test), ..self }
    }

    /// Replaces the reason.
    pub(super) fn with_why(self, why: String) -> Failure {
        Failure { why, ..self }
    }

    /// Sets an assignment of a variable that the repetition needs.
    pub(super) fn with_variable(self, variable: String) -> Failure {
        Failure { variable: Some(variable.into()), ..self }
    }

    /// The seed of the run.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The reason: the message of the panic; the error that was returned; the deadlock, with all
    /// tasks and the waits that they are in.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// The trace of the run, if it was traced.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    pub(super) fn is_traced(&self) -> bool {
        self.is_traced
    }

    /// The command line, for a shell, that runs it again.
    ///
    /// It is built from the facts that a program can find out about its own start: by `cargo test` or `cargo run` (run
    /// the command in the same workspace; features are not known, so add `--features` if there were any), or by
    /// hand. [`explore`](super::explore()) and `#[dapple::test(sim)]` take the seed from it. If the seed
    /// is in the program, as with [`Sim::run`], the variable has no effect.
    #[must_use]
    pub fn run_again(&self) -> String {
        let variable = self.variable.as_ref().map(|variable| format!("{variable} ")).unwrap_or_default();
        format!("DAPPLE_SEED={} {variable}{}", self.seed, rerun::command(self.test.as_deref()))
    }

    /// Prints it, and resumes the panic of the future.
    pub(super) fn report_and_unwind(self) -> ! {
        let trace = wants_trace().map(|place| self.write_trace(&place));
        eprintln!("{self}{}", trace.unwrap_or_default());
        // The panic hook is not called: the future's panic has called it, and the report is printed.
        let why = || Box::new(format!("the simulation failed with seed {}: {}", self.seed, self.why));
        std::panic::resume_unwind(self.payload.unwrap_or_else(|| why()))
    }

    /// Writes the trace, and returns a sentence about the outcome.
    fn write_trace(&self, place: &OsString) -> String {
        if !self.is_traced {
            return "\nits trace: this run has none".to_owned();
        }
        if place == "-" {
            return format!("\nits trace:\n{}", self.trace);
        }
        let path = std::path::absolute(place).unwrap_or_else(|_| Path::new(place).to_owned());
        match std::fs::write(&path, self.trace.to_string()) {
            Ok(()) => format!("\nits trace: {}", path.display()),
            Err(error) => format!("\nits trace: {TRACE}={}: {error}", path.display()),
        }
    }
}

/// The destination for the trace of a failed run, if one is wanted.
pub(super) fn wants_trace() -> Option<OsString> {
    std::env::var_os(TRACE).filter(|place| !place.is_empty())
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dapple: the simulation failed with seed {}: {}", self.seed, self.why)?;
        write!(f, "\nrun it again: {}", self.run_again())
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure").field("seed", &self.seed).field("why", &self.why).finish_non_exhaustive()
    }
}

impl std::error::Error for Failure {}
