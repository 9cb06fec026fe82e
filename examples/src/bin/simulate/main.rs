//! Virtual time: plan for machines that you do not have, look at a run, and run it again.
//!
//! You learn how to run a service in `dapple::sim`, how to read a trace, and how far virtual and real time agree.
//!
//! Run it: `cargo run --release -p examples --bin simulate`, or with one of the words below. No second terminal is needed.
//!
//! * `-- trace SEED`: which virtual worker ran which task, and when. The same seed gives the same text, to the byte;
//!   another one gives another run. `-- trace SEED long` is a program with a bit of everything.
//! * `-- million`: 64 virtual workers and a million callbacks, and their real time.
//! * `-- compare`: the same programs on two real workers and on two virtual ones.
//!
//! Without a word after `--` a small service is run on 1, 2, 4, ... 64 virtual workers:
//!
//! * **The same code**: nothing in `plan::serve` knows that it is simulated. Lanes, queues, timers and channels are those of
//!   a real runtime; only threads and the clock are not.
//! * **`sim::work`** stands for computation. Outside of a simulation (`compare`) it really computes.

mod compare;
mod million;
mod plan;
mod trace;

use std::process::ExitCode;

use dapple::JoinHandle;
use dapple::time::Duration;
use lexopt::prelude::*;

const HELP: &str = "\
Programs in virtual time.

Usage: simulate [plan | trace SEED [long] | million | compare]

  plan       a service on 1, 2, 4, ... 64 virtual workers (if nothing else is said)
  trace      who ran what, when, and on which worker; `long`: a program with a bit of everything
  million    64 virtual workers, a million callbacks
  compare    the same programs on two real workers and on two virtual ones
";

fn micros(count: u64) -> Duration {
    Duration::from_micros(count)
}

async fn join<T>(handles: impl IntoIterator<Item = JoinHandle<T>>) -> Vec<T> {
    let mut joined = Vec::new();
    for handle in handles {
        joined.push(handle.await.expect("it does not panic"));
    }
    joined
}

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("simulate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<(), lexopt::Error> {
    let mut words = Vec::new();
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            Value(word) => words.push(word.string()?),
            other => return Err(other.unexpected()),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        [] | ["plan"] => plan::plan(),
        ["trace", seed] => trace::trace(seed.parse().map_err(|_| "SEED is a number")?, false),
        ["trace", seed, "long"] => trace::trace(seed.parse().map_err(|_| "SEED is a number")?, true),
        ["million"] => million::million(),
        ["compare"] => compare::compare().map_err(|error| lexopt::Error::Custom(error.into()))?,
        _ => return Err(format!("what is {:?}? see --help", words.join(" ")).into()),
    }
    Ok(())
}
