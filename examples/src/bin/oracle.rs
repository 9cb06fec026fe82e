//! Compares Dapple with the rules of a paper: 100,000 random programs, every outcome of each.
//!
//! You learn how to check a concurrent library against an executable specification.
//!
//! Run it: `cargo run --release -p examples --bin oracle`. No second terminal is needed. In "AC: Composable Asynchronous IO
//! for Native Languages" (2011) Harris and others gave `async`, `do..finish` and `cancel` a meaning by rules, on a page.
//! `examples::oracle` has these rules as a program that finds every outcome of a small program.
//!
//! * **Random programs** with pools in pools, loops, cancels and operations that can be cancelled or not; one, two or three
//!   side by side, which send each other messages.
//! * **Each is run** in many ways: in simulations by different seeds, on one real worker, on four. The outcome (variables,
//!   messages that are left, and whether it is stuck) must be among those that the rules allow.
//! * **A violation** is made as small as it gets, and printed with the outcomes that would have been allowed.

use std::process::ExitCode;
use std::time::Instant;

use examples::oracle::check::{Effort, Places, Totals, programs};
use examples::oracle::generate::Kind;
use examples::oracle::rules::Rules;
use indicatif::{ProgressBar, ProgressStyle};
use lexopt::prelude::*;

const HELP: &str = "\
Runs random programs, and checks that they do what the rules allow.

Usage: oracle [--count N] [--seed N] [--from N] [--simulations N] [--runs N] [--states N] [--show]

  --count N         how many programs (100000)
  --seed N          which programs (1)
  --from N          the number of the first one (0)
  --simulations N   how often each is simulated, by each of two sets of rules (3)
  --runs N          how often each is run on one worker and on four, by each (1)
  --states N        leave out programs with more states than this (1000)
  --show            print the programs, and what they may do, and run nothing
";

struct Settings {
    count: u64,
    seed: u64,
    from: u64,
    effort: Effort,
    is_shown: bool,
}

fn main() -> ExitCode {
    match start() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("oracle: {error}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> Result<ExitCode, lexopt::Error> {
    let mut settings =
        Settings { count: 100_000, seed: 1, from: 0, effort: Effort::default(), is_shown: false };
    let effort = &mut settings.effort;
    let mut arguments = lexopt::Parser::from_env();
    while let Some(argument) = arguments.next()? {
        match argument {
            Short('h') | Long("help") => {
                print!("{HELP}");
                return Ok(ExitCode::SUCCESS);
            }
            Long("count") => settings.count = arguments.value()?.parse()?,
            Long("seed") => settings.seed = arguments.value()?.parse()?,
            Long("from") => settings.from = arguments.value()?.parse()?,
            Long("simulations") => effort.simulations = arguments.value()?.parse()?,
            Long("runs") => effort.runs = arguments.value()?.parse()?,
            Long("states") => effort.states = arguments.value()?.parse()?,
            Long("show") => settings.is_shown = true,
            other => return Err(other.unexpected()),
        }
    }
    if settings.is_shown {
        show(&settings);
        return Ok(ExitCode::SUCCESS);
    }
    ask(&settings).map_err(|error| lexopt::Error::Custom(error.into()))
}

fn show(settings: &Settings) {
    for number in settings.from..settings.from + settings.count {
        let programs = programs(settings.seed, number, Kind::Any);
        println!("{number}:\n{programs}\n");
        for rules in [Rules::Dapple, Rules::Paper] {
            match rules.outcomes(&programs, settings.effort.states) {
                Some(outcomes) => outcomes.iter().for_each(|outcome| println!("{rules:?}: {outcome}")),
                None => println!("{rules:?}: too many states"),
            }
        }
        println!();
    }
}

fn ask(settings: &Settings) -> std::io::Result<ExitCode> {
    let &Settings { count, seed, from, effort, .. } = settings;
    let places = Places::new(effort)?;
    let style = ProgressStyle::with_template("{bar:30} {pos} of {len} programs, {msg}, {eta} left");
    let bar = ProgressBar::new(count).with_style(style.expect("the template is well formed"));
    let begun = Instant::now();
    let found = places.check_all(seed, from, count, &|totals| {
        if totals.checked.is_multiple_of(64) {
            bar.set_position(totals.checked);
            let met = totals.percent(totals.met);
            bar.set_message(format!(
                "a cancel met a blocked operation in {met:.0} %, 0 outside of the rules"
            ));
        }
    });
    let totals = match found {
        Ok(totals) => totals,
        Err((number, violation)) => {
            bar.abandon();
            println!("\nprogram {number}: {violation}\nas small as it gets:\n");
            println!("{}", places.shrink(violation, number));
            let Effort { simulations, runs, states } = effort;
            println!(
                "run it again: cargo run --release -p examples --bin oracle -- --seed {seed} --from {number} \
                 --count 1 --simulations {simulations} --runs {runs} --states {states}"
            );
            return Ok(ExitCode::FAILURE);
        }
    };
    bar.finish_and_clear();
    let Totals { checked, met, can_be_stuck, too_large, allowed, seen } = totals;
    println!("{checked} programs in {:.1?}, 0 outside of the rules", begun.elapsed());
    println!("in {:.1} % of them a cancel met a blocked operation", totals.percent(met));
    println!("in {:.1} % something can be stuck: these were simulated only", totals.percent(can_be_stuck));
    println!("{seen} outcomes seen, of {allowed} that are allowed");
    println!("{too_large} more were left out, since they have too many states");
    Ok(ExitCode::SUCCESS)
}
