//! Denied time: for how long threads stood ready to run and got no core.
//!
//! The kernel counts it for each thread, so it must be read while the threads that count are alive.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The share of the last measurement, for `--round`.
static LAST: Mutex<Option<f64>> = Mutex::new(None);

/// A measurement that has begun.
pub(crate) struct Denied {
    /// The folder of the threads of each process.
    processes: Vec<PathBuf>,
    before: Duration,
    begin: Instant,
}

impl Denied {
    /// Begins to measure this process.
    pub(crate) fn begin() -> Self {
        Self::of_folders(vec!["/proc/self/task".into()])
    }

    /// Begins to measure other processes, all together.
    pub(crate) fn of(processes: impl IntoIterator<Item = u32>) -> Self {
        Self::of_folders(processes.into_iter().map(|id| format!("/proc/{id}/task").into()).collect())
    }

    fn of_folders(processes: Vec<PathBuf>) -> Self {
        Self { before: denied_time(&processes), begin: Instant::now(), processes }
    }

    /// Ends the measurement: percent of the time on the clock (100%: one thread never got a core).
    pub(crate) fn end(self) -> f64 {
        let denied = denied_time(&self.processes).saturating_sub(self.before);
        let percent = 100.0 * denied.as_secs_f64() / self.begin.elapsed().as_secs_f64();
        *LAST.lock().expect("no panic while it is held") = Some(percent);
        percent
    }
}

/// The share of the last measurement in this process; nothing if there was none.
pub(crate) fn last() -> Option<f64> {
    *LAST.lock().expect("no panic while it is held")
}

/// Denied time of the threads that these processes have now.
fn denied_time(processes: &[PathBuf]) -> Duration {
    let threads = processes.iter().filter_map(|process| fs::read_dir(process).ok()).flatten().flatten();
    Duration::from_nanos(threads.filter_map(|thread| of_thread(&thread.path())).sum())
}

fn of_thread(thread: &Path) -> Option<u64> {
    // Three numbers: nanoseconds on a core, nanoseconds in line for one, turns.
    let text = fs::read_to_string(thread.join("schedstat")).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_can_be_measured_by_its_number() {
        let denied = Denied::of([std::process::id()]);
        assert_eq!(denied.processes.len(), 1);
        assert!(denied.end() >= 0.0);
        assert!(last().is_some());
    }
}
