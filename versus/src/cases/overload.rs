//! `overload`: what is answered in time when more is asked than can be done.
//!
//! A handler burns a millisecond of CPU. Its capacity is measured first, in each round and for each side, with 16
//! clients that each wait for the answer before the next request. Then requests come at 0.5, 1, 2, 4 and 10 times that
//! rate, independent of the earlier ones. A request answered within half a second of when it was due is *good*. `tokio`
//! has no limit. `tokio-semaphore` is the code of a careful user: a permit or a refusal with 503 at once, and the work
//! in `spawn_blocking`, since a handler that computes in place would hold its permit only while no other request can
//! ask for one. Dapple is `dapple_http::serve` with its default limits.
//!
//! Server and load have a core each. On one core the runtimes choose one worker by themselves, and that is what all
//! of them have. The load has at most 2000 connections, and a request that finds them all busy is not answered: so a
//! queue without a limit is at most two seconds long here, and would be longer elsewhere.
//!
//! One server is measured at all rates, one after the other, and its memory is looked at all the time. So the
//! contests share what was measured ([`Kept`]): the first that runs measures, the others take their part. `peak`
//! is Dapple at its best rate, `capacity` is Dapple's memory at a rate of 1, both in the same round.

use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::child::Child;
use crate::contest::{Contest, Entry, Failure, Metric, Role, Sample};
use crate::load::web::open::{Plan, Report, SOON};
use crate::served::{LOAD, SERVE};
use crate::sides::net::OfTokio;
use crate::sides::{Dapple, Host, TokioDriven};
use crate::spin;
use crate::web::burden::{Bounded, Burden, Naive};
use crate::web::kept::Kept;
use crate::web::memory::Watch;
use crate::web::{cores, server};

pub(crate) fn contests() -> Vec<Contest> {
    let curves = Kept::new(measure);
    vec![
        level(
            &curves,
            "overload/0.5",
            "requests that burn 1 ms, half as many as can be done; per good one",
            0,
        ),
        level(&curves, "overload/1", "the same, as many as can be done", ONE),
        level(&curves, "overload/2", "the same, twice as many", 2),
        level(&curves, "overload/4", "the same, four times as many", 3),
        level(&curves, "overload/10", "the same, ten times as many", 4),
        peak(&curves),
    ]
}

/// The rates, in capacities.
const LEVELS: [f64; 5] = [0.5, 1.0, 2.0, 4.0, 10.0];

/// Where the rate of 1 is.
const ONE: usize = 1;

const METRICS: &[Metric] = &[
    // The reverse of goodput: time on the clock for each good answer.
    Metric::new("goodput", "us"),
    Metric { name: "good", unit: "/s", ratios: false, absolutes: true },
    Metric { name: "p99", unit: "ms", ratios: true, absolutes: true },
    Metric { name: "memory", unit: "MB", ratios: true, absolutes: true },
    Metric::shown("refused", "%"),
    // CPU time of the server by time on the clock: with less than all of it there was little to do, or too much else.
    Metric::shown("core", "%"),
    Metric { name: "generator", unit: "ms", ratios: false, absolutes: true },
];

const PEAK: &[Metric] =
    &[Metric::new("", "us"), Metric { name: "capacity", unit: "/s", ratios: false, absolutes: true }];

/// How long a handler burns, in nanoseconds.
const BURN: u64 = 1_000_000;

/// Clients that wait for their answers. They measure the capacity several times, for `MEASURE` each. The highest
/// counts, since other load on the machine can only lower it.
const CLIENTS: usize = 16;
const MEASURE: Duration = Duration::from_millis(250);
const MEASURES: usize = 4;

/// At each rate: before anything counts, and while it does.
const SETTLE: Duration = Duration::from_millis(1000);
const WINDOW: Duration = Duration::from_millis(1500);

/// A load that is later than that has measured itself; such a rate is done again, some times.
const LATE: f64 = 2.0;
const TRIES: usize = 3;

/// tokio with a semaphore, and its permits. On one core two were best: with four or more, the threads that compute
/// leave so little to the one that refuses that at ten times the capacity next to nothing is good.
const SEMAPHORE: &str = "tokio-semaphore";
const PERMITS: usize = 2;

/// The results of one server.
#[derive(Clone)]
struct Curve {
    /// Answers a second to clients who wait.
    capacity: f64,
    points: Vec<Point>,
}

/// At one rate.
#[derive(Clone)]
struct Point {
    report: Report,
    /// Good answers a second.
    good: f64,
    /// Megabytes, at the most.
    memory: f64,
    /// How much of its core the server had, in percent.
    core: f64,
}

