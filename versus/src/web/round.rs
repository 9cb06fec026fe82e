//! A round of a server and of clients who wait for their answers: what a request costs.

use std::str::FromStr;

use crate::child::Child;
use crate::contest::{Failure, Metric, Sample};
use crate::denied::Denied;
use crate::served::{LOAD, SERVE};

/// The CPU time of the server counts most. `load` is that of the load: where a side takes less time on the clock than
/// that, the load was the limit.
pub(crate) const METRICS: &[Metric] =
    &[Metric::new("cpu", "us"), Metric::new("wall", "us"), Metric::shown("load", "us")];

/// One round, per request, in the order of [`METRICS`]: `--serve SERVER SIDE`, `--load LOAD ADDRESS REQUESTS`.
pub(crate) fn round(server: &str, side: &str, load: &str, requests: usize) -> Result<Sample, Failure> {
    let mut server = Child::start(&[&format!("--{SERVE}"), server, side])?;
    let address: String = server.answer()?;
    let mut load = Child::start(&[&format!("--{LOAD}"), load, &address, &requests.to_string()])?;
    let _warm: String = load.answer()?;
    let denied = Denied::of([server.id()]);
    let before: u64 = server.ask()?;
    let Took { wall, cpu } = load.ask()?;
    let after: u64 = server.ask()?;
    denied.end();
    Ok([after - before, wall, cpu].map(|nanos| nanos as f64 / 1e3 / requests as f64).to_vec())
}

/// A load's report: nanoseconds on the clock, and of its own CPU time.
pub(crate) struct Took {
    pub(crate) wall: u64,
    pub(crate) cpu: u64,
}

impl FromStr for Took {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let (wall, cpu) = line.split_once(' ').ok_or(())?;
        let number = |text: &str| text.parse().map_err(drop);
        Ok(Self { wall: number(wall)?, cpu: number(cpu)? })
    }
}
