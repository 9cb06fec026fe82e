//! `versus guard --against COMMIT`: has this tree lost speed, compared with a commit?
//!
//! Both trees are built by their own `versus/build` ([`tree`]). Each case of the choice ([`choice`]) runs Dapple's
//! side of both, in pairs of fresh processes ([`pairs`]), and is judged by CPU time; bytes, allocations and
//! instructions are counted once ([`counts`]). [`verdict`] has the rules.

mod choice;
mod counts;
mod machine;
mod pairs;
mod table;
mod tree;
mod verdict;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lexopt::ValueExt;
use lexopt::prelude::{Long, Short, Value};
use serde_json::json;

use self::machine::Machine;
use self::pairs::Round;
use self::table::{Line, Report, heading};
use self::tree::{Pair, Tree};
use self::verdict::{FIRST, Series};
use crate::contest::Failure;
use crate::progress::Progress;
use crate::{MISUSE, args, cases};

/// The options of the guard.
pub(crate) struct Options {
    against: String,
    quick: bool,
    cases: Vec<String>,
    json: Option<PathBuf>,
    /// Pairs of the first series; not 11 in tests of the guard itself.
    pairs: usize,
}

/// Live tasks in `memory`.
const TASKS: u64 = 10_000_000;
const QUICK_TASKS: u64 = 1_000_000;

/// Reads the rest of the command line.
pub(crate) fn parse(mut parser: lexopt::Parser) -> Result<Options, lexopt::Error> {
    let (mut against, mut json) = (None, None);
    let (mut quick, mut cases, mut pairs) = (false, Vec::new(), FIRST.pairs);
    while let Some(argument) = parser.next()? {
        match argument {
            Value(case) => cases.push(case.string()?),
            Long("against") => against = Some(parser.value()?.string()?),
            Long("quick") => quick = true,
            Long("json") => json = Some(parser.value()?.into()),
            Long("pairs") => pairs = args::at_least_one(&mut parser)? as usize,
            Long("help") | Short('h') => return Err("guard: `versus --help` has its options".into()),
            other => return Err(other.unexpected()),
        }
    }
    let against = against.ok_or("guard: name the commit to compare with: --against COMMIT")?;
    Ok(Options { against, quick, cases, json, pairs })
}

/// Runs the guard; the exit code says whether anything was lost.
pub(crate) fn run(options: &Options) -> ExitCode {
    match guard(options) {
        Ok(code) => ExitCode::from(code),
        Err(error) => crate::fail(&format!("guard: {error}"), MISUSE),
    }
}

fn guard(options: &Options) -> Result<u8, Failure> {
    let contests = cases::all();
    let all: Vec<&str> = contests.iter().map(|contest| contest.name).collect();
    let chosen = choice::choose(&all, options.quick, &options.cases)?;
    let pair = Pair::check(&options.against)?;
    let (folder, _lock) = pair.folder()?;
    let prepared = folder.join("prepared");
    fs::create_dir_all(&prepared).map_err(|error| format!("{}: {error}", prepared.display()))?;
    eprintln!("building both trees, which takes minutes the first time");
    let (old, new) = pair.build(&folder)?;
    let guard = Guard { options, sides: [ours(&old)?, ours(&new)?], old, new, prepared: &prepared };

    println!("old {}, new {}", guard.old.short(), guard.new.short());
    warn_of_load();
    println!("{}", heading());
    let begin = Instant::now();
    let mut report = Report(Vec::new());
    let mut add = |lines: Vec<Line>| {
        lines.iter().for_each(Line::print);
        report.0.extend(lines);
    };
    for case in &chosen {
        add(guard.judge(case));
    }
    if options.cases.is_empty() && !options.quick {
        add(guard.only_in_old(&all));
    }
    let took = begin.elapsed().as_secs();
    print!("\n{}", report.summary());
    println!("{} min {} s without builds", took / 60, took % 60);
    if let Some(path) = &options.json {
        let mut run = report.to_json();
        run["old"] = guard.old.commit.as_str().into();
        run["new"] = guard.new.commit.as_str().into();
        run["quick"] = options.quick.into();
        run["pairs"] = options.pairs.into();
        run["seconds"] = json!(took);
        crate::store(path, &format!("{run:#}\n"))?;
    }
    Ok(report.code())
}

