//! Earliest deadline first: a scheduling policy of the program's own, for requests with deadlines.
//!
//! You learn how to write a `sched::Policy`, and how to try it at any load in virtual time.
//!
//! Run it: `cargo run --release -p examples --bin deadlines`. No second terminal is needed. It prints how many requests
//! are answered in time by the default policy and by this one, at the same load: simulated, at rising load, and then in a
//! rush, simulated and real. `-- --simulated` leaves out the real rush, whose figures depend on the load of the machine.
//!
//! * **A policy is twenty lines**: where a runnable lane goes, and its weight. Its knowledge of a request is a number that
//!   the program gave the color, [`Color::set_tag`].
//! * **Order within a color stays**: a policy chooses among colors.
//! * **Long work gives way**: a report is computed in pieces, with [`yield_now`] in between, where more urgent work goes
//!   first. Nothing else takes a worker from its runnable.
//! * **The same program** runs in virtual time and on real threads.

use std::process::ExitCode;
use std::sync::Arc;

use dapple::sched::{Home, LaneView, MOST_WEIGHED, Policy, WorkerView, Workers};
use dapple::sim::{self, Sim};
use dapple::task::yield_now;
use dapple::time::{Duration, Instant, sleep_until};
use dapple::{Color, Runtime};

/// The lane whose deadline comes first goes first. Work without a deadline has the tag 0, and can wait.
struct EarliestDeadline;

impl Policy for EarliestDeadline {
    /// Picks the worker with the shortest line; an idle worker takes from the others.
    fn place(&self, lane: &LaneView<'_>, workers: &Workers<'_>) -> usize {
        let load = |worker: &WorkerView<'_>| worker.queued() + usize::from(!worker.is_idle());
        workers.iter().min_by_key(load).map_or(lane.home(), |worker| worker.index())
    }

    fn weighs(&self) -> usize {
        MOST_WEIGHED
    }

    fn weight(&self, lane: &LaneView<'_>, _worker: &WorkerView<'_>) -> i64 {
        match lane.tag() {
            0 => i64::MIN,
            deadline => -i64::try_from(deadline).unwrap_or(i64::MAX),
        }
    }
}

const WORKERS: usize = 2;
/// The time that is computed in one go, before others get their chance.
const PIECE: Duration = Duration::from_micros(500);

/// One request in five is a report, which takes long and is not urgent; for the others a client is waiting.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Page,
    Report,
}

/// A request: when it comes, what it takes, and until when it is to be answered, since the service began.
#[derive(Clone, Copy)]
struct Request {
    kind: Kind,
    comes: Duration,
    takes: Duration,
    deadline: Duration,
}

/// Plans `count` requests that keep the workers busy for the part `load` of the time, if work takes `slowness` times
/// its stated time. Deadlines are later by the same factor.
fn plan(count: u64, load: f64, slowness: f64) -> Arc<[Request]> {
    let mut chance = Chance(1);
    let mut comes = Duration::ZERO;
    let request = |_| {
        let (kind, takes, within) = match chance.below(5) {
            0 => (Kind::Report, 3_000 + chance.below(6_000), 200_000),
            _ => (Kind::Page, 200 + chance.below(800), 10_000),
        };
        // On the average a request takes 4/5 of 600 us and 1/5 of 6 ms.
        let usual = slowness * 1_680.0 / (load * WORKERS as f64);
        comes += Duration::from_micros(chance.below((2.0 * usual) as u64 + 1));
        let within = Duration::from_micros(within).mul_f64(slowness);
        Request { kind, comes, takes: Duration::from_micros(takes), deadline: comes + within }
    };
    (0..count).map(request).collect()
}

/// Answers a request, and says whether it was in time.
async fn answer(request: Request, begun: Instant) -> bool {
    // In a service it would come by a socket.
    sleep_until(begun + request.comes).await.expect("nobody cancels it");
    let mut left = request.takes;
    while left > PIECE {
        sim::work(PIECE);
        left -= PIECE;
        yield_now().await;
    }
    sim::work(left);
    begun.elapsed() <= request.deadline
}

