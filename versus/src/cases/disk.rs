//! `disk`: many tasks, each of which reads random blocks of one big file.
//!
//! The disk test of Li and Zdancewic (their Figure 17). 1 to 64K tasks read blocks of 4 KB of a file of 1 GB past
//! the page cache (`O_DIRECT`), each task one at a time, so there are as many reads under way as tasks. A block
//! begins with its number, which is checked. A round lets all tasks read their first block, waits a little, and counts
//! what they read for a second, and until every task has read twice. `longest` is the longest wait for a block as a multiple
//! of the mean wait: first come, first served is near 1, more than 3 is unfair. `starved` are those who had not read
//! twice after a minute, when a round is given up; 0 as a rule. `fio` has no tasks that could be counted: it reads for a
//! second.
//!
//! `tokio` is tokio's `File`. That has one cursor, so each task has a file of its own, and seeks and reads;
//! beyond 4096 tasks there are not enough file descriptors. `tokio-pread`, a reference, is what its users do who
//! care: `read_at` in `spawn_blocking`. `threads` are the system's, one for each reader, up to 1024 of
//! them. `fio` reads with io_uring in as many processes as the others have workers, which share the depth
//! ([`fio`]): the limit. `peak` is Dapple with 1024 tasks, which is as many reads as one of its rings has under
//! way, in the same rounds: how flat it is.

mod blocks;
mod fio;
mod readers;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use self::blocks::{Blocks, Made};
use self::readers::{OfDapple, OfStd, OfTokio, OfTokioPread, Reader, Source};
use crate::contest::{Contest, Entry, Failure, Metric, Role, Sample, Scale};
use crate::scatter::{below, scatter};
use crate::sides::{Dapple, Host, Side, TokioDriven};
use crate::work::Stopwatch;

pub(crate) fn contests() -> Vec<Contest> {
    let made = Rc::new(Made::default());
    let all = |name, about, tasks| all(&made, name, about, tasks);
    let limit = |name, about, tasks| limit(&made, name, about, tasks);
    let cpu = |name, about, tasks| cpu(&made, name, about, tasks);
    vec![
        all("disk/1", "a task reads random 4 KB blocks of 1 GB, O_DIRECT; per read", 1),
        all("disk/16", "16 tasks do", 16),
        all("disk/256", "256 tasks do", 256),
        all("disk/1024", "1024 tasks do", 1024),
        all("disk/4096", "4096 tasks do", MOST_FILES),
        all("disk/16384", "16,384 tasks do", 16_384),
        all("disk/65536", "65,536 tasks do", 65_536),
        limit("disk/fio/256", "256 tasks against fio at the same depth; per read", 256),
        limit("disk/fio/1024", "the same with 1024", 1024),
        limit("disk/fio/4096", "the same with 4096", 4096),
        limit("disk/fio/16384", "the same with 16,384", 16_384),
        limit("disk/fio/65536", "the same with 65,536", 65_536),
        cpu("disk/cpu/256", "256 tasks against tokio::fs; CPU per read", 256),
        cpu("disk/cpu/4096", "the same with 4096", MOST_FILES),
    ]
}

/// No more threads that read: with 4096 of them a machine of two cores is at nothing but switching, and even the
/// thread that looks at the clock gets none of them.
const MOST_THREADS: usize = 1024;

/// No more file descriptors.
const MOST_FILES: usize = 4096;

/// The tasks of `peak`.
const PEAK: usize = 1024;

/// Tasks that are spawned first; then as many as there are, again and again.
const GROUP: usize = 256;

/// Bytes of a block.
const BLOCK: usize = 4096;

/// The pause between the first block of the last task and the start of the measurement, and the shortest measurement.
const SETTLE: Duration = Duration::from_millis(200);
const WINDOW: Duration = Duration::from_secs(1);

/// A round ends after this number of windows, even if some readers have not read twice.
const PATIENCE: u32 = 60;

const WALL: &[Metric] = &[Metric::new("", "ns"), Metric::shown("cpu", "ns"), LONGEST, STARVED];
const CPU: &[Metric] = &[Metric::new("", "ns"), Metric::shown("wall", "ns"), LONGEST, STARVED];

/// The longest wait for a block, as a multiple of the mean.
const LONGEST: Metric = Metric::shown("longest", "");

/// Tasks that had not read two blocks when the round was given up.
const STARVED: Metric = Metric::shown("starved", "");

