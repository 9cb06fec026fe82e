//! Counts of both trees, once per side: bytes, allocations and instructions.

use std::io::ErrorKind;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use serde_json::{Map, Value};

use super::pairs::{Round, last_words};
use super::tree::Tree;
use super::verdict::{Trouble, Verdict, judge_count};
use crate::contest::Failure;
use crate::probe;

/// Something that was counted in both trees.
pub(super) struct Count {
    pub(super) name: String,
    pub(super) unit: &'static str,
    /// Of old and new, where that tree has it.
    pub(super) values: [Option<f64>; 2],
    pub(super) verdict: Verdict,
}

impl Count {
    fn new(name: String, unit: &'static str, old: Option<f64>, new: Option<f64>) -> Self {
        let verdict = match (old, new) {
            (Some(old), Some(new)) => judge_count(old, new),
            (None, Some(_)) => Verdict::OnlyIn("new"),
            (Some(_), None) => Verdict::OnlyIn("old"),
            (None, None) => Verdict::CannotTell("not counted in either tree".to_owned()),
        };
        Self { name, unit, values: [old, new], verdict }
    }

    fn failed(name: &str, unit: &'static str, verdict: Verdict) -> Self {
        Self { name: name.to_owned(), unit, values: [None; 2], verdict }
    }
}

/// Bytes per task of a variant of `memory`.
pub(super) fn bytes(old: &Round<'_>, new: &Round<'_>) -> Count {
    let once = || {
        let of_old = old.sample().map_err(Trouble::Old)?;
        let of_new = new.sample().map_err(Trouble::New)?;
        Ok::<_, Trouble>([of_old.value, of_new.value])
    };
    let count = |[old, new_bytes]: [f64; 2]| Count::new(new.case.to_owned(), "B", Some(old), Some(new_bytes));
    let counted = || {
        let first = once()?;
        let counted = count(first);
        if !counted.verdict.is_loss() {
            return Ok(counted);
        }
        // Now and then a process keeps some memory more: of two, the one that keeps less.
        let second = once()?;
        Ok::<_, Trouble>(count([first[0].min(second[0]), first[1].min(second[1])]))
    };
    counted().unwrap_or_else(|trouble| Count::failed(new.case, "B", trouble.into()))
}

/// Operations of which allocations are counted.
const OPERATIONS: usize = 100_000;

/// Allocations per operation, of everything that both probes count.
pub(super) fn allocations(old: &Tree, new: &Tree) -> Vec<Count> {
    let [of_old, of_new] = [old, new].map(|tree| operations(&usage(&tree.probe)));
    let mut names = of_new.clone();
    names.extend(of_old.iter().filter(|name| !of_new.contains(name)).cloned());
    let count = |name: &String| {
        let of = |tree: &Tree, known: &[String]| {
            let is_known = known.contains(name);
            is_known.then(|| probe::run(&tree.probe, name, OPERATIONS)).transpose()
        };
        let counted = of(old, &of_old).map_err(Trouble::Old).and_then(|of_old| {
            let of_new = of(new, &of_new).map_err(Trouble::New)?;
            Ok(Count::new(name.clone(), "per operation", of_old, of_new))
        });
        counted.unwrap_or_else(|trouble| Count::failed(name, "per operation", trouble.into()))
    };
    if names.is_empty() {
        let why = Verdict::CannotTell("neither versus-probe counts any".to_owned());
        return vec![Count::failed("allocations", "per operation", why)];
    }
    names.iter().map(count).collect()
}

/// The usage text that a probe prints when it is called without arguments.
fn usage(probe: &Path) -> String {
    let output = Command::new(probe).stdin(Stdio::null()).output();
    output.map(|output| String::from_utf8_lossy(&output.stderr).into_owned()).unwrap_or_default()
}

