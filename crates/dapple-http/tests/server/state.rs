//! Handlers whose arguments are states.
#![cfg(feature = "axum")]

use std::collections::HashMap;
use std::sync::Barrier;

use crate::common::{Client, Server};
use axum::Router;
use axum::extract::{FromRef, Path, State};
use axum::response::IntoResponse;
use axum::routing::{get, post};
use dapple::Shared;
use dapple_http::state::{Query, Read, Write, stateful};
use http::{HeaderMap, StatusCode};

type Words = HashMap<u32, String>;

#[derive(Default)]
struct Count(u64);

#[derive(Clone)]
struct App {
    words: Shared<Words>,
    count: Shared<Count>,
    log: Shared<Vec<String>>,
}

impl FromRef<App> for Shared<Words> {
    fn from_ref(app: &App) -> Self {
        app.words.clone()
    }
}

impl FromRef<App> for Shared<Count> {
    fn from_ref(app: &App) -> Self {
        app.count.clone()
    }
}

impl FromRef<App> for Shared<Vec<String>> {
    fn from_ref(app: &App) -> Self {
        app.log.clone()
    }
}

fn app() -> App {
    App {
        words: Shared::new(Words::from([(1, "one".to_owned())])),
        count: Shared::new(Count::default()),
        log: Shared::new(Vec::new()),
    }
}

fn stateless() -> &'static str {
    "stateless"
}

fn hits(n: Query<u32>, words: Read<Words>, mut count: Write<Count>) -> String {
    count.0 += 1;
    format!("{} {}", words.get(&n.0).map_or("none", String::as_str), count.0)
}

/// States before, between and after what is extracted, and a body.
fn put(
    mut words: Write<Words>,
    Path(n): Path<u32>,
    mut log: Write<Vec<String>>,
    headers: HeaderMap,
    word: String,
    count: Read<Count>,
) -> impl IntoResponse + use<> {
    log.push(format!("{} after {}", headers["host"].to_str().unwrap(), count.0));
    match words.insert(n, word) {
        Some(old) => (StatusCode::OK, old),
        None => (StatusCode::CREATED, String::new()),
    }
}

fn log(log: Read<Vec<String>>) -> String {
    log.join(", ")
}

fn add(mut count: Write<Count>) -> String {
    count.0 += 1;
    count.0.to_string()
}

async fn count(State(count): State<Shared<Count>>) -> String {
    count.read(|count| count.0.to_string()).await.unwrap()
}

fn router(app: App) -> Router {
    Router::new()
        .route("/", get(stateful(stateless)))
        .route("/hits", get(stateful(hits)))
        .route("/words/{n}", post(stateful(put)))
        .route("/log", get(stateful(log)))
        .route("/count", get(count).post(stateful(add)))
        .route("/closure", get(stateful(|count: Read<Count>| count.0.to_string())))
        .with_state(app)
}

#[test]
fn a_function_gets_what_its_arguments_say() {
    let server = Server::start(router(app()));
    let mut client = server.connect();
    assert_eq!(client.get("/").text(), "stateless");
    assert_eq!(client.get("/hits?n=1").text(), "one 1");
    assert_eq!(client.get("/hits?n=2").text(), "none 2");
    let request = "POST /words/2 HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\ntwo";
    assert_eq!(client.send(request).answer().status, 201);
    assert_eq!(client.send(request).answer().text(), "two");
    assert_eq!(client.get("/hits?n=2").text(), "two 3");
    assert_eq!(client.get("/log").text(), "a after 2, a after 2");
    assert_eq!(client.get("/count").text(), "3");
    assert_eq!(client.get("/closure").text(), "3");
}

#[test]
fn a_query_that_does_not_fit_is_refused_and_nothing_is_touched() {
    let server = Server::start(router(app()));
    let mut client = server.connect();
    for query in ["", "?", "?n=x", "?n=-1", "?n=1&m=2"] {
        let answer = client.get(&format!("/hits{query}"));
        assert_eq!(answer.status, 400, "{query}");
    }
    assert!(client.get("/hits?n=x").text().contains("argument n"));
    assert_eq!(client.get("/count").text(), "0");
}

#[test]
fn those_that_write_are_alone() {
    let server = Server::start(router(app()));
    let address = server.address;
    let threads: Vec<_> = (0..4)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                for _ in 0..100 {
                    client.send("POST /count HTTP/1.1\r\nhost: a\r\n\r\n").answer();
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(server.connect().get("/count").text(), "400");
}

/// Two that read meet inside, which they can only if both are there at the same time; and they block for it.
#[test]
fn those_that_read_run_in_parallel_even_if_they_block() {
    let meet: &'static Barrier = Box::leak(Box::new(Barrier::new(2)));
    let read = move |count: Read<Count>| {
        meet.wait();
        count.0.to_string()
    };
    let router = Router::new().route("/", get(stateful(read))).with_state(Shared::new(Count(7)));
    let server = Server::start(router);
    let (mut first, mut second) = (server.connect(), server.connect());
    first.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    second.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!((first.answer().text(), second.answer().text()), ("7", "7"));
}

#[test]
fn a_state_that_is_named_twice_is_told_of() {
    fn twice(first: Read<Count>, second: Write<Count>) -> String {
        format!("{}{}", first.0, second.0)
    }
    let router = Router::new().route("/", get(stateful(twice))).with_state(Shared::new(Count(7)));
    let server = Server::start(router);
    assert_eq!(server.connect().get("/").status, 500);
    assert_eq!(server.stats.snapshot().panics, 1);
}
