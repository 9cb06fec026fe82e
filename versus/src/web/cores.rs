//! Which cores a process may use.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::contest::Failure;

/// Keeps this process to the first of the cores that it may use: for a server, before it has other threads.
pub(crate) fn keep_to_first() -> Result<(), Failure> {
    keep_to(|cores| cores.first().copied())
}

/// Keeps this process to the last of them: for a load, so that it takes nothing from the server.
pub(crate) fn keep_to_last() -> Result<(), Failure> {
    keep_to(|cores| cores.last().copied())
}

fn keep_to(choose: impl FnOnce(&[usize]) -> Option<usize>) -> Result<(), Failure> {
    let allowed = sched_getaffinity(None).map_err(|error| format!("sched_getaffinity: {error}"))?;
    let cores: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core)).collect();
    let mut one = CpuSet::new();
    one.set(choose(&cores).expect("a process has a core"));
    sched_setaffinity(None, &one).map_err(|error| format!("sched_setaffinity: {error}"))
}
