//! The figures of libasync-mp's thesis, as experiments in virtual time, on up to 64 workers.
//!
//! You learn how priorities and policies change the speed-up of a service, and how to plan for machines that you do not have.
//!
//! Run it: `cargo run --release -p examples --bin experiments`. No second terminal is needed. It takes about a minute and
//! writes docs/experiments/: a text with the figures, and drawings. `-- --quick --out FOLDER` does less of it.
//!
//! * **figure_3_4**: four callbacks on two workers, and why it matters which goes first.
//! * **sfs**: a file server that does 35% of its work in one color (Figure 5-5).
//! * **web**: a web server with two caches, each of one color (Figure 5-1), and with [`dapple::Shared`] instead.
//!
//! All of it is the program itself, with colors, callbacks and state as a server would use them, in a
//! [`dapple::sim::Sim`], in which [`dapple::sim::work`] stands for computation. So the figures are the same on every machine,
//! and show the schedules without any cost of the scheduler itself.

mod choice;
mod figure_3_4;
mod plot;
mod report;
mod sfs;
mod web;

use std::path::PathBuf;
use std::process::ExitCode;

use choice::Choice;
use dapple::time::Duration;
use indicatif::{ProgressBar, ProgressStyle};
use lexopt::prelude::*;
use report::Report;

const HELP: &str = "\
What libasync-mp's thesis drew and measured, in virtual time.

Usage: experiments [--quick] [--out FOLDER]

  --quick         fewer workers, and less time for each run; nothing is written unless --out is given
  --out FOLDER    where the text and the drawings go (docs/experiments)
";

/// How much is done.
struct Scale {
    /// The numbers of workers.
    workers: Vec<usize>,
    /// The same, for the web server.
    web_workers: Vec<usize>,
    /// The numbers of requests under way.
    crowds: Vec<usize>,
    /// How many policies the web server is run with, in the order of [`Choice::POLICIES`].
    web_policies: usize,
    /// For how long requests are counted, in virtual time.
    sfs: Duration,
    /// The same, on one worker; on more it is shorter.
    web: Duration,
    /// How many seeds are tried, where seeds could make a difference.
    seeds: u64,
}

impl Scale {
    fn whole() -> Scale {
        let workers = vec![1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64];
        Scale {
            web_workers: workers.clone(),
            workers,
            crowds: vec![1, 2, 4, 8, 16, 32, 64, 128, 256],
            web_policies: Choice::POLICIES.len(),
            sfs: Duration::from_secs(12),
            web: Duration::from_secs(1),
            seeds: 100,
        }
    }

    fn quick() -> Scale {
        Scale {
            workers: vec![1, 2, 3, 4, 16],
            web_workers: vec![1, 4, 16],
            crowds: vec![4, 64],
            web_policies: 1,
            sfs: Duration::from_secs(2),
            web: Duration::from_millis(300),
            seeds: 10,
        }
    }
}

/// How far it is.
struct Bar(ProgressBar);

impl Bar {
    fn new(runs: u64) -> Bar {
        let style = "{bar:40} {pos}/{len} [{elapsed}] {msg}";
        Bar(ProgressBar::new(runs).with_style(ProgressStyle::with_template(style).expect("it is one")))
    }

    fn begin(&self, what: String) {
        self.0.set_message(what);
        self.0.tick();
    }

    fn done(&self) {
        self.0.inc(1);
    }
}

fn main() -> ExitCode {
    match start() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("experiments: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<(), lexopt::Error> {
    let (mut is_quick, mut out) = (false, None);
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(());
            }
            Long("quick") => is_quick = true,
            Long("out") => out = Some(PathBuf::from(arguments.value()?)),
            other => return Err(other.unexpected()),
        }
    }
    let scale = if is_quick { Scale::quick() } else { Scale::whole() };
    let out = out.or_else(|| (!is_quick).then(|| PathBuf::from("docs/experiments")));
    let bar = Bar::new(figure_3_4::runs() + sfs::runs(&scale) + web::runs(&scale));
    let mut report = Report::new(bar.0.clone());
    figure_3_4::run(&scale, &bar, &mut report);
    sfs::run(&scale, &bar, &mut report);
    web::run(&scale, &bar, &mut report);
    bar.0.finish_and_clear();
    if let Some(folder) = out {
        report.write(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        println!("written to {}", folder.display());
    }
    Ok(())
}
