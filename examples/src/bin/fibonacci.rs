//! A stateful service: Fibonacci numbers, with a cache that all requests share, and handlers that block.
//!
//! You learn how to write handlers whose arguments are shared state, and that a handler may block or compute. It is the
//! service of Node.Scala's Figure 2.
//!
//! Run it: `cargo run --release -p examples --bin fibonacci`, and in a second terminal:
//!
//! ```text
//! curl 'http://127.0.0.1:8080/?n=35'           # as in the figure: computes for a while, and once
//! curl 'http://127.0.0.1:8080/held?n=36'       # the same, with the cache held meanwhile
//! curl 'http://127.0.0.1:8080/stats'
//! ```
//!
//! * **State arguments**: `lookup`, `held`, `sleepy` and `stats` are plain functions. Their types name the state that they
//!   touch, and they have all of it while they run: handlers that read run in parallel, one that writes is alone.
//! * **Blocking is allowed**: `fibo` recurses for as long as it takes, and `sleepy` even sleeps, right in a handler. The
//!   runtime notices, and the other requests go on. The figure's first callback is `lookup`; its second, by `nextTick`,
//!   is the rest of `fibonacci`: only there the cache is written, and only for that long.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::extract::{FromRef, State};
use axum::routing::get;
use dapple::Shared;
use dapple::net::TcpListener;
use dapple::signal::ctrl_c;
use dapple_http::state::{Query, Read, Write, stateful};

type Cache = HashMap<u32, u64>;

/// How often the cache had an answer, and how often not.
#[derive(Default)]
struct Count {
    hits: u64,
    misses: u64,
}

#[derive(Clone, Default)]
struct App {
    cache: Shared<Cache>,
    count: Shared<Count>,
}

impl FromRef<App> for Shared<Cache> {
    fn from_ref(app: &App) -> Shared<Cache> {
        app.cache.clone()
    }
}

impl FromRef<App> for Shared<Count> {
    fn from_ref(app: &App) -> Shared<Count> {
        app.count.clone()
    }
}

/// Leonardo of Pisa's, by recursion: it takes as long as it takes.
fn fibo(n: u32) -> u64 {
    match n {
        0 | 1 => u64::from(n),
        _ => fibo(n - 1) + fibo(n - 2),
    }
}

/// More than this would take for ever.
const MOST: u32 = 45;

/// The figure. It waits for its state where it needs it, and computes without holding it.
async fn fibonacci(State(app): State<App>, Query(n): Query<u32>) -> String {
    let n = n.min(MOST);
    let Ok(known) = app.cache.read(|cache| cache.get(&n).copied()).await else {
        return "cancelled".to_owned();
    };
    let result = known.unwrap_or_else(|| fibo(n)); // blocks this connection, and no other
    let noted = dapple::together((app.cache.writing(), app.count.writing()), |(cache, count)| {
        note(known.is_some(), count);
        cache.insert(n, result);
    });
    match noted.await {
        Ok(()) => format!("result: {result}"),
        Err(dapple::Cancelled) => "cancelled".to_owned(),
    }
}

/// Looks a result up in the cache, without computing.
fn lookup(n: Query<u32>, cache: Read<Cache>) -> String {
    cache.get(&n.0).map_or("unknown".to_owned(), |result| format!("result: {result}"))
}

/// As Node.Scala runs the figure's second callback: the whole body has the cache for itself.
fn held(n: Query<u32>, mut cache: Write<Cache>, mut count: Write<Count>) -> String {
    let n = n.0.min(MOST);
    note(cache.contains_key(&n), &mut count);
    let result = *cache.entry(n).or_insert_with(|| fibo(n));
    format!("result: {result}")
}

/// Sleeps in the kernel, and touches nothing: it runs in parallel with everything.
fn sleepy(milliseconds: Query<u64>) -> &'static str {
    std::thread::sleep(Duration::from_millis(milliseconds.min(10_000)));
    "slept"
}

fn stats(cache: Read<Cache>, count: Read<Count>) -> String {
    format!("{} known, {} hits, {} misses", cache.len(), count.hits, count.misses)
}

fn note(is_hit: bool, count: &mut Count) {
    match is_hit {
        true => count.hits += 1,
        false => count.misses += 1,
    }
}

#[dapple::main]
async fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let router = Router::new()
        .route("/", get(fibonacci))
        .route("/lookup", get(stateful(lookup)))
        .route("/held", get(stateful(held)))
        .route("/sleepy", get(stateful(sleepy)))
        .route("/stats", get(stateful(stats)))
        .with_state(App::default());
    let listener = TcpListener::bind(address).await?;
    println!("listening at {}", listener.local_addr()?);
    let served = dapple_http::serve(listener, router).shutdown_on(ctrl_c()).await?;
    println!("{} requests, {} connections cut", served.requests, served.cut);
    Ok(())
}
