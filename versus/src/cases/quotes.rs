//! `quotes`: AC's server of stock quotes. It sends a message a second to each client.
//!
//! Server and clients are processes of their own, as in `echo`; what counts is the CPU time of the server,
//! and the ratio is that of messages per CPU second. Clients connect one after the other, each when the last
//! has heard its first message, so that their seconds begin at different times.
//!
//! On Dapple the server is as in the paper: one task, with a scope in which what serves a client is started
//! (so one worker does it all). On tokio it is a task for each client, as it is with `dapple-tasks`, a reference.

use std::net::SocketAddr;
use std::time::Duration;

use crate::contest::{Contest, Entry, Failure, Metric, Role, Scale};
use crate::load::{self, Listeners};
use crate::served;
use crate::sides::net::{Net, OfDapple, OfTokio};
use crate::sides::{Dapple, Host, TokioDriven};

pub(crate) fn contests() -> Vec<Contest> {
    vec![
        contest(
            "quotes/4000",
            "a server sends a message a second to each of 4,000 clients; per message",
            4000,
        ),
        contest("quotes/16000", "the same to 16,000 clients; per message", 16_000),
    ]
}

const METRICS: &[Metric] = &[
    Metric::new("cpu", "ns"),
    // Given by the seconds, unless a side does not keep up.
    Metric { name: "wall", unit: "ns", ratios: false, absolutes: false },
];

/// How many messages each client hears.
const SECONDS: usize = 4;

const PERIOD: Duration = Duration::from_secs(1);

/// Dapple with a task for each client.
const TASKS: &str = "dapple-tasks";

fn contest(name: &'static str, about: &'static str, clients: usize) -> Contest {
    let entry = |side, role| {
        let round = move |scale: Scale| {
            served::round(name, side, if scale.quick { clients / 20 } else { clients * SECONDS })
        };
        Entry { side, role, round: Box::new(round) }
    };
    let entries = vec![
        entry(Dapple::NAME, Role::Ours),
        entry(TokioDriven::NAME, Role::Rival),
        entry(TASKS, Role::Reference),
    ];
    Contest { name, about, metrics: METRICS, warm_up: false, at_most: 5, entries }
}

/// The load of a variant.
pub(crate) fn load(variant: &str, server: SocketAddr, messages: usize) -> Result<(), Failure> {
    let clients: usize = variant.parse().map_err(|_| format!("not a number of clients: {variant:?}"))?;
    load::put(Listeners::open(server, clients.min(messages)), messages);
    Ok(())
}

/// Runs the server, in its own process.
pub(crate) fn serve(side: &str) -> Result<(), Failure> {
    match side {
        Dapple::NAME => Dapple::start().run(|_| in_scope()),
        TASKS => Dapple::start().run(|_| in_tasks()),
        TokioDriven::NAME => TokioDriven::start().run(|_| on_tokio()),
        _ => Err(format!("no side is called {side:?}")),
    }
}

async fn in_scope() -> ! {
    let (mut listener, address) = OfDapple::bind().await;
    served::answer(address);
    dapple::finish(async |scope| {
        loop {
            let stream = OfDapple::accept(&mut listener).await;
            scope.start(quote(stream));
        }
    })
    .await
}

async fn in_tasks() -> ! {
    let (mut listener, address) = OfDapple::bind().await;
    served::answer(address);
    loop {
        let stream = OfDapple::accept(&mut listener).await;
        dapple::spawn(quote(stream)).detach();
    }
}

async fn quote(mut stream: dapple::net::TcpStream) {
    use dapple::io::AsyncWriteExt;

    OfDapple::set_nodelay(&stream);
    let mut seconds = dapple::time::interval(PERIOD);
    for number in 0.. {
        seconds.tick().await.expect("nobody cancels");
        if stream.write_all(&load::message(number)).await.is_err() {
            return; // the client has gone
        }
    }
}

async fn on_tokio() -> ! {
    let (mut listener, address) = OfTokio::bind().await;
    served::answer(address);
    loop {
        let stream = OfTokio::accept(&mut listener).await;
        tokio::spawn(quote_on_tokio(stream));
    }
}

async fn quote_on_tokio(mut stream: tokio::net::TcpStream) {
    use tokio::io::AsyncWriteExt;

    OfTokio::set_nodelay(&stream);
    let mut seconds = tokio::time::interval(PERIOD);
    for number in 0.. {
        seconds.tick().await;
        if stream.write_all(&load::message(number)).await.is_err() {
            return; // the client has gone
        }
    }
}
