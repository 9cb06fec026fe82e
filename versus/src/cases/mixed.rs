//! `mixed`: how long urgent callbacks wait where there is always something else to do.
//!
//! A thousand tasks of low priority burn 20 us of CPU at a time and yield, for ever: both workers are busy, and
//! hundreds are in line. A thread outside submits urgent callbacks, a thousand a second on the average, at times fixed
//! in advance (an open loop: the thread waits for no answer). The measure is the time from when a callback was due to
//! when it ran, in the median and at the 99th percentile, and how much of the other work got done meanwhile.
//! `generator` is how late the thread itself was at the 99th percentile; that lateness is included in the latency of
//! all sides.
//!
//! tokio has no priorities. `tokio-two`, a reference, has a second runtime for urgent work, on one more thread, for
//! which the system must take a core from the others.

use std::hint::black_box;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::{Duration, Instant};

use dapple::Color;
use dapple::event::{self, Callback};
use dapple::sched::Priority;
use rustix::process::setpriority_process;
use rustix::thread::{gettid, set_current_timer_slack};

use crate::contest::{Contest, DENIED, Entry, Metric, Role, Sample, Scale};
use crate::scatter::scatter;
use crate::sides::{Dapple, Host, Side, Tokio};
use crate::signal::Gate;
use crate::spin;
use crate::work::Stopwatch;

pub(crate) fn contest() -> Contest {
    Contest {
        name: "mixed",
        about: "urgent callbacks under 1000 tasks that burn 20 us each; from when due, and per low burn",
        metrics: METRICS,
        // A round cannot be short, and warms up by itself.
        warm_up: false,
        at_most: 5,
        entries: vec![
            entry::<Dapple, OfDapple>(Dapple::NAME, Role::Ours),
            entry::<Tokio, OfTokio>(Tokio::NAME, Role::Rival),
            entry::<Tokio, OfTwoTokios>("tokio-two", Role::Reference),
        ],
    }
}

const METRICS: &[Metric] = &[
    Metric { name: "p99", unit: "us", ratios: true, absolutes: true },
    Metric { name: "p50", unit: "us", ratios: true, absolutes: true },
    // Wall time per burn: the reverse of throughput.
    Metric::new("low", "ns"),
    Metric { name: "generator", unit: "us", ratios: false, absolutes: true },
    DENIED,
];

/// Tasks in the background, and how long each burns at a time.
const TASKS: usize = 1000;
const BURN: u64 = 20_000;

/// Urgent callbacks in a round, the mean time between two, and how many of them only warm up.
const CALLBACKS: usize = 2500;
const MEAN_GAP: f64 = 1e-3;
const WARM_UP: usize = 500;

/// A side's way to run both kinds of work.
trait Mix: Send + 'static {
    /// Inside of the runtime.
    fn open() -> Self;

    /// Spawns a task of little priority.
    fn spawn_low<F: Future<Output = ()> + Send + 'static>(future: F);

    /// Sees to it that something urgent is called. From another thread.
    fn submit(&self, urgent: impl FnOnce() + Send + 'static);
}

fn entry<H: Host, M: Mix>(side: &'static str, role: Role) -> Entry {
    Entry { side, role, round: Box::new(|scale| Ok(round::<H, M>(scale))) }
}

/// The state that a round shares.
struct Round {
    stop: AtomicBool,
    /// The burns of the background tasks, with a counter for each task.
    burns: Vec<Count>,
    /// Nanoseconds from when a callback was due; 0 if it has not run.
    waits: Vec<AtomicU64>,
    over: Gate,
}

#[repr(align(64))]
#[derive(Default)]
struct Count(AtomicU64);

/// One round of one side, in the order of [`METRICS`].
fn round<H: Host, M: Mix>(scale: Scale) -> Sample {
    let callbacks = if scale.quick { WARM_UP + 100 } else { CALLBACKS };
    let steps = spin::steps(BURN);
    let round = Arc::new(Round {
        stop: AtomicBool::new(false),
        burns: (0..TASKS).map(|_| Count::default()).collect(),
        waits: (0..callbacks).map(|_| AtomicU64::new(0)).collect(),
        over: Gate::new(),
    });
    H::start().run(move |_| async move {
        for task in 0..TASKS {
            M::spawn_low(burn::<H::Side>(round.clone(), task, steps));
        }
        let (mix, of_thread) = (M::open(), round.clone());
        let generator = thread::spawn(move || {
            let seen = generate(&mix, &of_thread);
            of_thread.stop.store(true, Release);
            of_thread.over.open();
            seen
        });
        round.over.pass().await;
        let seen = generator.join().expect("a generator that ends");
        let mut waits: Vec<u64> = round.waits[WARM_UP..].iter().map(|wait| wait.load(Relaxed)).collect();
        let Seen { per_burn, lateness, denied } = seen;
        vec![percentile(&mut waits, 0.99), percentile(&mut waits, 0.5), per_burn, lateness, denied]
    })
}

