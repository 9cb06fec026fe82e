//! `leaf`: what it costs a read that it can be cancelled.
//!
//! `versus-probe` is built twice, as it is and with `--cfg dapple_no_cancel`, and reads a byte at a time from a socket:
//! one that is there (`ready`), or one that comes when the reader waits (`pending`). The measure is the difference
//! between the two builds. It is a hundredth of the time of the system calls, so the two builds take turns in a round,
//! and the least time of each is used. The noise is still as large as the limits: `-bare` is the same leaf without its
//! system call, `pending-bare` only up to where it waits, which shows a difference that the system calls hide.
//!
//! `-scope`: the same read in a child of a scope, where a wait has more to check.

use std::cell::OnceCell;
use std::path::PathBuf;
use std::rc::Rc;

use crate::contest::{Contest, Entry, Failure, Metric, Role, Sample, Scale};
use crate::probe;

pub(crate) fn contests() -> Vec<Contest> {
    let programs = Rc::new(OnceCell::new());
    let contest = |name, what, about| {
        let programs = programs.clone();
        let round = move |scale: Scale| round(&programs, what, scale);
        let entries = vec![Entry { side: "dapple", role: Role::Ours, round: Box::new(round) }];
        Contest { name, about, metrics: METRICS, warm_up: false, at_most: usize::MAX, entries }
    };
    vec![
        contest("leaf/ready", "read-ready", "a byte that is there is read; what cancellation adds"),
        contest("leaf/pending", "read-pending", "a byte is waited for and read; what cancellation adds"),
        contest("leaf/ready-bare", "bare-ready", "leaf/ready without the system call of the read"),
        contest(
            "leaf/pending-bare",
            "bare-pending",
            "leaf/pending without a system call, up to where it waits",
        ),
        contest("leaf/ready-scope", "read-ready-scope", "leaf/ready in what was started in a scope"),
        contest("leaf/pending-scope", "read-pending-scope", "leaf/pending in what was started in a scope"),
    ]
}

/// The difference between the two builds, and the two values.
const METRICS: &[Metric] = &[
    Metric { name: "", unit: "ns", ratios: false, absolutes: false },
    Metric { name: "with", unit: "ns", ratios: false, absolutes: false },
    Metric { name: "without", unit: "ns", ratios: false, absolutes: false },
];

/// Reads at a time.
const READS: usize = 50_000;

/// How often the two take turns in a round.
const TURNS: usize = 15;

struct Programs {
    with: PathBuf,
    without: PathBuf,
}

fn round(programs: &OnceCell<Programs>, what: &str, scale: Scale) -> Result<Sample, Failure> {
    if programs.get().is_none() {
        let with = probe::build("probe", "")?;
        let without = probe::build("probe-no-cancel", "--cfg dapple_no_cancel")?;
        // Only this thread sets it, so `set` cannot fail.
        let _ = programs.set(Programs { with, without });
    }
    let Programs { with, without } = programs.get().expect("what was just built");
    let (turns, reads) = if scale.quick { (2, READS / 20) } else { (TURNS, READS) };
    let mut least = [f64::MAX; 2];
    for _ in 0..turns {
        for (program, least) in [with, without].into_iter().zip(&mut least) {
            *least = least.min(probe::run(program, what, reads)?);
        }
    }
    let [with, without] = least;
    Ok(vec![with - without, with, without])
}
