//! A client that shuts down its side of an HTTP/1 connection: whether it still gets its answer.

use std::convert::Infallible;
use std::io::Read;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crate::common::{PATIENCE, Server};
use bytes::Bytes;
use dapple::sync::Notify;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;

const HOUR: Duration = Duration::from_secs(3600);
const LARGE: usize = 32 << 20;

/// `/large` answers at once. Everything else waits for `go`, or to be cancelled; both are told.
fn server(grace: Duration) -> (Server, Receiver<&'static str>, Arc<Notify>) {
    let (tell, told) = mpsc::channel();
    let go = Arc::new(Notify::new());
    let until = go.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (tell, go) = (tell.clone(), until.clone());
        async move {
            if request.uri().path() == "/large" {
                return Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(vec![b'x'; LARGE]))));
            }
            tell.send("begun").unwrap();
            let waited = go.notified().await;
            tell.send(if waited.is_ok() { "done" } else { "cancelled" }).unwrap();
            Ok(Response::new(Full::from("done")))
        }
    });
    (Server::start_with(service, move |serve| serve.half_close_grace(grace)), told, go)
}

const REQUEST: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[test]
fn a_response_that_has_begun_is_sent_whole() {
    let (server, _, _) = server(Duration::ZERO);
    let mut client = server.connect();
    client.send("GET /large HTTP/1.1\r\nhost: a\r\n\r\n");
    let mut first = [0; 1];
    client.stream.read_exact(&mut first).unwrap();
    client.stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    client.stream.read_to_end(&mut rest).unwrap();
    assert!(rest.len() > LARGE, "{} bytes", rest.len());
    assert_eq!(server.stop().cut, 0);
}

#[test]
fn a_response_that_is_ready_at_once_is_sent_whole() {
    let (server, _, _) = server(HOUR);
    for _ in 0..5 {
        let mut client = server.connect();
        client.send("GET /large HTTP/1.1\r\nhost: a\r\n\r\n");
        client.stream.shutdown(Shutdown::Write).unwrap();
        let mut whole = Vec::new();
        client.stream.read_to_end(&mut whole).unwrap();
        assert!(whole.len() > LARGE, "{} bytes", whole.len());
    }
}

#[test]
fn a_handler_may_answer_within_the_grace() {
    let (server, told, go) = server(HOUR);
    let mut client = server.connect();
    client.send(REQUEST);
    client.stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "begun");
    go.notify_one();
    assert_eq!(client.answer().text(), "done");
    client.ends();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "done");
    assert_eq!(server.stats.snapshot().cancelled, 0);
}

#[test]
fn a_handler_is_cancelled_after_the_grace() {
    for grace in [Duration::ZERO, Duration::from_millis(30)] {
        let (server, told, _go) = server(grace);
        let mut client = server.connect();
        client.send(REQUEST);
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "begun");
        client.stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "cancelled");
        client.ends();
        assert_eq!(server.stats.snapshot().cancelled, 1);
    }
}

#[test]
fn a_reset_cancels_at_once() {
    let (server, told, _go) = server(HOUR);
    let mut client = server.connect();
    client.send(REQUEST);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "begun");
    rustix::net::sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "cancelled");
}

#[test]
fn a_second_request_before_the_end_is_answered_as_well() {
    let (server, told, go) = server(HOUR);
    let mut client = server.connect();
    client.send([REQUEST, REQUEST].concat());
    client.stream.shutdown(Shutdown::Write).unwrap();
    for _ in 0..2 {
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "begun");
        go.notify_one();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "done");
        assert_eq!(client.answer().text(), "done");
    }
    client.ends();
}
