//! The speed-up of the SFS file server (Figure 5-5): 35% of the cycles in one color, 65% in the clients' own.
//!
//! A request takes the walk that the seed describes (section 5.2.1): it is received and decrypted in the color
//! of its client, and processed in the one color of the server. To send the answer takes three callbacks: it is
//! copied to a buffer in the server's color, encrypted in the client's, and copied from there and sent in the
//! server's. The seed says how much encryption takes in all; that clients read a large file, so that requests are
//! small and answers large, is why most of that is in the second.
//!
//! Each callback starts the next with [`Color::call`], which is the seed's `cpucb`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};

use dapple::Color;
use dapple::sim;
use dapple::time::{Duration, sleep};

use crate::choice::Choice;
use crate::plot::{Chart, Curve, Kind, Panel};
use crate::report::Report;
use crate::{Bar, Scale};

/// The color that a callback has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum In {
    Client,
    Server,
    /// One of its own: interrupts and the kernel's NFS server.
    Kernel,
}

/// The steps of a request, in order, each with its percentage of the server's cycles.
const WALK: [(In, u64); 6] = [
    (In::Client, 5),  // receive and decrypt
    (In::Server, 25), // process
    (In::Server, 5),  // copy
    (In::Client, 60), // encrypt
    (In::Server, 5),  // copy and send
    (In::Kernel, 0),  // as the model says
];

/// The part of a request that is in the one color.
const SERIAL: f64 = 0.35;

/// The server's work for a whole request.
const REQUEST: Duration = Duration::from_micros(1_000);

/// The seed's measurements: number of processors, and speed-up against the original server on one.
const MEASURED: [(usize, f64); 3] = [(2, 1.62), (3, 2.18), (4, 2.55)];

/// The parallel server on one processor, against the original one: the seed's measurement again.
const ALONE: f64 = 0.95;

/// The parameters of the simulated machine.
#[derive(Clone, Copy)]
struct Machine {
    clients: usize,
    /// Requests that each client has under way at a time.
    in_flight: usize,
    /// How much slower each busy worker makes the others: memory, locks.
    contention: f64,
    /// The kernel's work for a request, on any processor, in percent of the server's work.
    kernel: u64,
}

impl Machine {
    /// Nothing but the server, and always something to do for it.
    const IDEAL: Machine = Machine { clients: 64, in_flight: 4, contention: 0.0, kernel: 0 };
}

struct Load {
    machine: Machine,
    server: Color,
    clients: Vec<Color>,
    done: AtomicU64,
    busy: AtomicUsize,
    is_over: AtomicBool,
}

impl Load {
    /// The callback that is `step` in the walk, and all that come after it.
    fn go_on(self: &Arc<Self>, client: usize, step: usize) {
        if self.is_over.load(Relaxed) {
            return;
        }
        let Some((place, percent)) = WALK.get(step).copied() else {
            self.done.fetch_add(1, Relaxed);
            return self.go_on(client, 0); // the client asks for the next block of the file
        };
        let percent = if place == In::Kernel { self.machine.kernel } else { percent };
        if percent == 0 {
            return self.go_on(client, step + 1);
        }
        let load = self.clone();
        let callback = move || {
            load.work(percent);
            load.go_on(client, step + 1);
        };
        match place {
            In::Client => self.clients[client].call(callback).detach(),
            In::Server => self.server.call(callback).detach(),
            In::Kernel => Color::new().call(callback).detach(),
        }
    }

    /// Works for `percent` of a request, varied between half and twice that: requests differ.
    fn work(&self, percent: u64) {
        let usual = REQUEST.as_nanos() as u64 * percent / 100;
        let nanos = usual / 2 + sim::random() % usual;
        let others = self.busy.fetch_add(1, Relaxed);
        let stretch = 1.0 + self.machine.contention * others as f64;
        sim::work(Duration::from_nanos((nanos as f64 * stretch) as u64));
        self.busy.fetch_sub(1, Relaxed);
    }
}

