//! `hello`: an axum `Router` that says hello, on `dapple_http` and on `axum::serve`; and actix-web doing the same.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;

use crate::contest::{Contest, Entry, Failure, Role, Scale};
use crate::load::web::{self, Clients, Wanted};
use crate::served::answer;
use crate::sides::net::{Net, OfDapple, OfTokio};
use crate::sides::{Dapple, Host, TokioDriven};
use crate::web::actix;
use crate::web::round::{METRICS, round};

pub(crate) fn contests() -> Vec<Contest> {
    vec![
        contest("hello/64", "the same axum Router says hello over 64 connections that are kept; per request"),
        contest("hello/5x64", "the same, each connection for 5 requests"),
    ]
}

/// Requests in a round.
const REQUESTS: usize = 30_000;

/// Where it says what.
const PATH: &str = "/hello";
const TEXT: &str = "Hello, World!";

fn contest(name: &'static str, about: &'static str) -> Contest {
    let entry = |side, role| {
        let run = move |scale: Scale| {
            round("hello", side, name, if scale.quick { REQUESTS / 20 } else { REQUESTS })
        };
        Entry { side, role, round: Box::new(run) }
    };
    let entries = vec![
        entry(Dapple::NAME, Role::Ours),
        entry(TokioDriven::NAME, Role::Rival),
        entry(actix::NAME, Role::Rival),
    ];
    Contest { name, about, metrics: METRICS, warm_up: false, at_most: 5, entries }
}

fn router() -> Router {
    Router::new().route(PATH, get(async || TEXT))
}

/// Runs the server, in its own process.
pub(crate) fn serve(side: &str) -> Result<(), Failure> {
    match side {
        Dapple::NAME => Dapple::start().run(|_| async {
            let (listener, address) = OfDapple::bind().await;
            answer(address);
            let served = dapple_http::serve(listener, router()).await;
            Err(format!("the server has ended: {served:?}"))
        }),
        TokioDriven::NAME => TokioDriven::start().run(|_| async {
            use axum::serve::ListenerExt;

            let (listener, address) = OfTokio::bind().await;
            answer(address);
            let listener = listener.tap_io(|stream| OfTokio::set_nodelay(stream));
            let served = axum::serve(listener, router()).await;
            Err(format!("the server has ended: {served:?}"))
        }),
        actix::NAME => actix::serve_text(PATH, TEXT),
        _ => Err(format!("no side is called {side:?}")),
    }
}

/// The load of a variant.
pub(crate) fn load(variant: &str, server: SocketAddr, requests: usize) -> Result<(), Failure> {
    let (each, count) = web::clients_of(variant)?;
    let first = TEXT.as_bytes()[..8].try_into().expect("eight bytes");
    web::put(Clients::new(server, count, vec![Wanted::new(PATH, TEXT.len(), first)], each), requests);
    Ok(())
}
