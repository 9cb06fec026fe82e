//! The web server of Figure 5-1: two caches, each one color, and then with reading in parallel.
//!
//! The seed draws what is done for a request, and in which color (section 5.1.1): connections are accepted in one
//! color; a request is read, and its answer written, in the color of its connection; the page cache is one color,
//! the handle cache another, and the calls to the file system (RPC) a third. The hash of a path is computed
//! outside of the handle cache's color. Only requests for pages that are not in the cache go beyond it.
//!
//! How long each takes the seed does not say, only the whole: 22.8 MB/s of files of 4 KB are 175 us for a request
//! on one processor. The costs below are a guess at how that is divided.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use dapple::sim;
use dapple::time::{Duration, sleep};
use dapple::{Color, Shared};

use crate::choice::Choice;
use crate::plot::{Chart, Curve, Kind, Panel};
use crate::report::Report;
use crate::{Bar, Scale};

/// In microseconds, on the average.
struct Costs {
    /// Accepting a connection.
    accept: u64,
    read_request: u64,
    /// Looking for a page in the cache.
    page: u64,
    write_answer: u64,
    // From here on only if the page is not there.
    hash: u64,
    /// Looking for a file's handle in the cache.
    handle: u64,
    /// Calling the file system.
    call: u64,
    /// The file system's work, in the kernel, on any processor.
    file_system: u64,
    /// Taking the answer of the file system.
    answer: u64,
    /// Putting the page into the cache.
    insert: u64,
}

const COSTS: Costs = Costs {
    accept: 20,
    read_request: 40,
    page: 20,
    write_answer: 111,
    hash: 16,
    handle: 15,
    call: 15,
    file_system: 60,
    answer: 15,
    insert: 20,
};

impl Costs {
    /// The cost of a request, if `percent_missed` of a hundred are for pages that are not in the cache.
    fn request(&self, percent_missed: u64) -> f64 {
        let always = self.read_request + self.page + self.write_answer;
        let missed = self.hash + self.handle + self.call + self.file_system + self.answer + self.insert;
        let accept = self.accept as f64 / REQUESTS_PER_CONNECTION as f64;
        accept + always as f64 + (percent_missed * missed) as f64 / 100.0
    }
}

impl fmt::Display for Costs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Costs { accept, read_request, page, write_answer, .. } = self;
        let Costs { hash, handle, call, file_system, answer, insert, .. } = self;
        write!(
            f,
            "accept {accept} (for five requests), read the request {read_request}, look for the page {page}, write the \
             answer {write_answer}; and if the page is not there, hash the path {hash}, look for the handle {handle}, call \
             the file system {call}, which takes {file_system} in the kernel, take its answer {answer}, put the page into \
             the cache {insert}"
        )
    }
}

/// The remaining cost of putting a page into the cache if the page was prepared outside.
const PUT: u64 = 1;

/// The seed's clients at a time, and the requests of each until it connects anew.
const CLIENTS: usize = 800;
const REQUESTS_PER_CONNECTION: u64 = 5;

/// The seed's measurements: number of processors, and speed-up against the same server on one.
const MEASURED: [(usize, f64); 2] = [(2, 1.36), (4, 1.54)];

/// How state that all connections share is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caches {
    /// Each cache is one color: the seed's.
    Colors,
    /// Each cache is a [`Shared`]: lookups run in parallel with each other.
    Shared,
    /// The same, with less work inside: a page is prepared outside, and only put in place inside.
    SharedShortly,
}

impl Caches {
    const ALL: [Caches; 3] = [Caches::Colors, Caches::Shared, Caches::SharedShortly];

    fn name(self) -> &'static str {
        match self {
            Caches::Colors => "each cache one color",
            Caches::Shared => "caches read in parallel",
            Caches::SharedShortly => "and written shortly",
        }
    }

    /// The upper bound, if `percent_missed` of a hundred requests are for pages that are not in the cache.
    fn bound(self, workers: usize, percent_missed: u64) -> f64 {
        let c = &COSTS;
        let missed = |cost: u64| (percent_missed * cost) as f64 / 100.0;
        let accept = c.accept as f64 / REQUESTS_PER_CONNECTION as f64;
        let calls = missed(c.call + c.answer);
        // The costs of the steps that run one at a time; for a `Shared`, those that write.
        let alone = match self {
            Caches::Colors => [c.page as f64 + missed(c.insert), missed(c.handle), calls],
            Caches::Shared => [missed(c.insert), 0.0, calls],
            Caches::SharedShortly => [missed(PUT), 0.0, calls],
        };
        (workers as f64).min(c.request(percent_missed) / alone.into_iter().fold(accept, f64::max))
    }
}

