//! `memory`: resident bytes per live task, when there are very many.
//!
//! Each measurement is a process of its own: this program starts itself with a
//! hidden argument ([`CHILD`]). In it, one task spawns all others, each of which
//! yields until told to stop; a thread waits until all of them have been polled,
//! reads what has become resident, tells them to stop, and waits until all of
//! them have been polled again, which ends them. The tasks themselves hold
//! nothing but what the variant says: the counts and the stop flag are statics.
//!
//! monoio cannot do this: a task that wakes itself starves all others there.

use std::fs;
use std::hint::black_box;
use std::process;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, LazyLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::stm;
use crate::child::Child;
use crate::contest::{BYTES, Contest, Entry, Failure, Role};
use crate::sides::{Dapple, Host, Side, Smol, SmolStatic, Tokio};
use crate::signal::Gate;

/// The hidden option: `--memory-child SIDE VARIANT TASKS` prints bytes per task.
pub(crate) const CHILD: &str = "memory-child";

/// A child that has not got anywhere by then has failed.
const DEADLINE: Duration = Duration::from_secs(900);

/// Between the last first poll and the measurement, so that freed memory goes back.
const SETTLE: Duration = Duration::from_millis(200);

/// Tasks in all.
static TASKS: AtomicU64 = AtomicU64::new(0);
/// Tasks that have been polled.
static STARTED: AtomicU64 = AtomicU64::new(0);
/// Tells the tasks to end; set after the measurement.
static STOP: AtomicBool = AtomicBool::new(false);
/// Tasks that have been polled again since then, and have ended.
static ENDED: AtomicU64 = AtomicU64::new(0);
/// Shared by the tasks that hold state: the sum of their numbers.
static SUM: LazyLock<Arc<AtomicU64>> = LazyLock::new(Arc::default);
/// Opened by the last one.
static DONE: Gate = Gate::new();

/// An `async fn` that loops on yield, its handle dropped.
const LOOP_DETACHED: &str = "memory/loop-detached";
/// The same, its handle kept.
const LOOP_JOINABLE: &str = "memory/loop-joinable";
/// An `async fn` that also holds a `u64` and an `Arc`, its handle dropped.
const ARC_DETACHED: &str = "memory/arc-detached";

pub(crate) fn contests() -> Vec<Contest> {
    vec![
        contest(LOOP_DETACHED, "very many live tasks that loop on yield; resident bytes per task"),
        contest(LOOP_JOINABLE, "the same, their handles kept in a Vec that is not counted; bytes per task"),
        contest(ARC_DETACHED, "very many live tasks that also hold a u64 and an Arc; bytes per task"),
    ]
}

fn contest(name: &'static str, about: &'static str) -> Contest {
    Contest {
        name,
        about,
        metrics: BYTES,
        warm_up: false,
        at_most: 1,
        entries: vec![
            entry::<Dapple>(name, Role::Ours),
            entry::<Tokio>(name, Role::Rival),
            entry::<Smol>(name, Role::Rival),
            entry::<SmolStatic>(name, Role::Reference),
        ],
    }
}

fn entry<H: Host>(name: &'static str, role: Role) -> Entry {
    Entry {
        side: H::NAME,
        role,
        round: Box::new(move |scale| Ok(vec![in_child(H::NAME, name, scale.tasks)?])),
    }
}

/// Measures one side in a fresh process.
pub(super) fn in_child(side: &str, name: &str, tasks: u64) -> Result<f64, Failure> {
    Child::start(&[&format!("--{CHILD}"), side, name, &tasks.to_string()])?.answer()
}

/// Runs in the fresh process: measures and returns bytes per task.
pub(crate) fn child(side: &str, name: &str, tasks: u64) -> Result<f64, Failure> {
    if name == stm::parked::NAME {
        return stm::parked::child(side, tasks);
    }
    match side {
        Dapple::NAME => fill::<Dapple>(name, tasks),
        Tokio::NAME => fill::<Tokio>(name, tasks),
        Smol::NAME => fill::<Smol>(name, tasks),
        SmolStatic::NAME => fill::<SmolStatic>(name, tasks),
        _ => Err(format!("no side is called {side:?}")),
    }
}