/// How many of all, and of the pages among them, were answered in time.
#[derive(Clone, Copy, Default)]
struct Met {
    all: usize,
    pages: usize,
    answered: usize,
}

async fn serve(requests: Arc<[Request]>) -> Met {
    let begun = Instant::now();
    let tasks = requests.iter().map(|&request| {
        let color = Color::new();
        color.set_tag(request.deadline.as_micros() as u64); // this is all that the policy needs
        color.spawn(answer(request, begun))
    });
    let tasks: Vec<_> = tasks.collect();
    let mut met = Met::default();
    for (task, request) in tasks.into_iter().zip(&*requests) {
        let in_time = task.await.expect("it does not panic");
        met.answered += 1;
        met.all += usize::from(in_time);
        met.pages += usize::from(in_time && request.kind == Kind::Page);
    }
    met
}

fn simulated(requests: &Arc<[Request]>, policy: impl Policy) -> Met {
    Sim::new(1).workers(WORKERS).steady().policy(policy).run(serve(requests.clone()))
}

fn real(requests: &Arc<[Request]>, policy: impl Policy) -> std::io::Result<Met> {
    let runtime = Runtime::builder().workers(WORKERS).policy(policy).build()?;
    Ok(runtime.block_on(serve(requests.clone())))
}

/// How many times as long as it says work takes, on a machine that others use, too.
fn slowness() -> std::io::Result<f64> {
    const WORK: Duration = Duration::from_millis(200);
    let runtime = Runtime::builder().workers(WORKERS).build()?;
    let begun = Instant::now();
    runtime.block_on(async {
        let tasks: Vec<_> = (0..WORKERS).map(|_| dapple::spawn(async { sim::work(WORK) })).collect();
        for task in tasks {
            task.await.expect("it does not panic");
        }
    });
    Ok((begun.elapsed().as_secs_f64() / WORK.as_secs_f64()).max(1.0))
}

/// Numbers that are the same every time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 33) % bound
    }
}

fn print_row(what: &str, requests: &[Request], default: Met, earliest: Met) {
    let pages = requests.iter().filter(|request| request.kind == Kind::Page).count();
    let percent = |met: usize, all: usize| 100.0 * met as f64 / all as f64;
    let parts = [default, earliest].map(|met| {
        let reports = percent(met.all - met.pages, requests.len() - pages);
        format!(
            "{:5.1} % {:5.1} % {reports:5.1} %",
            percent(met.all, requests.len()),
            percent(met.pages, pages)
        )
    });
    println!("{what:<16} {}   {}", parts[0], parts[1]);
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_simulated = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--simulated"] => true,
        _ => {
            eprintln!("Usage: deadlines [--simulated]");
            return ExitCode::FAILURE;
        }
    };
    println!("deadlines met, of all, of pages (within 10 ms) and of reports (within 200 ms)\n");
    println!("{:<16} {:<27} earliest deadline first", "", "default policy");
    for load in [60, 70, 80, 90, 95, 98] {
        let requests = plan(5_000, f64::from(load) / 100.0, 1.0);
        let (default, earliest) = (simulated(&requests, Home), simulated(&requests, EarliestDeadline));
        print_row(&format!("load {load} %"), &requests, default, earliest);
    }
    if is_simulated {
        return ExitCode::SUCCESS;
    }
    match compare_for_real() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("deadlines: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A rush: for a second there is more work than can be served, and work that can wait must.
fn compare_for_real() -> std::io::Result<()> {
    const RUSH: f64 = 1.2;
    let expected = plan(1_000, RUSH, 1.0);
    println!("\na rush of {} requests, with a load of 120 %", expected.len());
    print_row("simulated", &expected, simulated(&expected, Home), simulated(&expected, EarliestDeadline));
    for _ in 0..2 {
        let slowness = slowness()?;
        let requests = plan(1_000, RUSH, slowness);
        let (default, earliest) = (real(&requests, Home)?, real(&requests, EarliestDeadline)?);
        print_row("for real", &requests, default, earliest);
        println!(
            "  answered {} and {}; work took {slowness:.1} times as long by the clock when this was planned",
            default.answered, earliest.answered
        );
    }
    Ok(())
}
