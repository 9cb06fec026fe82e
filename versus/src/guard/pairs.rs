//! Samples of two trees, in pairs: old and new, then new and old (ABBA), each a process of its own.

use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::fs::sync;
use serde_json::Value;

use super::choice::WITH_FILES;
use super::machine::Machine;
use super::tree::Tree;
use super::verdict::{CPU_BAR, LATENCY_BAR, Series, Trouble, Verdict, judge};
use crate::contest::{CPU, Failure};
use crate::prepared;
use crate::progress::Progress;

/// A side of a case in one tree: `--round CASE SIDE`.
pub(super) struct Round<'a> {
    pub(super) tree: &'a Tree,
    pub(super) case: &'a str,
    pub(super) side: &'a str,
    pub(super) tasks: Option<u64>,
    /// Where prepared files are.
    pub(super) prepared: &'a Path,
}

/// One sample.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sample {
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) value: f64,
    /// Percent of the time on the clock, if the case knows.
    pub(super) denied: Option<f64>,
}

impl Round<'_> {
    /// Measures one sample in a fresh process.
    pub(super) fn sample(&self) -> Result<Sample, Failure> {
        let mut command = Command::new(&self.tree.versus);
        command.args(["--round", self.case, self.side]).env(prepared::VARIABLE, self.prepared);
        // A panic shall end with its message.
        command.env("RUST_BACKTRACE", "0");
        if let Some(tasks) = self.tasks {
            command.arg("--tasks").arg(tasks.to_string());
        }
        let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(format!("{self}: {}: {}", output.status, last_words(&output.stderr)));
        }
        parse(&output.stdout).ok_or_else(|| {
            format!("{self} printed no sample, but {:?}", String::from_utf8_lossy(&output.stdout))
        })
    }
}

/// The command line, to try it by hand.
impl fmt::Display for Round<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} --round {} {}", self.tree.versus.display(), self.case, self.side)
    }
}

/// The end of the standard error of a program that failed, without the note on backtraces after a panic.
pub(super) fn last_words(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let mut lines = text.lines().rev().map(str::trim);
    lines.find(|line| !line.is_empty() && !line.starts_with("note: ")).unwrap_or_default().to_owned()
}

/// Reads what `--round` prints.
fn parse(stdout: &[u8]) -> Option<Sample> {
    let said: Value = serde_json::from_slice(stdout).ok()?;
    let judged = &said["judged"];
    Some(Sample {
        metric: judged["name"].as_str()?.to_owned(),
        unit: judged["unit"].as_str()?.to_owned(),
        value: judged["value"].as_f64()?,
        denied: said["denied"].as_f64(),
    })
}

/// A case that was judged.
pub(super) struct Judged {
    pub(super) metric: String,
    pub(super) unit: String,
    /// All series, the last of which decided.
    pub(super) series: Vec<Series>,
    /// Denied time of each sample in order, old and new.
    pub(super) denied: [Vec<f64>; 2],
    pub(super) verdict: Verdict,
}

/// Judges a case by series of pairs, the first of `pairs` pairs.
pub(super) fn run(old: &Round<'_>, new: &Round<'_>, pairs: usize, progress: &Progress) -> Judged {
    let mut judged = Judged {
        metric: String::new(),
        unit: String::new(),
        series: Vec::new(),
        denied: Default::default(),
        verdict: Verdict::Ok,
    };
    let verdict = first_sample(old, new).and_then(|(metric, unit)| {
        let bar = if metric == CPU { CPU_BAR } else { LATENCY_BAR };
        (judged.metric, judged.unit) = (metric, unit);
        judge(bar, pairs, |pairs| {
            let (series, [of_old, of_new]) = measure(old, new, pairs, progress)?;
            judged.denied[0].extend(of_old);
            judged.denied[1].extend(of_new);
            judged.series.push(series.clone());
            Ok(series)
        })
    });
    judged.verdict = verdict.unwrap_or_else(Verdict::from);
    judged
}