/// All sides.
fn all(made: &Rc<Made>, name: &'static str, about: &'static str, tasks: usize) -> Contest {
    let mut entries = vec![entry::<Dapple, OfDapple>(made, Dapple::NAME, Role::Ours, tasks)];
    if tasks <= MOST_FILES {
        entries.push(entry::<TokioDriven, OfTokio>(made, TokioDriven::NAME, Role::Rival, tasks));
        entries.push(entry::<TokioDriven, OfTokioPread>(made, "tokio-pread", Role::Reference, tasks));
    }
    if tasks <= MOST_THREADS {
        let round = move |blocks: &Blocks, window| threads(blocks, tasks, window);
        entries.push(side(made, "threads", Role::Rival, round));
    }
    entries.push(side(made, "fio", Role::Reference, move |blocks, window| fio::round(blocks, tasks, window)));
    if tasks > PEAK {
        entries.push(entry::<Dapple, OfDapple>(made, "peak", Role::Rival, PEAK));
    }
    // A round warms up by itself, and there are many of them.
    Contest { name, about, metrics: WALL, warm_up: false, at_most: 3, entries }
}

/// Dapple and fio alone.
fn limit(made: &Rc<Made>, name: &'static str, about: &'static str, tasks: usize) -> Contest {
    let entries = vec![
        entry::<Dapple, OfDapple>(made, Dapple::NAME, Role::Ours, tasks),
        side(made, "fio", Role::Rival, move |blocks, window| fio::round(blocks, tasks, window)),
    ];
    Contest { name, about, metrics: WALL, warm_up: false, at_most: 7, entries }
}

/// Dapple and tokio alone, by CPU time.
fn cpu(made: &Rc<Made>, name: &'static str, about: &'static str, tasks: usize) -> Contest {
    let entries = vec![
        entry::<Dapple, OfDapple>(made, Dapple::NAME, Role::Ours, tasks),
        entry::<TokioDriven, OfTokio>(made, TokioDriven::NAME, Role::Rival, tasks),
        entry::<TokioDriven, OfTokioPread>(made, "tokio-pread", Role::Reference, tasks),
    ];
    let entries = entries.into_iter().map(cpu_first).collect();
    Contest { name, about, metrics: CPU, warm_up: false, at_most: 7, entries }
}

/// An entry in the order of [`CPU`].
fn cpu_first(Entry { side, role, round }: Entry) -> Entry {
    let round = move |scale| {
        let mut sample = round(scale)?;
        sample.swap(0, 1);
        Ok(sample)
    };
    Entry { side, role, round: Box::new(round) }
}

fn entry<H: Host, S: Source>(made: &Rc<Made>, name: &'static str, role: Role, tasks: usize) -> Entry {
    side(made, name, role, move |blocks, window| Ok(round::<H, S>(blocks, tasks, window)))
}

/// A side that reads blocks for a while, after the file has been made.
fn side(
    made: &Rc<Made>,
    side: &'static str,
    role: Role,
    read: impl Fn(&Blocks, Duration) -> Result<Sample, Failure> + 'static,
) -> Entry {
    let made = made.clone();
    let round = move |scale: Scale| {
        let window = WINDOW / if scale.quick { 20 } else { 1 };
        read(made.blocks(scale)?, window)
    };
    Entry { side, role, round: Box::new(round) }
}

/// One round of a runtime.
fn round<H: Host, S: Source>(blocks: &Blocks, tasks: usize, window: Duration) -> Sample {
    let count = Arc::new(Count::default());
    let (timer, counted) = (count.time(tasks, window), count.clone());
    let (path, blocks) = (blocks.path(), blocks.count());
    H::start().run(move |side| async move {
        let source = S::open(path).await;
        let mut readers = Vec::with_capacity(tasks);
        for number in 0..tasks {
            let (reader, count) = (source.reader().await, count.clone());
            readers.push(side.spawn(async move {
                let (mut reader, mut waits) = (reader, Waits::default());
                let mut number = number as u64;
                loop {
                    let begun = Instant::now();
                    reader.read(below(scatter(number), blocks)).await;
                    waits.note(begun, &count);
                    if !count.one_more(waits.reads) {
                        break;
                    }
                    number += tasks as u64;
                }
                count.add(waits);
            }));
            let spawned = number + 1;
            if spawned >= GROUP && spawned.is_power_of_two() {
                // As a task should that has much to do. Those that are here begin to read. All of them read once before
                // this task goes on: if it spawned only a few then, there would be millions of reads before the last
                // reader is there.
                H::Side::yield_now().await;
            }
        }
        for reader in readers {
            H::Side::join(reader).await;
        }
    });
    counted.sample(timer)
}