/// A task in the background.
async fn burn<S: Side>(round: Arc<Round>, task: usize, steps: u64) {
    let mut seed = task as u64;
    while !round.stop.load(Acquire) {
        seed = black_box(spin::work(steps, seed));
        let count = &round.burns[task].0;
        count.store(count.load(Relaxed) + 1, Relaxed);
        S::yield_now().await;
    }
}

/// The generator's measurements.
struct Seen {
    /// Nanoseconds for each burn in the background, from when it was warm.
    per_burn: f64,
    /// How late it was itself, in microseconds, at the 99th percentile.
    lateness: f64,
    /// For how much of the time threads of this process stood ready and got no core, in percent.
    denied: f64,
}

/// Submits all callbacks when they are due, and waits until they have run.
fn generate(mix: &impl Mix, round: &Arc<Round>) -> Seen {
    keep_time();
    let callbacks = round.waits.len();
    let mut late = Vec::with_capacity(callbacks);
    let (mut stopwatch, mut burns) = (Stopwatch::start(), 0);
    let mut due = Instant::now();
    for number in 0..callbacks {
        if number == WARM_UP {
            (stopwatch, burns) = (Stopwatch::start(), round.burns());
        }
        due += gap(number);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        late.push(due.elapsed().as_nanos() as u64);
        let round = round.clone();
        mix.submit(move || {
            round.waits[number].store(due.elapsed().as_nanos().max(1) as u64, Relaxed);
        });
    }
    let burns = (round.burns() - burns) as usize;
    let sample = stopwatch.contended(burns);
    let patience = Instant::now() + Duration::from_secs(60);
    while round.waits.iter().any(|wait| wait.load(Relaxed) == 0) {
        assert!(Instant::now() < patience, "a callback was forgotten");
        thread::sleep(Duration::from_millis(1));
    }
    Seen { per_burn: sample[0], lateness: percentile(&mut late[WARM_UP..], 0.99), denied: sample[3] }
}

impl Round {
    /// The burns of all background tasks.
    fn burns(&self) -> u64 {
        self.burns.iter().map(|count| count.0.load(Relaxed)).sum()
    }
}

/// Makes this thread wake up in time, as far as the system lets it: it has little to do and is the clock.
fn keep_time() {
    // Without the right to it, `generator` shows what comes of it.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let _ = setpriority_process(Some(gettid()), -20);
}

/// The time from one callback to the next: exponential, the same in every round.
fn gap(number: usize) -> Duration {
    let uniform = (scatter(number as u64) >> 11) as f64 / (1_u64 << 53) as f64;
    Duration::from_secs_f64(-MEAN_GAP * (1.0 - uniform).ln())
}

/// In microseconds, of nanoseconds.
fn percentile(nanos: &mut [u64], share: f64) -> f64 {
    nanos.sort_unstable();
    let index = ((nanos.len() - 1) as f64 * share).round() as usize;
    nanos[index] as f64 / 1e3
}

struct OfDapple(Color);

impl Mix for OfDapple {
    fn open() -> Self {
        Self(Color::new())
    }

    fn spawn_low<F: Future<Output = ()> + Send + 'static>(future: F) {
        dapple::task::Builder::new().priority(Priority::Low).spawn(future).detach();
    }

    fn submit(&self, urgent: impl FnOnce() + Send + 'static) {
        event::now(Callback::new(urgent).priority(Priority::Urgent).color(&self.0)).detach();
    }
}

/// tokio, with its priority in the place of the low ones: it has none.
struct OfTokio(tokio::runtime::Handle);

impl Mix for OfTokio {
    fn open() -> Self {
        Self(tokio::runtime::Handle::current())
    }

    fn spawn_low<F: Future<Output = ()> + Send + 'static>(future: F) {
        tokio::spawn(future);
    }

    fn submit(&self, urgent: impl FnOnce() + Send + 'static) {
        self.0.spawn(async move { urgent() });
    }
}

/// tokio with another runtime.
struct OfTwoTokios(tokio::runtime::Runtime);

impl Mix for OfTwoTokios {
    fn open() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
        Self(runtime.expect("a second runtime"))
    }

    fn spawn_low<F: Future<Output = ()> + Send + 'static>(future: F) {
        tokio::spawn(future);
    }

    fn submit(&self, urgent: impl FnOnce() + Send + 'static) {
        self.0.spawn(async move { urgent() });
    }
}