/// A sample of each side that does not count: it makes files where they are needed, fills the page cache with the
/// program, and says which metric is judged.
fn first_sample(old: &Round<'_>, new: &Round<'_>) -> Result<(String, String), Trouble> {
    let of_old = old.sample().map_err(Trouble::Old)?;
    let of_new = new.sample().map_err(Trouble::New)?;
    if WITH_FILES.iter().any(|start| new.case.starts_with(start)) {
        // Writing them back would be in the samples.
        sync();
    }
    if of_old.metric != of_new.metric || of_old.unit != of_new.unit {
        let [old, new] = [of_old, of_new].map(|sample| format!("{} {}", sample.metric, sample.unit));
        return Err(Trouble::Old(format!("it is judged by {old:?}, new by {new:?}")));
    }
    Ok((of_new.metric, of_new.unit))
}

/// Denied time of the samples of both sides.
type Denied = [Vec<f64>; 2];

fn measure(
    old: &Round<'_>,
    new: &Round<'_>,
    pairs: usize,
    progress: &Progress,
) -> Result<(Series, Denied), Trouble> {
    let mut series = Series::default();
    let mut denied = Denied::default();
    let before = Machine::now();
    for pair in 0..pairs {
        progress.show(&format!("{}: pair {} of {pairs}", new.case, pair + 1));
        let (of_old, of_new) = if pair % 2 == 0 {
            let of_old = old.sample().map_err(Trouble::Old)?;
            (of_old, new.sample().map_err(Trouble::New)?)
        } else {
            let of_new = new.sample().map_err(Trouble::New)?;
            (old.sample().map_err(Trouble::Old)?, of_new)
        };
        series.old.push(of_old.value);
        series.new.push(of_new.value);
        denied[0].extend(of_old.denied);
        denied[1].extend(of_new.denied);
    }
    series.noise = Machine::since(before);
    progress.clear();
    Ok((series, denied))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    /// A program that is called as `versus` is, in a folder of its own.
    fn pretend(name: &str, script: &str) -> Tree {
        let root = std::env::temp_dir().join(format!("versus-pairs-{name}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let versus = root.join("versus");
        fs::write(&versus, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&versus, fs::Permissions::from_mode(0o755)).unwrap();
        Tree { root, commit: "0".repeat(40), probe: versus.clone(), versus, target: None }
    }

    const ANSWER: &str = r#"echo '{"judged":{"name":"cpu","unit":"ns","value":50},"denied":null}'"#;

    fn round(tree: &Tree) -> Round<'_> {
        Round { tree, case: "spawn", side: "dapple", tasks: None, prepared: Path::new("/nowhere") }
    }

    #[test]
    fn pairs_run_in_the_order_abba() {
        // Called with `--round CASE SIDE --tasks N`.
        let tree = pretend("order", &format!("echo $5 >> $VERSUS_PREPARED/log\n{ANSWER}"));
        let side = |tasks| Round { tasks: Some(tasks), prepared: &tree.root, ..round(&tree) };
        let (series, _) = measure(&side(1), &side(2), 3, &Progress::new()).unwrap();
        assert_eq!((series.old, series.new), (vec![50.0; 3], vec![50.0; 3]));
        let log = fs::read_to_string(tree.root.join("log")).unwrap();
        assert_eq!(log.split_whitespace().collect::<Vec<_>>(), ["1", "2", "2", "1", "1", "2"]);
        fs::remove_dir_all(tree.root).unwrap();
    }

    #[test]
    fn a_new_side_that_fails_is_named_with_its_last_words() {
        let good = pretend("good", ANSWER);
        let bad = pretend("bad", "echo 'thread panicked: lost' >&2; echo 'note: run with' >&2; exit 101");
        let judged = run(&round(&good), &round(&bad), 2, &Progress::new());
        let Verdict::Failed(why) = judged.verdict else { panic!("{:?}", judged.verdict) };
        assert!(why.contains("101") && why.contains("thread panicked: lost"), "{why}");
        let judged = run(&round(&bad), &round(&good), 2, &Progress::new());
        assert!(judged.verdict.is_unclear());
        fs::remove_dir_all(good.root).unwrap();
        fs::remove_dir_all(bad.root).unwrap();
    }

    #[test]
    fn what_round_prints_is_read() {
        let said = br#"{"judged":{"name":"cpu","unit":"ns","value":2.5},"denied":0.5}"#;
        let expected =
            Sample { metric: "cpu".to_owned(), unit: "ns".to_owned(), value: 2.5, denied: Some(0.5) };
        assert_eq!(parse(said), Some(expected));
        assert_eq!(parse(b"nonsense"), None);
    }
}
