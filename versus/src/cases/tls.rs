//! `tls`: a file of 200 MB to 8 clients over TLS 1.3, by one worker and by two; Figures 5-2 and 5-5 of the paper on
//! libasync-mp.
//!
//! The measure is the CPU time of the server per gigabyte. `tokio` is hyper on tokio-rustls with the file in memory.
//! Dapple is `dapple_http::files`, set to keep a file of that size in its cache, with the same provider (rustls's
//! default one) and the same cipher. nginx has its own OpenSSL, and the file in the page cache. The clients do not
//! decrypt ([`crate::load::web::Downloads`]). `dapple-streamed`, a reference, reads the file in pieces, which is the
//! default.
//!
//! `tls/speedup` is how much faster two workers are than one, beside two processes of one worker each (`processes`)
//! that know nothing of each other and share the clients: as fast as two cores can be.

use std::net::SocketAddr;
use std::path::Path;

use crate::child::Child;
use crate::contest::{Contest, Entry, Failure, Metric, Role, Sample};
use crate::denied::Denied;
use crate::load::web::{self, Downloads};
use crate::served::{LOAD, SERVE, answer};
use crate::sides::net::{Net, OfDapple};
use crate::sides::{Dapple, Host, TokioDriven};
use crate::web::big::{self, LENGTH, Made, PATH};
use crate::web::files::{ROOT, WORK};
use crate::web::kept::Kept;
use crate::web::round::Took;
use crate::web::{nginx, secret};

pub(crate) fn contests() -> Vec<Contest> {
    let made = Made::default();
    let kept = Kept::new(move |side, quick| measure(&made, side, quick));
    let sides = |part: fn(&Speeds) -> Sample| {
        vec![
            kept.entry(Dapple::NAME, Dapple::NAME, Role::Ours, part),
            kept.entry(TokioDriven::NAME, TokioDriven::NAME, Role::Rival, part),
            kept.entry(nginx::NAME, nginx::NAME, Role::Rival, part),
            kept.entry(STREAMED, STREAMED, Role::Reference, part),
        ]
    };
    let faster = |side, server, role, part: fn(&Speeds) -> &Sample| {
        kept.entry(side, server, role, move |speeds| {
            let share = part(speeds)[1] / speeds.one[1];
            vec![100.0 * share, 1.0 / share]
        })
    };
    let speedup = vec![
        faster(Dapple::NAME, Dapple::NAME, Role::Ours, |speeds| &speeds.two),
        faster("processes", Dapple::NAME, Role::Rival, |speeds| &speeds.processes),
        faster(TokioDriven::NAME, TokioDriven::NAME, Role::Reference, |speeds| &speeds.two),
        faster("tokio-processes", TokioDriven::NAME, Role::Reference, |speeds| &speeds.processes),
        faster(nginx::NAME, nginx::NAME, Role::Reference, |speeds| &speeds.two),
    ];
    let speedup_about =
        "the time of two workers as a part of that of one, and how many times as fast that is";
    vec![
        contest(
            "tls/1",
            "a file of 200 MB to 8 clients over TLS 1.3 by one worker; per gigabyte",
            METRICS,
            sides(|speeds| speeds.one.clone()),
        ),
        contest("tls/2", "the same by two", METRICS, sides(|speeds| speeds.two.clone())),
        contest("tls/speedup", speedup_about, SPEEDUP, speedup),
    ]
}

/// Dapple with a cache as it is by itself: a file of that size is read from the page cache, in pieces.
const STREAMED: &str = "dapple-streamed";

/// Clients, each with one download.
const CLIENTS: usize = 8;

const METRICS: &[Metric] = &[
    Metric { name: "cpu", unit: "ms", ratios: true, absolutes: true },
    Metric::shown("wall", "ms"),
    Metric::shown("load", "ms"),
];

const SPEEDUP: &[Metric] =
    &[Metric::new("", "%"), Metric { name: "times", unit: "x", ratios: false, absolutes: true }];

/// The results of a side, each in the order of [`METRICS`].
struct Speeds {
    one: Sample,
    two: Sample,
    /// Two processes of one worker each, where that is asked for; else the same as `two`.
    processes: Sample,
}