/// Says at once when the machine is too busy for most cases to be judged.
fn warn_of_load() {
    let before = Machine::now();
    thread::sleep(Duration::from_secs(1));
    let noise = Machine::since(before);
    if let Some(why) = (Series { noise, ..Series::default() }).off(0.0) {
        eprintln!("warning: in the last second {why}");
        eprintln!("most cases will end with CANNOT TELL: end what else runs, and start again");
    }
}

/// Dapple's side of each case.
type Sides = BTreeMap<String, String>;

/// Asks a tree for its cases: `list --json`.
fn ours(tree: &Tree) -> Result<Sides, Failure> {
    let output = Command::new(&tree.versus).args(["list", "--json"]).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{}: {error}", tree.versus.display()))?;
    let list: serde_json::Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("{} list --json: {error}", tree.versus.display()))?;
    let side = |case: &serde_json::Value| {
        let ours = case["sides"].as_array()?.iter().find(|side| side["role"] == "ours")?;
        Some((case["case"].as_str()?.to_owned(), ours["side"].as_str()?.to_owned()))
    };
    Ok(list.as_array().into_iter().flatten().filter_map(side).collect())
}

struct Guard<'a> {
    options: &'a Options,
    old: Tree,
    new: Tree,
    /// Of the old tree and of the new one.
    sides: [Sides; 2],
    prepared: &'a Path,
}

impl Guard<'_> {
    /// Judges a case; instructions and allocations have a line for each operation.
    fn judge(&self, case: &str) -> Vec<Line> {
        match case {
            choice::ALLOCATIONS => {
                counts::allocations(&self.old, &self.new).iter().map(Line::of_count).collect()
            }
            choice::INSTRUCTIONS => {
                counts::instructions(&self.old, &self.new).iter().map(Line::of_count).collect()
            }
            _ => vec![self.judge_rounds(case)],
        }
    }

    fn judge_rounds(&self, case: &str) -> Line {
        let [of_old, of_new] = &self.sides;
        let (of_old, of_new) = match (of_old.get(case), of_new.get(case)) {
            (Some(of_old), Some(of_new)) => (of_old, of_new),
            (None, _) => return Line::only_in(case, "new"),
            (_, None) => return Line::only_in(case, "old"),
        };
        let is_counted = choice::counts_bytes(case);
        let tasks = is_counted.then_some(if self.options.quick { QUICK_TASKS } else { TASKS });
        let old = Round { tree: &self.old, case, side: of_old, tasks, prepared: self.prepared };
        let new = Round { tree: &self.new, side: of_new, ..old };
        if is_counted {
            return Line::of_count(&counts::bytes(&old, &new));
        }
        let begin = Instant::now();
        let judged = pairs::run(&old, &new, self.options.pairs, &Progress::new());
        Line::of_pairs(case, &judged, begin.elapsed())
    }

    /// Lines for the cases that the new tree no longer has.
    fn only_in_old(&self, all: &[&str]) -> Vec<Line> {
        let gone = self.sides[0].keys().filter(|case| !all.contains(&case.as_str()));
        gone.map(|case| Line::only_in(case, "old")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> Result<Options, String> {
        parse(lexopt::Parser::from_args(arguments)).map_err(|error| error.to_string())
    }

    #[test]
    fn a_guard_needs_a_commit() {
        let error = parsed(&["--quick", "spawn"]).err().unwrap();
        assert!(error.contains("--against COMMIT"), "{error}");
    }

    #[test]
    fn cases_and_options_may_come_in_any_order() {
        let options = parsed(&["spawn", "--against", "HEAD~1", "--quick", "yield"]).ok().unwrap();
        assert_eq!(options.cases, ["spawn", "yield"]);
        assert!(options.quick && options.against == "HEAD~1" && options.pairs == 11);
    }
}
