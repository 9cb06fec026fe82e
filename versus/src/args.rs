//! The command line.

use std::num::NonZeroU32;
use std::path::PathBuf;

use lexopt::ValueExt;
use lexopt::prelude::{Long, Short, Value};

use crate::cases::memory;
use crate::contest::{Contest, Scale};
use crate::{guard, served};

/// The text of `--help`.
pub(crate) const HELP: &str = "\
The same work on Dapple and on its rivals, in one run.

Usage: versus [OPTION]... [CASE | CASE/VARIANT | all | list]...
       versus list --json
       versus --round CASE SIDE [--tasks N]
       versus guard --against COMMIT [--quick] [--json FILE] [CASE]...

  list           name the cases (with `--json`: with their sides)
  all            run all of them (so does naming none)

  --rounds N     rounds that count, 7 unless said otherwise (some cases: at most 3 or 5)
  --quick        a smoke test: 3 rounds of little work, numbers mean nothing
  --tasks N      live tasks in `memory`, 10 million unless said otherwise
  --json FILE    store the run, with machine, versions and commit
  --plot FILE    draw the medians as an SVG, with curves for `callback`, `fifo`, `disk`,
                 `blocked`, `overload` and `load`

  --round CASE SIDE
                 print one sample of one side as JSON, with its warm-up, in this process

  guard          compare Dapple in this tree, which must be clean, with Dapple at a commit
    --against COMMIT
                 the commit to compare with
    --quick      the most important cases at full scale, within 15 minutes; else all, within 90
    --json FILE  store every sample and the verdicts

The guard ends with 0 if nothing was lost, 1 if something was, 2 if it could not run (an unknown
case or commit, a tree with changes, a build that fails), and 3 if nothing was lost but some case
could not be judged, because the machine was busy or samples differ too much.
";

/// The command that the program was asked to run.
pub(crate) enum Command {
    Help,
    List {
        json: bool,
    },
    Run(Options),
    /// Compare two commits.
    Guard(guard::Options),
    /// Measure one sample of one side.
    Round {
        case: String,
        side: String,
        scale: Scale,
    },
    /// Measure one side of `memory` in this process.
    MemoryChild {
        side: String,
        name: String,
        tasks: u64,
    },
    /// Be the server of a case.
    Serve {
        name: String,
        side: String,
    },
    /// Be the load of a case.
    Load {
        name: String,
        server: String,
        operations: usize,
    },
}

/// Which cases to run, how, and where to put the results.
pub(crate) struct Options {
    pub(crate) cases: Vec<String>,
    pub(crate) scale: Scale,
    pub(crate) json: Option<PathBuf>,
    pub(crate) plot: Option<PathBuf>,
}

/// Reads the command line.
pub(crate) fn parse(mut parser: lexopt::Parser) -> Result<Command, lexopt::Error> {
    let mut cases = Vec::new();
    let (mut rounds, mut tasks) = (None, None);
    let (mut json, mut plot, mut round) = (None, None, None);
    let (mut quick, mut list) = (false, false);
    while let Some(argument) = parser.next()? {
        match argument {
            Value(case) if case == "list" => list = true,
            Value(case) if case == "guard" && cases.is_empty() => {
                return guard::parse(parser).map(Command::Guard);
            }
            Value(case) => cases.push(case.string()?),
            Long("rounds") => rounds = Some(at_least_one(&mut parser)? as usize),
            Long("tasks") => tasks = Some(at_least_one(&mut parser)?.into()),
            Long("quick") => quick = true,
            // The list goes to standard output, a run into a file.
            Long("json") if list => return Ok(Command::List { json: true }),
            Long("json") => json = Some(parser.value()?.into()),
            Long("round") => round = Some((parser.value()?.string()?, parser.value()?.string()?)),
            Long("plot") => plot = Some(parser.value()?.into()),
            Long("help") | Short('h') => return Ok(Command::Help),
            Long(memory::CHILD) => {
                return Ok(Command::MemoryChild {
                    side: parser.value()?.string()?,
                    name: parser.value()?.string()?,
                    tasks: at_least_one(&mut parser)?.into(),
                });
            }
            Long(served::SERVE) => {
                return Ok(Command::Serve {
                    name: parser.value()?.string()?,
                    side: parser.value()?.string()?,
                });
            }
            Long(served::LOAD) => {
                return Ok(Command::Load {
                    name: parser.value()?.string()?,
                    server: parser.value()?.string()?,
                    operations: at_least_one(&mut parser)? as usize,
                });
            }
            other => return Err(other.unexpected()),
        }
    }
    if list {
        return Ok(Command::List { json: false });
    }
    let scale = Scale {
        quick,
        rounds: rounds.unwrap_or(if quick { 3 } else { 7 }),
        tasks: tasks.unwrap_or(if quick { 200_000 } else { 10_000_000 }),
    };
    if let Some((case, side)) = round {
        return Ok(Command::Round { case, side, scale });
    }
    Ok(Command::Run(Options { cases, scale, json, plot }))
}

pub(crate) fn at_least_one(parser: &mut lexopt::Parser) -> Result<u32, lexopt::Error> {
    let number: NonZeroU32 = parser.value()?.parse()?;
    Ok(number.get())
}

/// The contests that the arguments name, each once; an error lists all cases.
pub(crate) fn select(all: Vec<Contest>, cases: &[String]) -> Result<Vec<Contest>, String> {
    for case in cases {
        if case != "all" && !all.iter().any(|contest| contest.is_named(case)) {
            let names: Vec<&str> = all.iter().map(|contest| contest.name).collect();
            let names = names.join(", ");
            return Err(format!("no case is called {case:?}; the cases are: {names}"));
        }
    }
    let every = cases.is_empty() || cases.iter().any(|case| case == "all");
    let named = |contest: &Contest| cases.iter().any(|case| contest.is_named(case));
    Ok(all.into_iter().filter(|c| every || named(c)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cases;

    fn names(arguments: &[&str]) -> Result<Vec<&'static str>, String> {
        let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        let selected = select(cases::all(), &arguments)?;
        Ok(selected.iter().map(|contest| contest.name).collect())
    }

    #[test]
    fn a_case_means_all_its_variants() {
        let both = ["onelane/spawn", "onelane/yield"];
        assert_eq!(names(&["onelane"]).unwrap(), both);
        assert_eq!(names(&["onelane/yield"]).unwrap(), both[1..]);
    }

    #[test]
    fn no_case_means_all() {
        assert_eq!(names(&[]), names(&["all"]));
    }

    #[test]
    fn an_unknown_case_is_refused_with_a_list() {
        let error = names(&["spawn", "spwan"]).unwrap_err();
        assert!(error.contains("\"spwan\"") && error.contains("memory/arc-detached"));
    }
}
