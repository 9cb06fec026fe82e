//! The trace of a run: each poll, with its time and virtual worker.

use std::fmt;
use std::time::Duration;

use super::Sim;
use crate::world::log::{PollLog, StableColor};

/// The polls of a run, with their times and virtual workers; see [`Sim::run_traced`].
///
/// `Display` writes a line for each poll, in the order in which they began. It is the same text for the
/// same seed, on every machine and from every build of the same program.
///
/// # Examples
///
/// ```
/// use dapple::sim::Sim;
///
/// let trace = || Sim::new(5).run_traced(async { dapple::spawn(async {}).await.unwrap() }).1;
/// assert_eq!(trace().to_string(), trace().to_string());
/// assert!(trace().polls().any(|poll| poll.task == "main" && poll.worker == Some(0)));
/// ```
#[derive(Clone)]
pub struct Trace {
    seed: u64,
    workers: usize,
    log: Box<PollLog>,
}

/// One poll of a task (or one call, of a closure).
///
/// # Examples
///
/// ```
/// use dapple::sim::{Sim, work};
/// use dapple::time::Duration;
///
/// let (_, trace) = Sim::new(1).run_traced(async { dapple::spawn(async { work(Duration::from_millis(3)) }).await });
/// let longest = trace.polls().max_by_key(|poll| poll.took).unwrap();
/// assert!(longest.took >= Duration::from_millis(3)); // and what switching tasks costs
/// println!("{} on worker {:?}", longest.task, longest.worker);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Poll<'a> {
    /// The time of its start, from the start of the simulation.
    pub begun: Duration,
    /// Its duration: the time that it [worked](super::work).
    pub took: Duration,
    /// The worker; `None` for a blocking call.
    pub worker: Option<usize>,
    /// The number of the task, in the order of spawning.
    pub number: u64,
    /// The name of the task, or the type of its future.
    pub task: &'a str,
    /// The number of the color, if the task shares it with others; 0 is the main color.
    pub color: Option<u64>,
}

impl Trace {
    pub(super) fn new(sim: &Sim, log: PollLog) -> Trace {
        Trace { seed: sim.seed, workers: sim.workers, log: Box::new(log) }
    }

    /// All polls, in the order in which they began.
    pub fn polls(&self) -> impl Iterator<Item = Poll<'_>> {
        self.log.polls.iter().map(|poll| Poll {
            begun: Duration::from_nanos(poll.begun),
            took: Duration::from_nanos(poll.ended - poll.begun),
            worker: (poll.color != StableColor::None).then_some(poll.thread as usize),
            number: poll.task,
            task: self.log.names.get(&poll.task).map_or("", |name| name),
            color: match poll.color {
                StableColor::Own | StableColor::None => None,
                StableColor::Main => Some(0),
                StableColor::Number(number) => Some(number),
            },
        })
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# seed {}, {} workers", self.seed, self.workers)?;
        writeln!(f, "#{:>17} {:>15}  worker  task", "begun (us)", "took (us)")?;
        self.polls().try_for_each(|poll| writeln!(f, "{poll}"))
    }
}

impl fmt::Display for Poll<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let micros = |time: Duration| format!("{}.{:03}", time.as_micros(), time.as_nanos() % 1000);
        let worker = self.worker.map_or("pool".to_owned(), |worker| worker.to_string());
        let (begun, took) = (micros(self.begun), micros(self.took));
        write!(f, "{begun:>18} {took:>15}  {worker:<6}  {} {}", self.number, self.task)?;
        match self.color {
            None => Ok(()),
            Some(0) => f.write_str(", in the main color"),
            Some(color) => write!(f, ", in color {color}"),
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let polls = self.log.polls.len();
        f.debug_struct("Trace").field("seed", &self.seed).field("polls", &polls).finish_non_exhaustive()
    }
}