/// How many requests are answered in the time that the server itself takes for one: on an ideal machine, the
/// speed-up.
fn speed_up(choice: Choice, workers: usize, machine: Machine, scale: &Scale) -> f64 {
    choice.sim(5, workers).run(async move {
        let load = Arc::new(Load {
            machine,
            server: choice.color(),
            clients: (0..machine.clients).map(|_| Color::new()).collect(),
            done: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        for _ in 0..machine.in_flight {
            (0..machine.clients).for_each(|client| load.go_on(client, 0));
        }
        // Until it has got going: all requests that there are at first have been answered once.
        let all = (machine.clients * machine.in_flight) as u32;
        sleep(2 * REQUEST * all).await.expect("nobody cancels it");
        let begun = load.done.load(Relaxed);
        sleep(scale.sfs).await.expect("nobody cancels it");
        let done = load.done.load(Relaxed) - begun;
        load.is_over.store(true, Relaxed);
        done as f64 * REQUEST.as_secs_f64() / scale.sfs.as_secs_f64()
    })
}

/// The upper bound: the number of workers, or the throughput that keeps the one color busy all the time.
fn bound(workers: usize) -> f64 {
    (workers as f64).min(1.0 / SERIAL)
}

/// One request under way from each of the seed's four client machines.
const FEW: Machine = Machine { clients: 4, in_flight: 1, ..Machine::IDEAL };

/// A machine that is not ideal, by which the seed's figures come about: fitted to them.
const LIKE_THE_SEEDS: Machine = Machine { contention: 0.13, kernel: 100, ..Machine::IDEAL };

pub(crate) fn runs(scale: &Scale) -> u64 {
    (Choice::ALL.len() * scale.workers.len()
        + scale.crowds.len() * CROWD_CHOICES.len()
        + 2 * (1 + MEASURED.len())) as u64
}

const CROWD_CHOICES: [Choice; 3] = [Choice::HOME, Choice::FIRST_WITH, Choice::LONGEST];

pub(crate) fn run(scale: &Scale, bar: &Bar, report: &mut Report) {
    by_policy(scale, bar, report);
    by_crowd(scale, bar, report);
    like_the_seeds(scale, bar, report);
}

/// The speed-up by each policy, on more and more workers.
fn by_policy(scale: &Scale, bar: &Bar, report: &mut Report) {
    let mut found: Vec<Curve> = Vec::new();
    for choice in Choice::ALL {
        let mut curve = Curve { name: choice.name(), kind: Kind::Found, points: Vec::new() };
        for &workers in &scale.workers {
            bar.begin(format!("SFS, {}, {workers} workers", choice.name()));
            let speed_up = speed_up(choice, workers, Machine::IDEAL, scale);
            report.line(&format!(
                "sfs: {}, {workers} workers = {speed_up:.2} of {:.2}",
                choice.name(),
                bound(workers)
            ));
            curve.points.push((workers as f64, speed_up));
            bar.done();
        }
        found.push(curve);
    }
    let names: Vec<String> = found.iter().map(|curve| format!("`{}`", curve.name)).collect();
    let mut table = format!("| workers | bound | the seed | {} |\n", names.join(" | "));
    table += &format!("|---|---|---{}|\n", "|---".repeat(found.len()));
    for (row, &workers) in scale.workers.iter().enumerate() {
        let seed = MEASURED.iter().find(|measured| measured.0 == workers);
        let seed = seed.map_or(String::new(), |measured| measured.1.to_string());
        table += &format!("| {workers} | {:.2} | {seed}", bound(workers));
        found.iter().for_each(|curve| table += &format!(" | {:.2}", curve.points[row].1));
        table += " |\n";
    }
    report.text("sfs_table", table);
    // The other priorities look as this one does.
    found.truncate(Choice::POLICIES.len() + 1);
    let points = scale.workers.iter().map(|&workers| (workers as f64, bound(workers))).collect();
    found.push(Curve { name: "bound: min(n, 1/0.35)".to_owned(), kind: Kind::Bound, points });
    let points = MEASURED.iter().map(|&(workers, speed_up)| (workers as f64, speed_up)).collect();
    found.push(Curve { name: "measured by the seed".to_owned(), kind: Kind::Reported, points });
    let panel = Panel { title: "SFS: 35% of the cycles in one color".to_owned(), curves: found };
    let chart = Chart { x_label: "workers", y_label: "speed-up", is_log: false, panels: vec![panel] };
    report.file("sfs.svg", chart.svg());
}

/// How much it matters how many requests are under way, on three workers, which are nearly all needed.
fn by_crowd(scale: &Scale, bar: &Bar, report: &mut Report) {
    const WORKERS: usize = 3;
    let curves = CROWD_CHOICES.map(|choice| {
        let points = scale.crowds.iter().map(|&clients| {
            bar.begin(format!("SFS, {}, {clients} requests under way", choice.name()));
            let machine = Machine { clients, in_flight: 1, ..Machine::IDEAL };
            let answered = speed_up(choice, WORKERS, machine, scale);
            bar.done();
            (clients as f64, answered)
        });
        Curve { name: choice.name(), kind: Kind::Found, points: points.collect() }
    });
    let mut table = String::from("| requests under way |");
    scale.crowds.iter().for_each(|clients| table += &format!(" {clients} |"));
    table += &format!("\n|---{}|\n", "|---".repeat(scale.crowds.len()));
    for curve in &curves {
        table += &format!("| `{}` |", curve.name);
        curve.points.iter().for_each(|point| table += &format!(" {:.2} |", point.1));
        table += "\n";
    }
    report.text("sfs_crowd", table);
    let points = scale.crowds.iter().map(|&n| (n as f64, bound(WORKERS).min(n as f64))).collect();
    let mut curves = curves.to_vec();
    curves.push(Curve { name: "bound".to_owned(), kind: Kind::Bound, points });
    let panel = Panel { title: format!("SFS on {WORKERS} workers"), curves };
    let chart =
        Chart { x_label: "requests under way", y_label: "speed-up", is_log: false, panels: vec![panel] };
    report.file("sfs-under-way.svg", chart.svg());
}

/// The seed's figures, as they would come about with few requests under way, or on a machine that is not ideal.
fn like_the_seeds(scale: &Scale, bar: &Bar, report: &mut Report) {
    let answered = |machine, workers| {
        bar.begin(format!("SFS, as the seed measured it, {workers} workers"));
        let answered = speed_up(Choice::FIRST_WITH, workers, machine, scale);
        bar.done();
        answered
    };
    let alone = [FEW, LIKE_THE_SEEDS].map(|machine| answered(machine, 1));
    let mut table = String::from("| workers | the seed | few under way | contention |\n|---|---|---|---|\n");
    for (workers, measured) in MEASURED {
        let few = ALONE * answered(FEW, workers) / alone[0];
        let contended = ALONE * answered(LIKE_THE_SEEDS, workers) / alone[1];
        table += &format!("| {workers} | {measured} | {few:.2} | {contended:.2} |\n");
    }
    report.text("sfs_like_the_seeds", table);
    report.text("contention", format!("{:.0}%", 100.0 * LIKE_THE_SEEDS.contention));
}
