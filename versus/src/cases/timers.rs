//! `timers`: timers that fire, and timers that are cancelled before they do.
//!
//! `fire`: a million tasks sleep, each for a time of its own between a thousandth of a second and a whole one. The
//! measures are the CPU time, of the timer and of the task around it, and how late the tasks are on average. A task
//! takes the time before it asks for its sleep, so that a correct runtime can be late but never early, which is
//! checked. The tasks report to counters of their thread ([`Tally`]); they share nothing else.
//!
//! `cancel`: what timeouts do that are not needed. A task keeps places for a thousand sleeps, fills
//! them, polls each once, which is when all sides register, and empties them again. The places stay:
//! no allocation is timed except a runtime's own.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::task::Poll;
use std::time::{Duration, Instant};

use crate::contest::{Contest, Entry, Metric, Role, Sample, Scale};
use crate::denied::Denied;
use crate::scatter::scatter;
use crate::sides::{Dapple, Host, Side, SmolDriven, TokioDriven};
use crate::work::{self, BATCH, Work, cpu_time};

pub(crate) fn contests() -> Vec<Contest> {
    let fire = Contest {
        name: "timers/fire",
        about: "a million tasks sleep for 1 to 1000 ms; CPU per task, and how late they wake",
        metrics: FIRE,
        // A round cannot be shorter than a second, and warms up by itself.
        warm_up: false,
        at_most: 5,
        entries: vec![
            fires::<Dapple, OfDapple>(Role::Ours),
            fires::<TokioDriven, OfTokio>(Role::Rival),
            fires::<SmolDriven, OfSmol>(Role::Rival),
        ],
    };
    let about = "register 1000 timers and drop them before they fire; per timer";
    let cancel = vec![
        work::entry::<Dapple, Cancel<OfDapple>>(Role::Ours),
        work::entry::<TokioDriven, Cancel<OfTokio>>(Role::Rival),
        work::entry::<SmolDriven, Cancel<OfSmol>>(Role::Rival),
    ];
    vec![fire, work::timed("timers/cancel", about, cancel)]
}

/// A runtime's own timers.
trait Timers: 'static {
    type Sleep: Future<Output: Send> + Send + 'static;

    fn sleep(duration: Duration) -> Self::Sleep;
}

/// The metrics of `fire`.
const FIRE: &[Metric] = &[
    Metric::new("cpu", "ns"),
    Metric { name: "lateness", unit: "us", ratios: true, absolutes: true },
    Metric { name: "lateness-max", unit: "us", ratios: false, absolutes: true },
    // A second at least, and as long as spawning takes: over how long a side spreads its timers.
    Metric { name: "wall", unit: "ms", ratios: false, absolutes: false },
];

/// Batches of tasks in `fire`, and milliseconds of the longest sleep: so that less work is as dense.
const FIRE_BATCHES: usize = 1000;

/// How often the root of `fire` looks whether all tasks have woken.
const LOOK: Duration = Duration::from_millis(10);

/// A task that has not woken this long after the last deadline has been forgotten.
const PATIENCE: Duration = Duration::from_secs(60);

fn fires<H: Host, T: Timers>(role: Role) -> Entry {
    Entry { side: H::NAME, role, round: Box::new(|scale| Ok(fire_round::<H, T>(scale))) }
}

/// One round of one side, in the order of [`FIRE`].
fn fire_round<H: Host, T: Timers>(scale: Scale) -> Sample {
    let batches = FIRE_BATCHES.div_ceil(if scale.quick { 20 } else { 1 });
    let mut host = H::start();
    host.run(|side| async move {
        fire::<H::Side, T>(&side, batches.div_ceil(10)).await;
        let (denied, before, begin) = (Denied::begin(), cpu_time(), Instant::now());
        let lateness = fire::<H::Side, T>(&side, batches).await;
        let (cpu, wall) = (cpu_time() - before, begin.elapsed());
        denied.end();
        let cpu = cpu.as_secs_f64() * 1e9 / (batches * BATCH) as f64;
        vec![cpu, lateness.mean, lateness.max, wall.as_secs_f64() * 1e3]
    })
}

/// Lets `batches` batches of tasks sleep, for up to as many milliseconds.
async fn fire<S: Side, T: Timers>(side: &S, batches: usize) -> Lateness {
    TALLY.clear();
    let tasks = batches * BATCH;
    for number in 0..tasks {
        S::detach(side.spawn(sleeper::<T>(number, batches)));
        if number % BATCH == BATCH - 1 {
            // As a task should that has much to do: others run, and timers are looked at.
            S::yield_now().await;
        }
    }
    let patience = Instant::now() + Duration::from_millis(batches as u64) + PATIENCE;
    while TALLY.woken() < tasks {
        assert!(Instant::now() < patience, "{} of {tasks} timers fired", TALLY.woken());
        T::sleep(LOOK).await;
    }
    TALLY.sum_up()
}

