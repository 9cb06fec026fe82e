//! `callback`: a million closures, each to be called in one of 1, 100 or 10,000 colors.
//!
//! One task submits them, to the colors in turn, and lets others run after each thousand. The callback is the same
//! everywhere: it adds a number to a state of its color, in a few instructions without any lock, and checks that the
//! numbers of its color come in order. So each side must keep the promise of a color: one callback at a time, in the
//! order of submission.
//!
//! Elsewhere a color is a task with a channel, through which it gets boxed closures ([`OfTokio`], [`OfSmol`]), or
//! a queue with a lock over a pool of threads ([`pool`]). `tokio-values`, a reference, sends numbers instead of
//! closures: cheaper, and good for one kind of callback only.

mod pool;

use std::sync::atomic::Ordering::{AcqRel, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use dapple::Color;
use dapple::event::{self, Callback};
use tokio::sync::mpsc;

use crate::contest::{Contest, Entry, Role, Sample, Scale};
use crate::sides::{Dapple, Host, Side, Smol, Tokio};
use crate::signal::Gate;
use crate::work::{self, BATCH, Stopwatch};

pub(crate) fn contests() -> Vec<Contest> {
    vec![
        contest("callback/1", "a million callbacks in one color; per callback", 1),
        contest("callback/100", "the same over 100 colors", 100),
        contest("callback/10000", "the same over 10,000 colors", MOST_COLORS),
    ]
}

const BATCHES: usize = 1000;
const MOST_COLORS: usize = 10_000;

fn contest(name: &'static str, about: &'static str, colors: usize) -> Contest {
    let entries = vec![
        entry::<Dapple, OfDapple>(Dapple::NAME, Role::Ours, colors),
        entry::<Tokio, OfTokio>(Tokio::NAME, Role::Rival, colors),
        entry::<Smol, OfSmol>(Smol::NAME, Role::Rival, colors),
        Entry {
            side: "pool",
            role: Role::Rival,
            round: Box::new(move |scale| Ok(pool::round(colors, batches(scale)))),
        },
        entry::<Tokio, OfTokioValues>("tokio-values", Role::Reference, colors),
    ];
    work::contended(name, about, entries)
}

fn batches(scale: Scale) -> usize {
    BATCHES.div_ceil(if scale.quick { 20 } else { 1 })
}

/// A side's equivalent of colors.
trait Colors: Send + Sync + 'static {
    fn open<S: Side>(side: &S, colors: usize) -> Self;

    /// Sees to it that [`call`] is called in a color.
    fn submit(&self, color: usize, number: u64);
}

fn entry<H: Host, C: Colors>(side: &'static str, role: Role, colors: usize) -> Entry {
    Entry { side, role, round: Box::new(move |scale| Ok(round::<H, C>(colors, batches(scale)))) }
}

/// One round of one side, the colors being there before the clock starts.
fn round<H: Host, C: Colors>(colors: usize, batches: usize) -> Sample {
    H::start().run(move |side| async move {
        let open = C::open(&side, colors);
        submit_all::<H::Side, C>(&open, colors, batches.div_ceil(10)).await;
        let stopwatch = Stopwatch::start();
        submit_all::<H::Side, C>(&open, colors, batches).await;
        stopwatch.contended(batches * BATCH)
    })
}

/// Submits `batches` batches, and waits until all have been called.
async fn submit_all<S: Side, C: Colors>(open: &C, colors: usize, batches: usize) {
    expect(colors, batches * BATCH);
    for batch in 0..batches {
        for (color, number) in batch_of(batch, colors) {
            open.submit(color, number);
        }
        S::yield_now().await;
    }
    ALL_CALLED.pass().await;
    check(colors, batches * BATCH);
}

/// The colors and numbers of a batch.
fn batch_of(batch: usize, colors: usize) -> impl Iterator<Item = (usize, u64)> {
    let mut color = batch * BATCH % colors;
    (batch * BATCH..(batch + 1) * BATCH).map(move |number| {
        let this = color;
        color = if color + 1 == colors { 0 } else { color + 1 };
        (this, number as u64 + 1)
    })
}

/// The state of a color. Only one callback uses it at a time: the fields are atomics only because the compiler cannot
/// know that.
#[repr(align(64))]
struct State {
    last: AtomicU64,
    sum: AtomicU64,
    /// Calls that are still to come.
    due: AtomicUsize,
}

static STATES: [State; MOST_COLORS] =
    [const { State { last: AtomicU64::new(0), sum: AtomicU64::new(0), due: AtomicUsize::new(0) } };
        MOST_COLORS];

