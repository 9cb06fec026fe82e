//! Work that is timed: how a case is written once, and measured on every side.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::contest::{CONTENDED, Contest, Entry, Metric, Role, Sample, Scale, TIMES};
use crate::denied::Denied;
use crate::sides::{Dapple, Host, Monoio, Side, Smol, SmolStatic, Tokio};

/// Tasks in a batch, and tasks at a time in the cases that yield.
pub(crate) const BATCH: usize = 1000;

/// A case: what a task of any side does.
pub(crate) trait Work: 'static {
    /// Batches in a round: such that tokio takes a few tenths of a second.
    const BATCHES: usize;

    /// Operations in a batch.
    const OPERATIONS: usize;

    /// Does `batches` batches, inside a spawned task.
    fn run<S: Side>(side: S, batches: usize) -> impl Future<Output = ()> + Send;
}

/// A contest of Dapple, tokio and smol, with smol's ordinary executor as a reference.
pub(crate) fn contest<W: Work>(name: &'static str, about: &'static str) -> Contest {
    let entries = vec![
        entry::<Dapple, W>(Role::Ours),
        entry::<Tokio, W>(Role::Rival),
        entry::<Smol, W>(Role::Rival),
        entry::<SmolStatic, W>(Role::Reference),
    ];
    timed(name, about, entries)
}

/// The same with monoio as one more, for work that it can do.
pub(crate) fn contest_with_monoio<W: Work>(name: &'static str, about: &'static str) -> Contest {
    let mut contest = contest::<W>(name, about);
    let reference = entry::<Monoio, W>(Role::Reference);
    contest.entries.push(reference);
    contest
}

/// A contest of the given sides.
pub(crate) fn timed(name: &'static str, about: &'static str, entries: Vec<Entry>) -> Contest {
    measured(name, about, TIMES, entries)
}

/// A contest of sides that fight for something: the entries are [`contended_entry`]s.
pub(crate) fn contended(name: &'static str, about: &'static str, entries: Vec<Entry>) -> Contest {
    measured(name, about, CONTENDED, entries)
}

/// A contest by some metrics.
pub(crate) fn measured(
    name: &'static str,
    about: &'static str,
    metrics: &'static [Metric],
    entries: Vec<Entry>,
) -> Contest {
    Contest { name, about, metrics, warm_up: true, at_most: usize::MAX, entries }
}

/// A side that does the work.
pub(crate) fn entry<H: Host, W: Work>(role: Role) -> Entry {
    entry_as::<H, W>(H::NAME, role)
}

/// The same under another name: for work that is of more than its runtime.
pub(crate) fn entry_as<H: Host, W: Work>(side: &'static str, role: Role) -> Entry {
    Entry { side, role, round: Box::new(|scale| Ok(round::<H, W>(scale, Stopwatch::per_operation))) }
}

/// A side that does work in which tasks fight for something.
pub(crate) fn contended_entry<H: Host, W: Work>(side: &'static str, role: Role) -> Entry {
    Entry { side, role, round: Box::new(|scale| Ok(round::<H, W>(scale, Stopwatch::contended))) }
}

/// One round of one side: a runtime of its own, warm before the clock starts.
fn round<H: Host, W: Work>(scale: Scale, read: fn(Stopwatch, usize) -> Sample) -> Sample {
    let batches = W::BATCHES.div_ceil(if scale.quick { 20 } else { 1 });
    let mut host = H::start();
    host.run(move |side| async move {
        W::run(side.clone(), batches.div_ceil(10)).await;
        let stopwatch = Stopwatch::start();
        W::run(side, batches).await;
        read(stopwatch, batches * W::OPERATIONS)
    })
}

/// The clock on the wall, and the CPU time of all threads of this process.
pub(crate) struct Stopwatch {
    denied: Denied,
    cpu: Duration,
    wall: Instant,
}

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self { denied: Denied::begin(), cpu: cpu_time(), wall: Instant::now() }
    }

    /// Nanoseconds per operation, in the order of [`TIMES`].
    pub(crate) fn per_operation(self, operations: usize) -> Sample {
        let mut sample = self.contended(operations);
        sample.truncate(TIMES.len());
        sample
    }

    /// The same, with the columns that show whether there was contention, in the order of [`CONTENDED`].
    pub(crate) fn contended(self, operations: usize) -> Sample {
        let wall = self.wall.elapsed();
        let cpu = cpu_time() - self.cpu;
        let denied = self.denied.end();
        let [wall, cpu] = [wall, cpu].map(|time| time.as_secs_f64() * 1e9 / operations as f64);
        vec![wall, cpu, cpu / wall, denied]
    }
}

/// User and system time of this process: what `getrusage` says, in nanoseconds.
pub(crate) fn cpu_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().expect("a time that is not negative")
}