/// A task: sleeps, and tells how late it woke.
async fn sleeper<T: Timers>(number: usize, milliseconds: usize) {
    let duration = between(number, Duration::from_millis(1), Duration::from_millis(milliseconds as u64));
    let deadline = Instant::now() + duration;
    T::sleep(duration).await;
    TALLY.add(deadline);
}

/// A duration in a range, scattered by its number, and for each number the same on all sides.
fn between(number: usize, least: Duration, most: Duration) -> Duration {
    let range = (most - least).as_micros() as u64 + 1;
    least + Duration::from_micros(scatter(number as u64) % range)
}

/// How late tasks were, in microseconds.
struct Lateness {
    mean: f64,
    max: f64,
}

/// The tasks' reports, in a line of memory for each thread.
static TALLY: Tally = Tally([const { Line::new() }; LINES]);

/// More than there are threads at a time. If two shared one, it would be slower, and as right.
const LINES: usize = 64;

struct Tally([Line; LINES]);

#[repr(align(128))]
struct Line {
    woken: AtomicUsize,
    early: AtomicUsize,
    /// The sum and the largest, in nanoseconds.
    late: AtomicU64,
    latest: AtomicU64,
}

thread_local! {
    /// Which line is this thread's.
    static LINE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Relaxed) % LINES
    };
}

impl Line {
    const fn new() -> Self {
        Self {
            woken: AtomicUsize::new(0),
            early: AtomicUsize::new(0),
            late: AtomicU64::new(0),
            latest: AtomicU64::new(0),
        }
    }
}

impl Tally {
    /// Clears the counters. No task may be running.
    fn clear(&self) {
        for line in &self.0 {
            line.woken.store(0, Relaxed);
            line.early.store(0, Relaxed);
            line.late.store(0, Relaxed);
            line.latest.store(0, Relaxed);
        }
    }

    /// A task woke.
    #[inline]
    fn add(&self, deadline: Instant) {
        let now = Instant::now();
        let line = &self.0[LINE.with(|&line| line)];
        if let Some(late) = now.checked_duration_since(deadline) {
            let late = late.as_nanos() as u64;
            line.late.fetch_add(late, Relaxed);
            if late > line.latest.load(Relaxed) {
                line.latest.fetch_max(late, Relaxed);
            }
        } else {
            line.early.fetch_add(1, Relaxed);
        }
        // A reader that counts this task in `woken` sees its other counters too.
        line.woken.fetch_add(1, Release);
    }

    /// How many tasks have woken.
    fn woken(&self) -> usize {
        self.0.iter().map(|line| line.woken.load(Acquire)).sum()
    }

    /// After all tasks have woken.
    fn sum_up(&self) -> Lateness {
        let early: usize = self.0.iter().map(|line| line.early.load(Relaxed)).sum();
        assert_eq!(early, 0, "timers fired early");
        let late: u64 = self.0.iter().map(|line| line.late.load(Relaxed)).sum();
        let latest = self.0.iter().map(|line| line.latest.load(Relaxed)).max();
        let micros = |nanos: u64| nanos as f64 / 1e3;
        Lateness { mean: micros(late) / self.woken() as f64, max: micros(latest.unwrap_or(0)) }
    }
}

struct Cancel<T>(PhantomData<T>);

/// Timeouts as they are often chosen.
const TIMEOUTS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];

impl<T: Timers> Work for Cancel<T> {
    const BATCHES: usize = 1000;
    const OPERATIONS: usize = BATCH;

    async fn run<S: Side>(_: S, batches: usize) {
        let mut places: Vec<Pin<Box<Option<T::Sleep>>>> = (0..BATCH).map(|_| Box::pin(None)).collect();
        let [least, most] = TIMEOUTS;
        for batch in 0..batches {
            let mut numbers = batch * BATCH..;
            poll_fn(|cx| {
                for (place, number) in places.iter_mut().zip(&mut numbers) {
                    place.set(Some(T::sleep(between(number, least, most))));
                    let sleep = place.as_mut().as_pin_mut().expect("a sleep in its place");
                    assert!(sleep.poll(cx).is_pending(), "a timer fired early");
                }
                Poll::Ready(())
            })
            .await;
            for place in &mut places {
                place.set(None);
            }
            S::yield_now().await;
        }
    }
}

struct OfDapple;

impl Timers for OfDapple {
    type Sleep = dapple::time::Sleep;

    #[inline]
    fn sleep(duration: Duration) -> Self::Sleep {
        dapple::time::sleep(duration)
    }
}

struct OfTokio;

impl Timers for OfTokio {
    type Sleep = tokio::time::Sleep;

    #[inline]
    fn sleep(duration: Duration) -> Self::Sleep {
        tokio::time::sleep(duration)
    }
}

struct OfSmol;

impl Timers for OfSmol {
    type Sleep = smol::Timer;

    #[inline]
    fn sleep(duration: Duration) -> Self::Sleep {
        smol::Timer::after(duration)
    }
}