/// Colors that have calls to come.
static BUSY: AtomicUsize = AtomicUsize::new(0);
static ALL_CALLED: Gate = Gate::new();
static OUT_OF_ORDER: AtomicBool = AtomicBool::new(false);

/// The callback, in the place of whatever a program would do.
#[inline]
fn call(color: usize, number: u64) {
    let state = &STATES[color];
    if number <= state.last.load(Relaxed) {
        OUT_OF_ORDER.store(true, Relaxed);
    }
    state.last.store(number, Relaxed);
    state.sum.store(state.sum.load(Relaxed) + number, Relaxed);
    let due = state.due.load(Relaxed) - 1;
    state.due.store(due, Relaxed);
    if due == 0 && BUSY.fetch_sub(1, AcqRel) == 1 {
        ALL_CALLED.open();
    }
}

/// Prepares the states for `calls` calls.
fn expect(colors: usize, calls: usize) {
    for (color, state) in STATES[..colors].iter().enumerate() {
        state.last.store(0, Relaxed);
        state.sum.store(0, Relaxed);
        state.due.store(calls / colors + usize::from(color < calls % colors), Relaxed);
    }
    BUSY.store(colors.min(calls), Relaxed);
}

/// Checks the states after `calls` calls.
fn check(colors: usize, calls: usize) {
    assert!(!OUT_OF_ORDER.load(Relaxed), "callbacks of a color ran out of order");
    let sum: u64 = STATES[..colors].iter().map(|state| state.sum.load(Relaxed)).sum();
    assert_eq!(sum, (calls * (calls + 1) / 2) as u64, "a callback was lost, or called twice");
}

struct OfDapple(Vec<Color>);

impl Colors for OfDapple {
    fn open<S: Side>(_: &S, colors: usize) -> Self {
        Self((0..colors).map(|_| Color::new()).collect())
    }

    #[inline]
    fn submit(&self, color: usize, number: u64) {
        event::now(Callback::new(move || call(color, number)).color(&self.0[color])).detach();
    }
}

/// The message type of the other sides' channels.
type Job = Box<dyn FnOnce() + Send>;

/// How many messages a task takes from its channel at a time.
const AT_A_TIME: usize = 64;

/// Tasks of tokio, each with a channel of its own.
struct OfTokio(Vec<mpsc::UnboundedSender<Job>>);

impl Colors for OfTokio {
    fn open<S: Side>(side: &S, colors: usize) -> Self {
        let open = |_| {
            let (sender, mut receiver) = mpsc::unbounded_channel::<Job>();
            S::detach(side.spawn(async move {
                let mut jobs = Vec::with_capacity(AT_A_TIME);
                while receiver.recv_many(&mut jobs, AT_A_TIME).await > 0 {
                    jobs.drain(..).for_each(|job| job());
                }
            }));
            sender
        };
        Self((0..colors).map(open).collect())
    }

    #[inline]
    fn submit(&self, color: usize, number: u64) {
        let sent = self.0[color].send(Box::new(move || call(color, number)));
        assert!(sent.is_ok(), "a task that lives");
    }
}

/// The same for one kind of callback.
struct OfTokioValues(Vec<mpsc::UnboundedSender<u64>>);

impl Colors for OfTokioValues {
    fn open<S: Side>(side: &S, colors: usize) -> Self {
        let open = |color| {
            let (sender, mut receiver) = mpsc::unbounded_channel::<u64>();
            S::detach(side.spawn(async move {
                let mut numbers = Vec::with_capacity(AT_A_TIME);
                while receiver.recv_many(&mut numbers, AT_A_TIME).await > 0 {
                    numbers.drain(..).for_each(|number| call(color, number));
                }
            }));
            sender
        };
        Self((0..colors).map(open).collect())
    }

    #[inline]
    fn submit(&self, color: usize, number: u64) {
        self.0[color].send(number).expect("a task that lives");
    }
}

/// Tasks of smol, each with a channel of its own.
struct OfSmol(Vec<smol::channel::Sender<Job>>);

impl Colors for OfSmol {
    fn open<S: Side>(side: &S, colors: usize) -> Self {
        let open = |_| {
            let (sender, receiver) = smol::channel::unbounded::<Job>();
            S::detach(side.spawn(async move {
                while let Ok(job) = receiver.recv().await {
                    job();
                    for _ in 1..AT_A_TIME {
                        let Ok(job) = receiver.try_recv() else { break };
                        job();
                    }
                }
            }));
            sender
        };
        Self((0..colors).map(open).collect())
    }

    #[inline]
    fn submit(&self, color: usize, number: u64) {
        let sent = self.0[color].try_send(Box::new(move || call(color, number)));
        assert!(sent.is_ok(), "a task that lives");
    }
}
