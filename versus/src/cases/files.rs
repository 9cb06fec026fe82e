//! `files`: 700 files of 4 KB over HTTP, all in memory, as in the paper on libasync-mp.
//!
//! The main measure is the CPU time of the server per request. Two workers on all sides. `tokio` is hyper, with
//! all files in a map; so is `actix`, since actix-files opens a file for each request. nginx has them in the page
//! cache and open, and sends them from there. `dapple-map` is `dapple_http` with the map of tokio's side and `bare` is
//! the floor: both are references.

use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;

use crate::contest::{Contest, Entry, Failure, Role, Scale};
use crate::load::web::{self, Clients};
use crate::served::answer;
use crate::sides::net::{Net, OfDapple, OfTokio};
use crate::sides::{Dapple, Host, TokioDriven, WORKERS};
use crate::web::files::{Made, Map, ROOT, WORK, wanted};
use crate::web::round::{METRICS, round};
use crate::web::{actix, bare, nginx, server};

pub(crate) fn contests(made: &Rc<Made>) -> Vec<Contest> {
    let contest = |name, about| contest(made, name, about);
    vec![
        contest("files/64", "700 files of 4 KB over 64 connections that are kept; per request"),
        contest("files/800", "the same over 800"),
        contest("files/5x64", "the same over 64, each for 5 requests"),
        contest("files/5x800", "the same over 800, each for 5 requests"),
    ]
}

/// Requests in a round.
const REQUESTS: usize = 30_000;

/// `dapple_http` with all files in a map.
const MAP: &str = "dapple-map";

fn contest(made: &Rc<Made>, name: &'static str, about: &'static str) -> Contest {
    let entry = |side, role| {
        let made = made.clone();
        let run = move |scale: Scale| {
            let server = format!("files/{}", made.folder()?.display());
            round(&server, side, name, if scale.quick { REQUESTS / 20 } else { REQUESTS })
        };
        Entry { side, role, round: Box::new(run) }
    };
    let entries = vec![
        entry(Dapple::NAME, Role::Ours),
        entry(nginx::NAME, Role::Rival),
        entry(TokioDriven::NAME, Role::Rival),
        entry(actix::NAME, Role::Rival),
        entry(MAP, Role::Reference),
        entry(bare::NAME, Role::Reference),
    ];
    // No warm-up: each round is a process of its own, and has one.
    Contest { name, about, metrics: METRICS, warm_up: false, at_most: 5, entries }
}

/// Runs the server, in its own process.
pub(crate) fn serve(folder: &str, side: &str) -> Result<(), Failure> {
    let (root, work) = (Path::new(folder).join(ROOT), Path::new(folder).join(WORK));
    let map = || Map::read(&root);
    match side {
        nginx::NAME => nginx::serve(&work, &root, WORKERS, None),
        actix::NAME => actix::serve_files(map()?),
        bare::NAME => {
            let map = map()?;
            Dapple::start().run(|_| bare::serve(map))
        }
        TokioDriven::NAME => {
            let map = map()?;
            TokioDriven::start().run(|side| server::serve::<_, OfTokio, _>(side, map))
        }
        Dapple::NAME => Dapple::start().run(|_| async move {
            let (listener, address) = OfDapple::bind().await;
            let files = dapple_http::files(&root).map_err(|error| error.to_string())?;
            answer(address);
            let served = dapple_http::serve(listener, files).await;
            Err(format!("the server has ended: {served:?}"))
        }),
        MAP => {
            let map = map()?;
            Dapple::start().run(|_| server::serve_dapple_http(map))
        }
        _ => Err(format!("no side is called {side:?}")),
    }
}

/// The load of a variant.
pub(crate) fn load(variant: &str, server: SocketAddr, requests: usize) -> Result<(), Failure> {
    let (each, count) = web::clients_of(variant)?;
    web::put(Clients::new(server, count, wanted(), each), requests);
    Ok(())
}
