//! A run that failed: by which seed, why, and how to run it again.

use std::any::Any;
use std::fmt;

use super::{Sim, Trace};

/// A run that failed.
pub struct Failure {
    seed: u64,
    why: String,
    /// What the future panicked with.
    payload: Option<Box<dyn Any + Send>>,
    trace: Trace,
}

impl Failure {
    pub(super) fn of(sim: &Sim, why: String, trace: Trace) -> Failure {
        Failure { seed: sim.seed, why, payload: None, trace }
    }

    pub(super) fn panicked(sim: &Sim, payload: Box<dyn Any + Send>, trace: Trace) -> Failure {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        let why = format!("panicked: {}", text.unwrap_or("(not a text)"));
        Failure { payload: Some(payload), ..Failure::of(sim, why, trace) }
    }

    /// The seed of the run.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What went wrong: the message of the panic; the deadlock, with all tasks and what they wait for.
    #[must_use]
    pub fn why(&self) -> &str {
        &self.why
    }

    /// What happened, if the run was traced.
    #[must_use]
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// One line that runs it again.
    #[must_use]
    pub fn run_again(&self) -> String {
        let release = if cfg!(debug_assertions) { "" } else { " --release" };
        let seed = format!("DAPPLE_SEED={}", self.seed);
        let thread = std::thread::current();
        let test = thread.name().filter(|name| *name != "main");
        match (test, std::env::var("CARGO_PKG_NAME")) {
            (Some(test), Ok(package)) => {
                format!("{seed} cargo test{release} -p {package} {test} -- --exact --nocapture")
            }
            (Some(test), Err(_)) => format!("{seed} {} --exact --nocapture {test}", program()),
            (None, _) => format!("{seed} {}", std::env::args().collect::<Vec<_>>().join(" ")),
        }
    }

    /// Prints it, and goes on as the future did: with its panic.
    #[track_caller]
    pub(super) fn report_and_unwind(self) -> ! {
        eprintln!("{self}");
        match self.payload {
            Some(payload) => std::panic::resume_unwind(payload),
            None => panic!("the simulation failed with seed {}: {}", self.seed, self.why),
        }
    }
}

fn program() -> String {
    std::env::args().next().unwrap_or_default()
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