/// All sides at one rate.
fn level(curves: &Rc<Kept<Curve>>, name: &'static str, about: &'static str, level: usize) -> Contest {
    let side = |side, role| curves.entry(side, side, role, move |curve| curve.points[level].sample());
    let best = curves.entry("peak", Dapple::NAME, Role::Rival, |curve| {
        let mut sample = vec![f64::NAN; METRICS.len()];
        (sample[0], sample[1]) = (1e6 / curve.peak(), curve.peak());
        sample
    });
    let mut entries = vec![
        side(Dapple::NAME, Role::Ours),
        side(TokioDriven::NAME, Role::Rival),
        side(SEMAPHORE, Role::Rival),
        best,
    ];
    if level > ONE {
        entries.push(curves.entry("capacity", Dapple::NAME, Role::Rival, |curve| {
            let mut sample = vec![f64::NAN; METRICS.len()];
            sample[3] = curve.points[ONE].memory;
            sample
        }));
    }
    contest(name, about, METRICS, entries)
}

/// The best of all rates.
fn peak(curves: &Rc<Kept<Curve>>) -> Contest {
    let side = |side, role| curves.entry(side, side, role, |curve| vec![1e6 / curve.peak(), curve.capacity]);
    let entries = vec![
        side(Dapple::NAME, Role::Ours),
        side(TokioDriven::NAME, Role::Rival),
        side(SEMAPHORE, Role::Rival),
    ];
    contest("overload/peak", "at the rate at which most are good; per good one", PEAK, entries)
}

fn contest(
    name: &'static str,
    about: &'static str,
    metrics: &'static [Metric],
    entries: Vec<Entry>,
) -> Contest {
    // A server warms up while its capacity is measured, and a round cannot be short.
    Contest { name, about, metrics, warm_up: false, at_most: 3, entries }
}

impl Curve {
    /// Good answers a second, at the best rate.
    fn peak(&self) -> f64 {
        self.points.iter().map(|point| point.good).fold(0.0, f64::max)
    }
}

impl Point {
    /// In the order of [`METRICS`].
    fn sample(&self) -> Sample {
        let Report { due, refused, p99, late, .. } = self.report;
        vec![1e6 / self.good, self.good, p99, self.memory, 100.0 * refused / due, self.core, late]
    }
}

/// Starts the server of a side, and measures it at all rates.
fn measure(side: &str, quick: bool) -> Result<Curve, Failure> {
    let shorter = if quick { 10 } else { 1 };
    let burden = Burden::Compute(spin::steps(BURN)).text();
    let mut server = Child::start(&[&format!("--{SERVE}"), &format!("overload/{burden}"), side])?;
    let address: String = server.answer()?;
    let mut load = Child::start(&[&format!("--{LOAD}"), "overload", &address, "1"])?;
    let closed = format!("closed {CLIENTS} {}", (MEASURE / shorter).as_millis());
    // The first only warms up.
    let _warm: f64 = load.tell(&closed)?;
    let mut capacity: f64 = 0.0;
    for _ in 0..MEASURES {
        capacity = capacity.max(load.tell(&closed)?);
    }
    if capacity == 0.0 {
        return Err(format!("overload: {side} answers nothing"));
    }
    let (settle, window) = (SETTLE / shorter, WINDOW / shorter);
    let mut points = Vec::new();
    for level in LEVELS {
        let plan = Plan { rate: level * capacity, settle, window, tail: SOON / shorter, heavy: 0 };
        points.push(at_rate(&mut server, &mut load, &plan, quick)?);
    }
    Ok(Curve { capacity, points })
}

/// Measures a server at one rate, again if the load was late.
fn at_rate(server: &mut Child, load: &mut Child, plan: &Plan, quick: bool) -> Result<Point, Failure> {
    let mut once = || {
        let watch = Watch::begin(server.id());
        let (begin, before): (_, u64) = (Instant::now(), server.ask()?);
        let report: Report = load.tell(&plan.line())?;
        let after: u64 = server.ask()?;
        let core = 100.0 * (after - before) as f64 / begin.elapsed().as_nanos() as f64;
        let good = report.good / plan.window.as_secs_f64();
        Ok::<_, Failure>(Point { report, good, memory: watch.end(), core })
    };
    let mut point = once()?;
    for _ in 1..if quick { 1 } else { TRIES } {
        if point.report.late <= LATE {
            break;
        }
        let again = once()?;
        if again.report.late < point.report.late {
            point = again;
        }
    }
    Ok(point)
}

/// Runs the server, in its own process.
pub(crate) fn serve(burden: &str, side: &str) -> Result<(), Failure> {
    let burden = Burden::parse(burden)?;
    cores::keep_to_first()?;
    match side {
        Dapple::NAME => Dapple::with_workers(1).run(|_| server::serve_dapple_http(Naive(burden))),
        TokioDriven::NAME => {
            TokioDriven::with_workers(1).run(|side| server::serve::<_, OfTokio, _>(side, Naive(burden)))
        }
        SEMAPHORE => {
            let handler = Bounded::new(burden, PERMITS);
            TokioDriven::with_workers(1).run(|side| server::serve::<_, OfTokio, _>(side, handler))
        }
        _ => Err(format!("no side is called {side:?}")),
    }
}