/// A cache: the color of all tasks that touch it, or the `Shared` that admits them.
enum Cache {
    Color(Color),
    Shared(Shared<()>),
    /// A `Shared` of which an insertion does only [`PUT`] inside.
    Shortly(Shared<()>),
}

impl Cache {
    fn new(caches: Caches) -> Cache {
        match caches {
            Caches::Colors => Cache::Color(Color::new()),
            Caches::Shared => Cache::Shared(Shared::new(())),
            Caches::SharedShortly => Cache::Shortly(Shared::new(())),
        }
    }

    async fn look_up(&self, cost: u64) {
        match self {
            Cache::Color(color) => color.call(move || work(cost)).await.expect("it does not panic"),
            Cache::Shared(shared) | Cache::Shortly(shared) => {
                shared.read(|()| work(cost)).await.expect("nobody cancels it");
            }
        }
    }

    async fn insert(&self, cost: u64) {
        match self {
            Cache::Color(color) => color.call(move || work(cost)).await.expect("it does not panic"),
            Cache::Shared(shared) => shared.write(|()| work(cost)).await.expect("nobody cancels it"),
            Cache::Shortly(shared) => {
                work(cost - PUT);
                shared.write(|()| work(PUT)).await.expect("nobody cancels it");
            }
        }
    }
}

struct Server {
    percent_missed: u64,
    listener: Color,
    pages: Cache,
    handles: Cache,
    /// The color of calls to the file system.
    calls: Color,
    answered: AtomicU64,
    is_over: AtomicBool,
}

impl Server {
    /// One client after the other: connects, asks, and disconnects. A task has a color of its own, which here is
    /// the connection's.
    async fn client(self: Arc<Self>) {
        while !self.is_over.load(Relaxed) {
            self.listener.call(|| work(COSTS.accept)).await.expect("it does not panic");
            for _ in 0..REQUESTS_PER_CONNECTION {
                self.request().await;
                self.answered.fetch_add(1, Relaxed);
                dapple::task::yield_now().await; // until the next request comes
            }
        }
    }

    async fn request(&self) {
        work(COSTS.read_request);
        self.pages.look_up(COSTS.page).await;
        if sim::random() % 100 < self.percent_missed {
            work(COSTS.hash);
            self.handles.look_up(COSTS.handle).await;
            self.call(COSTS.call).await;
            dapple::spawn(async { work(COSTS.file_system) }).await.expect("it does not panic");
            self.call(COSTS.answer).await;
            self.pages.insert(COSTS.insert).await;
        }
        work(COSTS.write_answer);
    }

    async fn call(&self, cost: u64) {
        self.calls.call(move || work(cost)).await.expect("it does not panic");
    }
}

/// Works for `micros` microseconds, varied between half and twice that: requests differ.
fn work(micros: u64) {
    let usual = 1_000 * micros;
    sim::work(Duration::from_nanos(usual / 2 + sim::random() % usual));
}

/// How many requests are answered in the time that one takes: the speed-up.
fn speed_up(choice: Choice, workers: usize, caches: Caches, percent_missed: u64, scale: &Scale) -> f64 {
    choice.sim(7, workers).run(async move {
        let server = Arc::new(Server {
            percent_missed,
            listener: Color::new(),
            pages: Cache::new(caches),
            handles: Cache::new(caches),
            calls: Color::new(),
            answered: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        });
        let clients: Vec<_> = (0..CLIENTS).map(|_| dapple::spawn(server.clone().client())).collect();
        // The fewer workers, the longer until as many requests were answered.
        let window = (scale.web / workers as u32).max(scale.web / 10);
        sleep(window / 2).await.expect("nobody cancels it");
        let before = server.answered.load(Relaxed);
        sleep(window).await.expect("nobody cancels it");
        let answered = server.answered.load(Relaxed) - before;
        server.is_over.store(true, Relaxed);
        for client in clients {
            client.await.expect("it does not panic");
        }
        answered as f64 * COSTS.request(percent_missed) / (1e6 * window.as_secs_f64())
    })
}

/// How many of a hundred requests are for pages that are not in the cache: as in the seed's measurement; as when the
/// files do not quite fit; and as in Figure 5-1.
const MISSED: [(u64, &str); 3] =
    [(0, "all pages in the cache"), (10, "one in ten is not in the cache"), (100, "none is in the cache")];

