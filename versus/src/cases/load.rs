//! `load`: the throughput of a file server from 10 to 8,000 clients, as in Figure 5-4 of the paper on libasync-mp.
//!
//! The work is that of `files`, over connections that are kept, each with a request under way. Dapple against hyper on
//! tokio. The measure is the time on the clock per request, the inverse of throughput: how flat it is (`peak` is Dapple
//! with the number of clients at which it was best, in the same round), and the best of each.
//!
//! Server and load share the cores, and the load takes part of them for itself: `load` is its CPU time. The
//! more clients there are the more of it is the kernel's, on both sides.

use std::rc::Rc;

use crate::contest::{Contest, Entry, Failure, Metric, Role, Sample};
use crate::sides::{Dapple, Host, TokioDriven};
use crate::web::files::Made;
use crate::web::kept::Kept;
use crate::web::round::round;

pub(crate) fn contests(made: &Rc<Made>) -> Vec<Contest> {
    let made = made.clone();
    let curves = Kept::new(move |side, quick| measure(&made, side, quick));
    let mut contests = vec![
        point(
            &curves,
            "load/10",
            "files of 4 KB for 10 clients who ask again when they are answered; per request",
            0,
        ),
        point(&curves, "load/100", "the same for 100", 1),
        point(&curves, "load/500", "the same for 500", 2),
        point(&curves, "load/1000", "the same for 1,000", 3),
        point(&curves, "load/2000", "the same for 2,000", 4),
        point(&curves, "load/4000", "the same for 4,000", 5),
        point(&curves, "load/8000", "the same for 8,000", 6),
    ];
    let best = |side, role| curves.entry(side, side, role, |curve: &Curve| vec![curve.best()]);
    let entries = vec![best(Dapple::NAME, Role::Ours), best(TokioDriven::NAME, Role::Rival)];
    contests.push(contest("load/peak", "the best of all numbers of clients; per request", PEAK, entries));
    contests
}

/// The numbers of clients.
const CLIENTS: [usize; 7] = [10, 100, 500, 1000, 2000, 4000, 8000];

/// Requests for each.
const REQUESTS: usize = 30_000;

const METRICS: &[Metric] = &[Metric::new("", "us"), Metric::shown("cpu", "us"), Metric::shown("load", "us")];

const PEAK: &[Metric] = &[Metric::new("", "us")];

/// The results of a side, for each number of clients, in the order of [`METRICS`].
struct Curve(Vec<Sample>);

impl Curve {
    /// The least time on the clock.
    fn best(&self) -> f64 {
        self.0.iter().map(|sample| sample[0]).fold(f64::INFINITY, f64::min)
    }
}

/// Dapple and tokio with one number of clients.
fn point(curves: &Rc<Kept<Curve>>, name: &'static str, about: &'static str, point: usize) -> Contest {
    let side = |side, role| curves.entry(side, side, role, move |curve| curve.0[point].clone());
    let peak =
        curves.entry("peak", Dapple::NAME, Role::Rival, |curve| vec![curve.best(), f64::NAN, f64::NAN]);
    let entries = vec![side(Dapple::NAME, Role::Ours), side(TokioDriven::NAME, Role::Rival), peak];
    contest(name, about, METRICS, entries)
}

fn contest(
    name: &'static str,
    about: &'static str,
    metrics: &'static [Metric],
    entries: Vec<Entry>,
) -> Contest {
    Contest { name, about, metrics, warm_up: false, at_most: 5, entries }
}

/// Measures a side with all numbers of clients, each with a server of its own.
fn measure(made: &Made, side: &str, quick: bool) -> Result<Curve, Failure> {
    let server = format!("files/{}", made.folder()?.display());
    let requests = if quick { REQUESTS / 20 } else { REQUESTS };
    let sample = |clients: usize| {
        let sample = round(&server, side, &format!("files/{clients}"), requests)?;
        let &[cpu, wall, load] = &sample[..] else { unreachable!("three values") };
        Ok(vec![wall, cpu, load])
    };
    CLIENTS.into_iter().map(sample).collect::<Result<_, Failure>>().map(Curve)
}