fn contest(
    name: &'static str,
    about: &'static str,
    metrics: &'static [Metric],
    entries: Vec<Entry>,
) -> Contest {
    Contest { name, about, metrics, warm_up: false, at_most: 5, entries }
}

fn measure(made: &Made, side: &'static str, quick: bool) -> Result<Speeds, Failure> {
    let folder = made.folder(quick)?;
    let length = if quick { LENGTH / 20 } else { LENGTH };
    let one = round(folder, side, 1, 1, length)?;
    let two = round(folder, side, 1, 2, length)?;
    let has_processes = matches!(side, Dapple::NAME | TokioDriven::NAME);
    let processes = if has_processes { round(folder, side, 2, 1, length)? } else { two.clone() };
    Ok(Speeds { one, two, processes })
}

/// One round with `servers` servers of `workers` workers each, in the order of [`METRICS`].
fn round(
    folder: &Path,
    side: &str,
    servers: usize,
    workers: usize,
    length: usize,
) -> Result<Sample, Failure> {
    let name = format!("tls/{workers}:{}", folder.display());
    let mut children = Vec::new();
    let mut addresses: Vec<String> = Vec::new();
    for _ in 0..servers {
        let mut server = Child::start(&[&format!("--{SERVE}"), &name, side])?;
        addresses.push(server.answer()?);
        children.push(server);
    }
    let name = format!("tls/{length}:{}", folder.display());
    let mut load = Child::start(&[&format!("--{LOAD}"), &name, &addresses.join(","), "1"])?;
    let _warm: String = load.answer()?;
    let cpu =
        |children: &mut [Child]| children.iter_mut().map(Child::ask::<u64>).sum::<Result<u64, Failure>>();
    let denied = Denied::of(children.iter().map(Child::id));
    let before = cpu(&mut children)?;
    let Took { wall, cpu: of_load } = load.ask()?;
    let after = cpu(&mut children)?;
    denied.end();
    // Nanoseconds per byte are seconds per gigabyte.
    let bytes = (CLIENTS * length) as f64;
    Ok([after - before, wall, of_load].map(|nanos| nanos as f64 / bytes * 1e3).to_vec())
}

/// Splits `NUMBER:FOLDER`.
fn parse(text: &str) -> Result<(usize, &Path), Failure> {
    let parts = text.split_once(':').and_then(|(number, folder)| Some((number.parse().ok()?, folder)));
    let (number, folder) = parts.ok_or_else(|| format!("not a number and a folder: {text:?}"))?;
    Ok((number, Path::new(folder)))
}

/// Runs the server, in its own process: `WORKERS:FOLDER`.
pub(crate) fn serve(what: &str, side: &str) -> Result<(), Failure> {
    let (workers, folder) = parse(what)?;
    let (folder, is_kept) = (folder.to_owned(), side != STREAMED);
    match side {
        nginx::NAME => {
            let [certificate, key] = secret::paths(&folder);
            let tls = nginx::Tls { certificate, key };
            nginx::serve(&folder.join(WORK), &folder.join(ROOT), workers, Some(&tls))
        }
        TokioDriven::NAME => {
            TokioDriven::with_workers(workers).run(|_| async move { big::serve_tokio(&folder).await })
        }
        Dapple::NAME | STREAMED => Dapple::with_workers(workers).run(|_| async move {
            let (listener, address) = OfDapple::bind().await;
            let files = dapple_http::files(folder.join(ROOT)).map_err(|error| error.to_string())?;
            // One file may take a quarter of a cache.
            let length = LENGTH as u64;
            let files = if is_kept { files.cache_size(4 * length).largest_cached(length) } else { files };
            answer(address);
            let tls = dapple_http::Tls::from(secret::of_server(&folder)?);
            let served = dapple_http::serve(listener, files).tls(tls).await;
            Err(format!("the server has ended: {served:?}"))
        }),
        _ => Err(format!("no side is called {side:?}")),
    }
}

/// The load: `LENGTH:FOLDER`, and the addresses of the servers.
pub(crate) fn load(what: &str, servers: &[SocketAddr]) -> Result<(), Failure> {
    let (length, folder) = parse(what)?;
    let config = secret::of_client(folder)?;
    let downloads = Downloads::new(servers.to_vec(), config, PATH, length, CLIENTS);
    downloads.check(big::is_right);
    web::put_timed(downloads, 1);
    Ok(())
}