/// One round of threads.
fn threads(blocks: &Blocks, tasks: usize, window: Duration) -> Result<Sample, Failure> {
    const STACK: usize = 64 * 1024;
    let count = Arc::new(Count::default());
    let file = Arc::new(blocks.open()?);
    let blocks = blocks.count();
    let timer = count.time(tasks, window);
    let mut readers = Vec::with_capacity(tasks);
    for number in 0..tasks {
        let (count, mut reader) = (count.clone(), OfStd::new(file.clone()));
        let read = move || {
            let (mut number, mut waits) = (number as u64, Waits::default());
            loop {
                let begun = Instant::now();
                reader.read(below(scatter(number), blocks));
                waits.note(begun, &count);
                if !count.one_more(waits.reads) {
                    break;
                }
                number += tasks as u64;
            }
            count.add(waits);
        };
        let thread = thread::Builder::new().stack_size(STACK).spawn(read);
        readers.push(thread.map_err(|error| format!("no more threads: {error}"))?);
    }
    for reader in readers {
        reader.join().expect("a thread that ends");
    }
    Ok(count.sample(timer))
}

/// How long a reader has waited for blocks, in nanoseconds, since all readers are there.
#[derive(Default)]
struct Waits {
    /// Blocks that it has read, from the beginning.
    reads: u64,
    number: u64,
    sum: u64,
    longest: u64,
}

impl Waits {
    /// One that began then has ended.
    fn note(&mut self, begun: Instant, count: &Count) {
        self.reads += 1;
        if count.counts.load(Relaxed) {
            let nanos = begun.elapsed().as_nanos() as u64;
            self.number += 1;
            self.sum += nanos;
            self.longest = self.longest.max(nanos);
        }
    }
}

/// The counts of all readers of a round.
#[derive(Default)]
struct Count {
    reads: AtomicUsize,
    /// Readers that have read at least once, and at least twice.
    once: AtomicUsize,
    twice: AtomicUsize,
    /// All have read once: from now on it counts.
    counts: AtomicBool,
    stop: AtomicBool,
    /// How often and how long all readers have waited.
    waits: AtomicU64,
    waited: AtomicU64,
    longest: AtomicU64,
}

impl Count {
    /// Counts a read, the first, second and so on of its reader; whether to go on.
    fn one_more(&self, nth: u64) -> bool {
        self.reads.fetch_add(1, Relaxed);
        match nth {
            1 => drop(self.once.fetch_add(1, Release)),
            2 => drop(self.twice.fetch_add(1, Release)),
            _ => {}
        }
        !self.stop.load(Relaxed)
    }

    /// A reader has ended.
    fn add(&self, waits: Waits) {
        self.waits.fetch_add(waits.number, Relaxed);
        self.waited.fetch_add(waits.sum, Relaxed);
        self.longest.fetch_max(waits.longest, Relaxed);
    }

    /// In the order of [`WALL`], once all readers have ended.
    fn sample(&self, timer: JoinHandle<Sample>) -> Sample {
        let mut sample = timer.join().expect("a thread that ends");
        let mean = self.waited.load(Relaxed) as f64 / self.waits.load(Relaxed).max(1) as f64;
        sample.insert(2, self.longest.load(Relaxed) as f64 / mean.max(1.0));
        sample
    }

    /// Starts the thread that looks at the clock, and tells all to stop: time and CPU time per read.
    fn time(self: &Arc<Self>, readers: usize, window: Duration) -> JoinHandle<Sample> {
        let count = self.clone();
        thread::spawn(move || {
            let sample = count.measure(readers, window);
            count.stop.store(true, Relaxed);
            sample
        })
    }

    /// Measures time, CPU time and the number of readers that starved.
    fn measure(&self, readers: usize, window: Duration) -> Sample {
        let start = Instant::now();
        let wait_for = |count: &AtomicUsize| {
            while count.load(Acquire) < readers && start.elapsed() < PATIENCE * window {
                thread::sleep(Duration::from_millis(5));
            }
        };
        wait_for(&self.once);
        thread::sleep(SETTLE);
        self.counts.store(true, Relaxed);
        let stopwatch = Stopwatch::start();
        let before = self.reads.load(Relaxed);
        thread::sleep(window);
        wait_for(&self.twice);
        let reads = self.reads.load(Relaxed) - before;
        let mut sample = stopwatch.per_operation(reads.max(1));
        sample.push((readers - self.twice.load(Acquire)) as f64);
        sample
    }
}
