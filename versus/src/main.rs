//! The same work on Dapple and on its rivals, in one run.
//!
//! `cargo versus CASE...`; `list` names the cases. All sides
//! use mimalloc. A contest ([`contest`]) runs its sides interleaved, each round
//! on a fresh runtime while no other is alive, and the report ([`report`]) gives
//! medians with their spread and, in a fixed form, the ratios to the rivals.

mod args;
mod cases;
mod child;
mod contest;
mod crowd;
mod curve;
mod denied;
mod guard;
mod json;
mod keepers;
mod kernels;
mod load;
mod plot;
mod prepared;
mod probe;
mod progress;
mod report;
mod round;
mod scatter;
mod served;
mod setting;
mod sides;
mod signal;
mod spin;
mod stats;
mod stms;
mod web;
mod work;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::args::{Command, Options};
use crate::contest::Failure;
use crate::progress::Progress;
use crate::setting::Setting;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The exit code for a command line that makes no sense.
const MISUSE: u8 = 2;

fn main() -> ExitCode {
    allow_descriptors();
    let command = match args::parse(lexopt::Parser::from_env()) {
        Ok(command) => command,
        Err(error) => return fail(&error.to_string(), MISUSE),
    };
    let done = match command {
        Command::Help => {
            print!("{}", args::HELP);
            Ok(())
        }
        Command::List { json: true } => {
            println!("{:#}", round::list(&cases::all()));
            Ok(())
        }
        Command::List { json: false } => {
            list();
            Ok(())
        }
        Command::Guard(options) => return guard::run(&options),
        Command::Round { case, side, scale } => {
            let all = cases::all();
            match round::select(&all, &case, &side) {
                Ok((contest, entry)) => round::run(contest, entry, scale).map(|said| println!("{said}")),
                Err(error) => return fail(&error, MISUSE),
            }
        }
        Command::MemoryChild { side, name, tasks } => {
            cases::memory::child(&side, &name, tasks).map(|bytes| println!("{bytes}"))
        }
        Command::Serve { name, side } => cases::serve(&name, &side),
        Command::Load { name, server, operations } => cases::load(&name, &server, operations),
        Command::Run(options) => match args::select(cases::all(), &options.cases) {
            Ok(contests) => run(&contests, &options),
            Err(error) => return fail(&error, MISUSE),
        },
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error, 1),
    }
}

/// Raises the limit of file descriptors, for this process and those that it starts, as far as the system allows: some
/// cases have thousands of connections. If the limit is still too low, opening a connection fails.
fn allow_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}

fn fail(error: &str, code: u8) -> ExitCode {
    eprintln!("versus: {error}");
    ExitCode::from(code)
}

fn list() {
    for contest in cases::all() {
        println!("{:<22}{}", contest.name, contest.about);
    }
}

/// Runs the contests, printing each when it is done, then stores what was asked for.
fn run(contests: &[contest::Contest], options: &Options) -> Result<(), Failure> {
    let (setting, progress) = (Setting::now(), Progress::new());
    println!("{}\n", setting.describe());
    let mut outcomes = Vec::new();
    for contest in contests {
        let outcome = contest.run(options.scale, &progress)?;
        report::print(&outcome);
        outcomes.push(outcome);
    }
    if let Some(path) = &options.json {
        store(path, &json::run(&setting, options.scale, &outcomes))?;
    }
    if let Some(path) = &options.plot {
        store(path, &plot::svg(&outcomes))?;
    }
    Ok(())
}

fn store(path: &Path, text: &str) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