/// The lines of the figure.
const DRAWN: [(Caches, Choice); 4] = [
    (Caches::Colors, Choice::HOME),
    (Caches::Shared, Choice::HOME),
    (Caches::Shared, Choice::SHORTEST),
    (Caches::SharedShortly, Choice::SHORTEST),
];

pub(crate) fn runs(scale: &Scale) -> u64 {
    let by_policy = Caches::ALL.len() * scale.web_policies;
    (MISSED.len() * DRAWN.len() * scale.web_workers.len() + by_policy) as u64
}

pub(crate) fn run(scale: &Scale, bar: &Bar, report: &mut Report) {
    by_caches(scale, bar, report);
    by_policy(scale, bar, report);
}

/// The speed-up with each use of the caches.
fn by_caches(scale: &Scale, bar: &Bar, report: &mut Report) {
    let mut panels = Vec::new();
    let mut tables = String::new();
    for (missed, title) in MISSED {
        let mut curves = Vec::new();
        for (caches, choice) in DRAWN {
            let name = format!("{} ({})", caches.name(), choice.name());
            let mut points = Vec::new();
            for &workers in &scale.web_workers {
                bar.begin(format!("web server, {title}, {name}, {workers} workers"));
                let speed_up = speed_up(choice, workers, caches, missed, scale);
                let bound = caches.bound(workers, missed);
                report.line(&format!(
                    "web: {missed}% missed, {name}, {workers} workers = {speed_up:.2} of {bound:.2}"
                ));
                points.push((workers as f64, speed_up));
                bar.done();
            }
            curves.push(Curve { name, kind: Kind::Found, points });
        }
        tables += &table(scale, title, &curves, missed);
        for caches in [Caches::Colors, Caches::Shared] {
            let points = scale.web_workers.iter().map(|&n| (n as f64, caches.bound(n, missed))).collect();
            curves.push(Curve { name: format!("bound: {}", caches.name()), kind: Kind::Bound, points });
        }
        if missed == 0 {
            let points = MEASURED.map(|(workers, speed_up)| (workers as f64, speed_up)).to_vec();
            curves.push(Curve { name: "measured by the seed".to_owned(), kind: Kind::Reported, points });
        }
        panels.push(Panel { title: title.to_owned(), curves });
    }
    report.text("web_tables", tables);
    report.text("web_costs", COSTS.to_string());
    let chart = Chart { x_label: "workers", y_label: "speed-up", is_log: true, panels };
    report.file("web.svg", chart.svg());
}

/// The speed-up of each, between the bounds.
fn table(scale: &Scale, title: &str, curves: &[Curve], missed: u64) -> String {
    let mut table = format!("\n**{}{}**\n\n| workers |", title[..1].to_uppercase(), &title[1..]);
    table += &format!(" bound: {} |", Caches::Colors.name());
    curves.iter().for_each(|curve| table += &format!(" {} |", curve.name));
    table += &format!(" bound: {} |\n|---|---|---{}|\n", Caches::Shared.name(), "|---".repeat(curves.len()));
    for (row, &workers) in scale.web_workers.iter().enumerate() {
        table += &format!("| {workers} | {:.1} |", Caches::Colors.bound(workers, missed));
        curves.iter().for_each(|curve| table += &format!(" {:.1} |", curve.points[row].1));
        table += &format!(" {:.1} |\n", Caches::Shared.bound(workers, missed));
    }
    table
}

/// Compares the policies, where a page is never in the cache.
fn by_policy(scale: &Scale, bar: &Bar, report: &mut Report) {
    const WORKERS: usize = 16;
    let missed = 100;
    let names: Vec<&str> = Caches::ALL.iter().map(|caches| caches.name()).collect();
    let mut rows = format!("| policy | {} |\n|---|---|---|---|\n", names.join(" | "));
    for choice in Choice::POLICIES.into_iter().take(scale.web_policies) {
        rows += &format!("| `{}` |", choice.name());
        for caches in Caches::ALL {
            bar.begin(format!("web server, {}, {}, {WORKERS} workers", choice.name(), caches.name()));
            let speed_up = speed_up(choice, WORKERS, caches, missed, scale);
            bar.done();
            rows += &format!(" {speed_up:.1} |");
            report.line(&format!("web by policy: {}, {} = {speed_up:.2}", choice.name(), caches.name()));
        }
        rows += "\n";
    }
    report.text("web_policies", rows);
}
