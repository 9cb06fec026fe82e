//! Limits: the bound of each, and the answer beyond it.

use std::sync::Arc;
use std::sync::mpsc;

use crate::common::{PATIENCE, Server};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::routing::{get, post};
use bytes::Bytes;
use dapple::limit::Limit;
use dapple::sync::Notify;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;

fn router() -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/echo", post(|body: Bytes| async move { body.len().to_string() }))
        .layer(DefaultBodyLimit::disable())
}

#[test]
fn a_head_that_is_too_large_is_answered_with_431() {
    let server = Server::start_with(router(), |serve| serve.max_header_size(1000));
    let mut client = server.connect();
    client.send(format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(900)));
    assert_eq!(client.answer().status, 200);
    client.send(format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}\r\n\r\n", "y".repeat(1000)));
    assert_eq!(client.answer().status, 431);
    client.ends();
    // One that does not end is not waited for.
    let mut client = server.connect();
    client.send(format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}", "y".repeat(100_000)));
    assert_eq!(client.answer().status, 431);
}

#[test]
fn a_body_that_is_too_large_is_answered_with_413() {
    let server = Server::start_with(router(), |serve| serve.max_body_size(1000));
    let mut client = server.connect();
    client
        .send(format!("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1000\r\n\r\n{}", "x".repeat(1000)));
    assert_eq!(client.answer().text(), "1000");
    // By what is declared: nothing of it is read.
    client.send("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1001\r\n\r\n");
    assert_eq!(client.answer().status, 413);
    client.ends();
    // By what comes, where nothing is declared.
    let mut client = server.connect();
    let chunk = format!("{:x}\r\n{}\r\n", 600, "x".repeat(600));
    client
        .send(format!("POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n{chunk}{chunk}"));
    assert_eq!(client.answer().status, 413);
}

#[test]
fn a_body_that_a_service_has_as_hyper_gives_it_is_bounded_as_well() {
    let service = service_fn(|request: Request<Incoming>| async {
        let text = if request.into_body().collect().await.is_ok() { "all of it" } else { "an error" };
        Ok::<_, std::convert::Infallible>(Response::new(Full::<Bytes>::from(text)))
    });
    let server = Server::start_with(service, |serve| serve.max_body_size(1000));
    let head = "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("{:x}\r\n{}\r\n", 600, "x".repeat(600));
    for is_in_one_breath in [true, false] {
        let mut client = server.connect();
        if is_in_one_breath {
            client.send(format!("{head}{chunk}{chunk}"));
        } else {
            client.send(format!("{head}{chunk}"));
            assert!(client.is_quiet());
            client.send(&chunk);
        }
        assert_eq!(client.answer().status, 413);
        client.ends();
    }
    let mut client = server.connect();
    client.send(format!("{head}{chunk}190\r\n{}\r\n0\r\n\r\n", "x".repeat(400)));
    assert_eq!(client.answer().text(), "all of it");
}

#[test]
fn an_answer_reaches_a_client_that_is_still_sending() {
    let server = Server::start_with(router(), |serve| serve.max_body_size(1000));
    for _ in 0..20 {
        let mut client = server.connect();
        client.send("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n");
        client.send(vec![b'x'; 1_000_000]);
        assert_eq!(client.answer().status, 413);
    }
}

#[test]
fn an_error_of_the_body_is_answered_for_a_service_that_hands_it_on() {
    let service = service_fn(|request: Request<dapple_http::Body>| async {
        let body = request.into_body().bytes().await?;
        Ok::<_, dapple_http::BoxError>(Response::new(Full::new(body)))
    });
    let server = Server::start_with(service, |serve| serve.max_body_size(3));
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n4\r\nfour\r\n0\r\n\r\n");
    assert_eq!(client.answer().status, 413);
}

#[test]
fn a_client_that_asks_is_told_to_continue_or_not() {
    let server = Server::start_with(router(), |serve| serve.max_body_size(1000));
    let mut client = server.connect();
    client.send("POST /echo HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    client.send("hello");
    assert_eq!(client.answer().text(), "5");
    client.send("POST /echo HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5000\r\n\r\n");
    assert_eq!(client.answer().status, 413);
    client.ends();
}

/// Reports when it is called, and answers when the test lets it.
fn patient() -> (Router, mpsc::Receiver<()>, Arc<Notify>) {
    let (tell, told) = mpsc::channel();
    let go = Arc::new(Notify::new());
    let until = go.clone();
    let wait = move || {
        let (tell, go) = (tell.clone(), until.clone());
        async move {
            tell.send(()).unwrap();
            go.notified().await.unwrap();
            "done"
        }
    };
    (Router::new().route("/", get(wait)), told, go)
}

#[test]
fn beyond_the_most_connections_clients_wait() {
    let (service, told, go) = patient();
    let server = Server::start_with(service, |serve| serve.max_connections(2));
    let request = "GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let mut clients: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for client in &mut clients {
        client.send(request);
    }
    for _ in 0..2 {
        told.recv_timeout(PATIENCE).unwrap();
    }
    assert_eq!(server.stats.snapshot().accepted, 2);
    assert!(told.try_recv().is_err());
    for _ in 0..4 {
        go.notify_one();
        // One place is free, and a client takes it.
        let _is_the_last = told.recv_timeout(std::time::Duration::from_millis(200));
    }
    for mut client in clients {
        assert_eq!(client.answer().text(), "done");
    }
    assert_eq!(server.stop().connections, 4);
}

#[test]
fn beyond_the_most_of_one_address_connections_are_closed() {
    let server = Server::start_with(router(), |serve| serve.max_connections_per_address(2));
    let mut first = server.connect();
    let mut second = server.connect();
    assert_eq!((first.get("/").status, second.get("/").status), (200, 200));
    let mut third = server.connect();
    third.ends();
    assert_eq!(server.stats.snapshot().turned_away, 1);
    drop(first);
    while server.stats.snapshot().open > 1 {
        std::thread::yield_now();
    }
    assert_eq!(server.connect().get("/").status, 200);
}

#[test]
fn over_the_limit_requests_are_answered_with_503() {
    let (service, told, go) = patient();
    let limit = Limit::new().concurrency(1);
    let server = Server::start_with(service, {
        let limit = limit.clone();
        |serve| serve.limit(limit)
    });
    let (mut first, mut second) = (server.connect(), server.connect());
    first.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    told.recv_timeout(PATIENCE).unwrap();
    for _ in 0..2 {
        let answer = second.get("/");
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
    }
    go.notify_one();
    assert_eq!(first.answer().text(), "done");
    go.notify_one();
    assert_eq!(second.get("/").text(), "done");
    assert_eq!((server.stats.snapshot().refused, limit.stats().refused), (2, 2));
    assert_eq!(limit.stats().running, 0);
}