fn fill<H: Host>(name: &str, tasks: u64) -> Result<f64, Failure> {
    let mut host = H::start();
    let bytes = match name {
        LOOP_DETACHED => host.run(move |side| detached(side, tasks, looping::<H::Side>)),
        LOOP_JOINABLE => host.run(move |side| joinable(side, tasks)),
        ARC_DETACHED => host.run(move |side| detached(side, tasks, holding::<H::Side>)),
        _ => return Err(format!("no variant is called {name:?}")),
    };
    let sum = if name == ARC_DETACHED { tasks * (tasks - 1) / 2 } else { 0 };
    assert_eq!(SUM.load(Relaxed), sum, "a task has lost what it held");
    Ok(bytes as f64 / tasks as f64)
}

/// Loops on yield, and holds nothing.
async fn looping<S: Side>() {
    started();
    while !STOP.load(Relaxed) {
        S::yield_now().await;
    }
    ended();
}

/// Loops on yield, and holds a number and a reference.
///
/// Both are locals: an `async fn` would store its arguments twice (rustc does
/// so today), and the case is about 16 bytes.
async fn holding<S: Side>() {
    let (number, sum) = (started(), SUM.clone());
    while !STOP.load(Relaxed) {
        S::yield_now().await;
    }
    sum.fetch_add(number, Relaxed);
    ended();
}

/// Counts a task, and returns its number.
fn started() -> u64 {
    STARTED.fetch_add(1, AcqRel)
}

/// Counts a task out; the last one tells.
fn ended() {
    if ENDED.fetch_add(1, AcqRel) + 1 == TASKS.load(Relaxed) {
        DONE.open();
    }
}

/// Spawns detached tasks, and returns their resident bytes.
async fn detached<S, F>(side: S, tasks: u64, task: impl Fn() -> F + Send) -> usize
where
    S: Side,
    F: Future<Output = ()> + Send + 'static,
{
    let measured = measure(tasks);
    for _ in 0..tasks {
        S::detach(side.spawn(task()));
    }
    DONE.pass().await;
    measured.join().expect("a thread that ends")
}

/// Spawns tasks and keeps their handles, and returns their resident bytes.
async fn joinable<S: Side>(side: S, tasks: u64) -> usize {
    // Written once before, so that its pages are resident when counting begins.
    let mut handles: Vec<Option<S::Handle<()>>> = Vec::with_capacity(tasks as usize);
    handles.extend((0..tasks).map(|_| black_box(None)));
    let measured = measure(tasks);
    for handle in &mut handles {
        *handle = Some(side.spawn(looping::<S>()));
    }
    DONE.pass().await;
    for handle in handles.into_iter().flatten() {
        S::join(handle).await;
    }
    measured.join().expect("a thread that ends")
}

/// Starts the thread that measures by how much resident memory grows from now on.
fn measure(tasks: u64) -> JoinHandle<usize> {
    TASKS.store(tasks, Relaxed);
    let before = resident();
    thread::spawn(move || {
        wait_until(tasks, &STARTED);
        thread::sleep(SETTLE);
        let grown = resident().saturating_sub(before);
        assert_eq!(ENDED.load(Acquire), 0, "a task has ended early");
        STOP.store(true, Release);
        wait_until(tasks, &ENDED);
        grown
    })
}

/// Waits until all tasks have been counted; ends the process if they never are.
fn wait_until(tasks: u64, count: &AtomicU64) {
    let begin = Instant::now();
    while count.load(Acquire) != tasks {
        if begin.elapsed() > DEADLINE {
            eprintln!("{} of {tasks} tasks were polled", count.load(Acquire));
            process::exit(1);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Resident bytes of this process, exact (`statm` may lag behind).
pub(super) fn resident() -> usize {
    let text = fs::read_to_string("/proc/self/smaps_rollup").expect("a Linux with smaps_rollup");
    let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kibibytes = line.and_then(|line| line.trim().strip_suffix("kB"));
    let kibibytes = kibibytes.and_then(|number| number.trim().parse::<usize>().ok());
    kibibytes.expect("a line with Rss") * 1024
}
