//! `blocked` and `sleepy`: how long light requests wait while others hold up their worker.
//!
//! Figure 1 of the paper on Node.Scala: 100 requests a second, of which 0, 5, 10 or 15 of a hundred compute for
//! about 70 ms; in `sleepy` a tenth of them sleep for 50 ms in a call that blocks. Requests come when they are due,
//! independent of the earlier ones ([`crate::load::web::open`]). The measure is the time from when a light request was
//! due to when it was answered.
//!
//! Handlers are written as if that did not matter, except for `tokio-blocking`, where what is heavy is in
//! `spawn_blocking`. At 15% heavy ones need more than one core. So server and load share the cores (two
//! workers on all sides); the load, which does next to nothing, has the highest nice level, and says how late it was.
//! `awake` is Dapple without sleepers, in the same rounds.

use std::time::Duration;

use crate::child::Child;
use crate::contest::{Contest, Entry, Failure, Metric, Role, Sample, Scale};
use crate::load::web::open::{Plan, Report};
use crate::served::{LOAD, SERVE};
use crate::sides::net::{OfDapple, OfSmol, OfTokio};
use crate::sides::{Dapple, Host, SmolDriven, TokioDriven};
use crate::spin;
use crate::web::burden::{Aside, Burden, Naive};
use crate::web::server;

pub(crate) fn contests() -> Vec<Contest> {
    let blocked = |name, about, heavy| contest(name, about, rivals(name, Kind::Compute, heavy));
    let sleepy =
        "of 100 requests a second a tenth sleep for 50 ms in their handler; the others, from when due";
    let mut sleepers = rivals("sleepy", Kind::Sleep, 10);
    sleepers.push(entry("sleepy", "awake", Dapple::NAME, Role::Rival, Kind::Sleep, 0));
    vec![
        blocked("blocked/0", "100 light requests a second over HTTP, from when they are due", 0),
        blocked("blocked/5", "the same, and 5% compute for 70 ms in their handler; the light ones", 5),
        blocked("blocked/10", "the same, and 10% do", 10),
        blocked("blocked/15", "the same, and 15% do", 15),
        contest("sleepy", sleepy, sleepers),
    ]
}

const METRICS: &[Metric] = &[
    Metric { name: "p99", unit: "ms", ratios: true, absolutes: true },
    Metric { name: "p50", unit: "ms", ratios: true, absolutes: true },
    // The reverse of throughput: time on the clock for each answer, light or heavy.
    Metric::new("answer", "ms"),
    Metric { name: "generator", unit: "ms", ratios: false, absolutes: true },
];

/// Requests a second.
const RATE: f64 = 100.0;

/// Before anything counts, and while it does.
const SETTLE: Duration = Duration::from_millis(500);
const WINDOW: Duration = Duration::from_secs(3);

/// A load that is later than that has measured itself; such a round is done again, some times.
const LATE: f64 = 1.0;
const TRIES: usize = 3;

/// tokio with `spawn_blocking`.
const BLOCKING: &str = "tokio-blocking";

/// The work of a heavy request.
#[derive(Clone, Copy)]
enum Kind {
    Compute,
    Sleep,
}

impl Kind {
    fn burden(self) -> Burden {
        match self {
            Self::Compute => Burden::Compute(spin::steps(70_000_000)),
            Self::Sleep => Burden::Sleep(Duration::from_millis(50)),
        }
    }
}

fn contest(name: &'static str, about: &'static str, entries: Vec<Entry>) -> Contest {
    // A round warms up by itself, and cannot be short.
    Contest { name, about, metrics: METRICS, warm_up: false, at_most: 3, entries }
}

/// All sides.
fn rivals(name: &'static str, kind: Kind, heavy: u32) -> Vec<Entry> {
    vec![
        entry(name, Dapple::NAME, Dapple::NAME, Role::Ours, kind, heavy),
        entry(name, TokioDriven::NAME, TokioDriven::NAME, Role::Rival, kind, heavy),
        entry(name, BLOCKING, BLOCKING, Role::Rival, kind, heavy),
        entry(name, SmolDriven::NAME, SmolDriven::NAME, Role::Rival, kind, heavy),
    ]
}

/// One of them; it is called so, and served by that.
fn entry(
    name: &'static str,
    side: &'static str,
    server: &'static str,
    role: Role,
    kind: Kind,
    heavy: u32,
) -> Entry {
    let round = move |scale: Scale| round(name, server, kind, heavy, scale.quick);
    Entry { side, role, round: Box::new(round) }
}

/// One round of one side, in the order of [`METRICS`].
fn round(name: &str, side: &str, kind: Kind, heavy: u32, quick: bool) -> Result<Sample, Failure> {
    let case = name.split('/').next().unwrap_or(name);
    let mut server =
        Child::start(&[&format!("--{SERVE}"), &format!("{case}/{}", kind.burden().text()), side])?;
    let address: String = server.answer()?;
    let mut load = Child::start(&[&format!("--{LOAD}"), case, &address, "1"])?;
    let shorter = if quick { 20 } else { 1 };
    // The variants that something is asked of are longer: a percentile wants many requests.
    let window = if matches!(name, "blocked/15" | "sleepy") { 2 * WINDOW } else { WINDOW };
    let (settle, window) = (SETTLE / shorter, window / shorter);
    let plan = Plan { rate: RATE, settle, window, tail: Duration::ZERO, heavy };
    let mut report: Report = load.tell(&plan.line())?;
    for _ in 1..if quick { 1 } else { TRIES } {
        if report.late <= LATE {
            break;
        }
        let again: Report = load.tell(&plan.line())?;
        if again.late < report.late {
            report = again;
        }
    }
    let answer = window.as_secs_f64() * 1e3 / report.within;
    Ok(vec![report.p99, report.p50, answer, report.late])
}

/// Runs the server, in its own process.
pub(crate) fn serve(burden: &str, side: &str) -> Result<(), Failure> {
    let burden = Burden::parse(burden)?;
    match side {
        Dapple::NAME => Dapple::start().run(|side| server::serve::<_, OfDapple, _>(side, Naive(burden))),
        TokioDriven::NAME => {
            TokioDriven::start().run(|side| server::serve::<_, OfTokio, _>(side, Naive(burden)))
        }
        BLOCKING => TokioDriven::start().run(|side| server::serve::<_, OfTokio, _>(side, Aside(burden))),
        SmolDriven::NAME => {
            SmolDriven::start().run(|side| server::serve::<_, OfSmol, _>(side, Naive(burden)))
        }
        _ => Err(format!("no side is called {side:?}")),
    }
}
