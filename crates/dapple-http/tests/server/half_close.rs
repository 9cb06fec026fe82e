//! A client that shuts down its side of an HTTP/1 connection: whether it still gets its answer.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crate::common::{PATIENCE, Server};
use crate::identity::{Identity, identity};
use bytes::Bytes;
use dapple::sync::Notify;
use dapple_http::Tls;
use futures_rustls::pki_types::ServerName;
use futures_rustls::rustls::{ClientConnection, StreamOwned};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;

const HOUR: Duration = Duration::from_secs(3600);
const LARGE: usize = 32 << 20;

/// Long enough for most ends of streams to be seen. Nothing fails if one is seen later.
const MOMENT: Duration = Duration::from_millis(30);

/// `/large` answers at once. All other paths wait for `go`, or for a cancel, and report either.
fn server(grace: Duration) -> (Server, Receiver<&'static str>, Arc<Notify>) {
    server_with(grace, None)
}

fn server_with(grace: Duration, tls: Option<Tls>) -> (Server, Receiver<&'static str>, Arc<Notify>) {
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
    let server = Server::start_with(service, move |serve| {
        let serve = serve.half_close_grace(grace);
        if let Some(tls) = tls { serve.tls(tls) } else { serve }
    });
    (server, told, go)
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

/// The ways in which clients reset their connections.
#[derive(Clone, Copy, Debug)]
enum Before {
    /// It shuts down its side, and that is seen or not.
    End { is_seen: bool },
    /// It begins its next request.
    NextRequest,
}

#[test]
fn a_reset_cancels_at_once_whatever_came_before() {
    for before in [Before::End { is_seen: true }, Before::End { is_seen: false }, Before::NextRequest] {
        let (server, told, _go) = server(HOUR);
        let mut client = server.connect();
        client.send(REQUEST);
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "begun");
        match before {
            Before::End { is_seen } => {
                client.stream.shutdown(Shutdown::Write).unwrap();
                if is_seen {
                    std::thread::sleep(MOMENT);
                }
            }
            Before::NextRequest => {
                client.send("GET / HT");
                std::thread::sleep(MOMENT);
            }
        }
        rustix::net::sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap();
        drop(client);
        assert_eq!(told.recv_timeout(PATIENCE).as_ref(), Ok(&"cancelled"), "{before:?}");
    }
}

#[test]
fn a_reset_cancels_at_once_while_a_body_is_not_read() {
    let (server, told, _go) = server(HOUR);
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 10\r\n\r\n");
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "begun");
    client.send([0; 3]);
    rustix::net::sockopt::set_socket_linger(&client.stream, Some(Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "cancelled");
}

/// With TLS a client shuts down its side by a `close_notify`.
#[test]
fn a_reset_after_the_end_of_tls_cancels_at_once() {
    for is_seen in [true, false] {
        let Identity { certificate, key, client } = identity();
        let tls = Tls::from_pem(certificate, key).unwrap();
        let (server, told, _go) = server_with(HOUR, Some(tls));
        let name = ServerName::try_from("localhost").unwrap();
        let session = ClientConnection::new(Arc::new(client), name).unwrap();
        let mut client = StreamOwned::new(session, server.connect().stream);
        client.write_all(REQUEST.as_bytes()).unwrap();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "begun");
        client.conn.send_close_notify();
        client.flush().unwrap();
        client.sock.shutdown(Shutdown::Write).unwrap();
        if is_seen {
            std::thread::sleep(MOMENT);
            assert!(told.try_recv().is_err(), "it still waits for its answer");
        }
        rustix::net::sockopt::set_socket_linger(&client.sock, Some(Duration::ZERO)).unwrap();
        drop(client);
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "cancelled");
    }
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
