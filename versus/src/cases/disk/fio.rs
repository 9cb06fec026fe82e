//! fio, the limit of `disk`: io_uring without any runtime around it.
//!
//! As many processes as the others have workers share the depth. It submits and reaps in batches, which it does
//! not by itself, and which makes it faster: it should be hard to come near.

use std::io::ErrorKind;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use super::blocks::Blocks;
use super::{BLOCK, SETTLE};
use crate::contest::{Failure, Sample};
use crate::sides::WORKERS;

/// Reads that are submitted together, at most.
const BATCH: usize = 32;

/// One round of fio.
pub(super) fn round(blocks: &Blocks, depth: usize, window: Duration) -> Result<Sample, Failure> {
    let jobs = WORKERS.min(depth);
    let depth = depth / jobs;
    let mut command = Command::new("fio");
    command.args(["--name=versus", "--readonly", "--rw=randread", "--direct=1", "--ioengine=io_uring"]);
    command.args(["--norandommap", "--randrepeat=0", "--time_based", "--group_reporting"]);
    command.args(["--output-format=json", "--iodepth_batch_complete_min=1"]);
    command.arg(format!("--filename={}", blocks.path().display()));
    command.arg(format!("--bs={BLOCK}"));
    command.arg(format!("--size={}", blocks.count() * BLOCK as u64));
    command.arg(format!("--numjobs={jobs}"));
    command.arg(format!("--iodepth={depth}"));
    command.arg(format!("--iodepth_batch_submit={}", BATCH.min(depth)));
    command.arg(format!("--iodepth_batch_complete_max={depth}"));
    command.arg(format!("--ramp_time={}ms", SETTLE.as_millis()));
    command.arg(format!("--runtime={}ms", window.as_millis()));
    let output = command.output().map_err(|error| match error.kind() {
        ErrorKind::NotFound => "disk needs fio, which is not there: apt-get install fio".to_owned(),
        _ => format!("fio: {error}"),
    })?;
    let text = String::from_utf8_lossy(&output.stdout);
    sample(&text, jobs)
        .ok_or_else(|| format!("fio ({}): {text}{}", output.status, String::from_utf8_lossy(&output.stderr)))
}

/// Parses fio's output: time and CPU time per read, in nanoseconds, and the longest wait. The count of starved readers
/// is 0. Returns `None` if fio has failed.
fn sample(text: &str, jobs: usize) -> Option<Sample> {
    // It may say something else first.
    let report: Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let group = report.get("jobs")?.get(0)?;
    let number = |value: Option<&Value>| value.and_then(Value::as_f64);
    let read = group.get("read")?;
    let per_second = number(read.get("iops")).filter(|&reads| reads > 0.0)?;
    if number(group.get("error"))? != 0.0 {
        return None;
    }
    let wall = 1e9 / per_second;
    // In percent of the time of one of them.
    let busy = number(group.get("usr_cpu"))? + number(group.get("sys_cpu"))?;
    let waits = read.get("lat_ns").map(|waits| (number(waits.get("max")), number(waits.get("mean"))));
    let longest = match waits {
        Some((Some(max), Some(mean))) => max / mean.max(1.0),
        _ => 0.0,
    };
    Some(vec![wall, wall * jobs as f64 * busy / 100.0, longest, 0.0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_from_where_it_begins() {
        let text = r#"fio: a word before
            {"jobs": [{"error": 0, "read": {"iops": 100000.0, "lat_ns": {"min": 1, "max": 30, "mean": 20.0}},
            "usr_cpu": 10.0, "sys_cpu": 40.0}]}"#;
        assert_eq!(sample(text, 2), Some(vec![10_000.0, 10_000.0, 1.5, 0.0]));
    }

    #[test]
    fn what_has_failed_is_no_sample() {
        let text = r#"{"jobs": [{"error": 22, "read": {"iops": 1.0}, "usr_cpu": 0.0, "sys_cpu": 0.0}]}"#;
        assert_eq!(sample(text, 1), None);
        assert_eq!(sample("fio: no such file", 1), None);
    }
}
