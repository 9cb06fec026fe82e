//! The resident memory of another process, looked at again and again.

use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(10);

/// A thread that looks, until it is asked what it saw.
pub(crate) struct Watch {
    stop: Sender<()>,
    thread: JoinHandle<f64>,
}

impl Watch {
    pub(crate) fn begin(process: u32) -> Self {
        let (stop, stopped) = channel();
        let thread = thread::spawn(move || {
            let mut most: f64 = 0.0;
            loop {
                most = most.max(resident(process));
                if stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout) {
                    return most;
                }
            }
        });
        Self { stop, thread }
    }

    /// The most that there was, in megabytes.
    pub(crate) fn end(self) -> f64 {
        drop(self.stop);
        self.thread.join().expect("a thread that looks")
    }
}

/// In megabytes; 0 of a process that is gone.
fn resident(process: u32) -> f64 {
    let text = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|rest| rest.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory() {
        assert!(Watch::begin(std::process::id()).end() > 0.1);
    }
}