/// The operations in it that count allocations: `allocations` and `allocations-X`, which lead their lines.
fn operations(usage: &str) -> Vec<String> {
    let names = usage.lines().flat_map(|line| {
        let leading = line.split_whitespace().map(|word| (word.trim_end_matches(','), word.ends_with(',')));
        // The last name has no comma after it.
        leading.scan(true, |more, (word, comma)| std::mem::replace(more, comma).then_some(word))
    });
    let counts = |name: &&str| *name == "allocations" || name.starts_with("allocations-");
    names.filter(counts).map(str::to_owned).collect()
}

/// Instructions per operation, by each tree's own `versus/instructions --json`. Both at once: instructions are not
/// time.
pub(super) fn instructions(old: &Tree, new: &Tree) -> Vec<Count> {
    if let Err(why) = valgrind() {
        return vec![Count::failed("instructions", "", Verdict::CannotTell(why))];
    }
    let (of_old, of_new) = thread::scope(|scope| {
        let of_old = scope.spawn(|| counted(old));
        let of_new = counted(new);
        (of_old.join().expect("a thread that ends"), of_new)
    });
    let (of_old, of_new) = match (of_old, of_new) {
        (Ok(of_old), Ok(of_new)) => (of_old, of_new),
        (Err(why), _) | (_, Err(why)) => {
            return vec![Count::failed("instructions", "", Verdict::CannotTell(format!("not run ({why})")))];
        }
    };
    let mut names: Vec<&String> = of_new.keys().collect();
    names.extend(of_old.keys().filter(|name| !of_new.contains_key(*name)));
    let of = |map: &Map<String, Value>, name: &String| map.get(name).and_then(Value::as_f64);
    let count = |name: &String| {
        Count::new(format!("instructions/{name}"), "instr.", of(&of_old, name), of(&of_new, name))
    };
    names.into_iter().map(count).collect()
}

fn valgrind() -> Result<(), Failure> {
    match Command::new("valgrind").arg("--version").output() {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err("not run (valgrind is not installed; `apt-get install valgrind`)".to_owned())
        }
        Err(error) => Err(format!("not run (valgrind: {error})")),
    }
}

/// The object that the script prints: a number for each operation.
fn counted(tree: &Tree) -> Result<Map<String, Value>, Failure> {
    let script = tree.root.join("versus/instructions");
    let mut command = Command::new(&script);
    command.arg("--json").env("VERSUS_PROBE", &tree.probe).stdin(Stdio::null());
    if let Some(target) = &tree.target {
        command.env("CARGO_TARGET_DIR", target);
    }
    let failed = |why: String| format!("{} --json: {why}", script.display());
    let Output { status, stdout, stderr } = command.output().map_err(|error| failed(error.to_string()))?;
    if !status.success() {
        return Err(failed(format!("{status}: {}", last_words(&stderr))));
    }
    match serde_json::from_slice(&stdout) {
        Ok(Value::Object(counts)) => Ok(counts),
        _ => Err(failed(format!("it printed no JSON object, but {:?}", String::from_utf8_lossy(&stdout)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_operations_that_count_allocations_are_read_from_the_usage() {
        let usage = "Usage: versus-probe WHAT COUNT\n\n  start, call     a future\n  \
                     allocations, allocations-spawn    of a start, allocations-less of a task\n";
        assert_eq!(operations(usage), ["allocations", "allocations-spawn"]);
        assert!(operations("").is_empty());
    }

    #[test]
    fn a_count_of_one_tree_alone_is_no_loss() {
        let count = Count::new("instructions/new-thing".to_owned(), "", None, Some(7.0));
        assert_eq!(count.verdict, Verdict::OnlyIn("new"));
        assert!(!count.verdict.is_loss() && !count.verdict.is_unclear());
    }

    #[test]
    fn three_percent_more_instructions_are_lost() {
        assert_eq!(Count::new(String::new(), "", Some(800.0), Some(824.0)).verdict, Verdict::Lost);
        assert_eq!(Count::new(String::new(), "", Some(800.0), Some(808.0)).verdict, Verdict::Ok);
    }
}
