//! Slow clients hold no more than their connection, and not for long.
//!
//! Where a test waits for something not to happen, it waits for something else to happen instead: the other clients
//! are served meanwhile, and the counters tell.

use std::convert::Infallible;
use std::io::{Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::Server;
use axum::Router;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;

const SOON: Duration = Duration::from_millis(60);

fn router() -> Router {
    Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/echo", post(|body: Bytes| async move { body }))
        .route("/large", get(|| async { Bytes::from(vec![b'x'; 64 << 20]) }))
}

#[test]
fn a_client_that_says_nothing_is_let_go() {
    let server = Server::start_with(router(), |serve| serve.header_timeout(SOON));
    let mut silent = server.connect();
    silent.ends();
    assert_eq!(server.stats.snapshot().timeouts, 1);
}

#[test]
fn a_slow_head_is_answered_with_408() {
    let server = Server::start_with(router(), |serve| serve.header_timeout(SOON));
    for first in ["G", "GET / HTTP/1.1\r\nhost: a\r\n"] {
        let mut slow = server.connect();
        slow.send(first);
        let mut other = server.connect();
        assert_eq!(other.get("/").text(), "hello");
        let answer = slow.answer();
        assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
        slow.ends();
    }
    // One byte after the other does not help.
    let mut drip = server.connect();
    let mut sent = 0;
    let head = b"GET / HTTP/1.1\r\nhost: a\r\nx: ";
    while drip.is_quiet() {
        drip.send([*head.get(sent).unwrap_or(&b'a')]);
        sent += 1;
    }
    assert_eq!(drip.answer().status, 408);
}

#[test]
fn a_slow_second_head_is_answered_with_408() {
    let server = Server::start_with(router(), |serve| {
        serve.header_timeout(SOON).idle_timeout(Duration::from_secs(1000))
    });
    let mut slow = server.connect();
    assert_eq!(slow.get("/").text(), "hello");
    slow.send("GET /");
    assert_eq!(slow.answer().status, 408);
    slow.ends();
}

#[test]
fn an_idle_connection_is_closed() {
    let server = Server::start_with(router(), |serve| serve.idle_timeout(SOON));
    let mut idle = server.connect();
    assert_eq!(idle.get("/").text(), "hello");
    idle.ends();
    assert_eq!(server.stats.snapshot().timeouts, 0);
}

#[test]
fn a_slow_body_is_answered_with_408() {
    let server = Server::start_with(router(), |serve| serve.body_timeout(SOON));
    for framing in ["content-length: 5", "transfer-encoding: chunked"] {
        let mut slow = server.connect();
        slow.send(format!("POST /echo HTTP/1.1\r\nhost: a\r\n{framing}\r\n\r\n"));
        let answer = slow.answer();
        assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
        slow.ends();
    }
    assert_eq!(server.stats.snapshot().timeouts, 2);
}

#[test]
fn a_body_that_drips_is_not_waited_for() {
    let server = Server::start_with(router(), |serve| serve.body_timeout(SOON));
    let mut drip = server.connect();
    drip.send("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n");
    while drip.is_quiet() {
        drip.send("x");
    }
    assert_eq!(drip.answer().status, 408);
}

/// Collects a body as hyper gives it, and says how long it was, or that it is no good.
async fn bare(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let text = match request.into_body().collect().await {
        Ok(body) => body.to_bytes().len().to_string(),
        Err(_) => "an error".to_owned(),
    };
    Ok(Response::new(Full::from(text)))
}

#[test]
fn a_slow_body_that_a_service_has_as_hyper_gives_it_is_answered_with_408() {
    let server = Server::start_with(service_fn(bare), |serve| serve.body_timeout(SOON));
    for framing in ["content-length: 5\r\n\r\nhell", "transfer-encoding: chunked\r\n\r\n5\r\nhell"] {
        let mut slow = server.connect();
        slow.send(format!("POST / HTTP/1.1\r\nhost: a\r\n{framing}"));
        let answer = slow.answer();
        assert_eq!((answer.status, answer.header("connection")), (408, Some("close")));
        slow.ends();
    }
    assert_eq!(server.stats.snapshot().timeouts, 2);
    let mut drip = server.connect();
    drip.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n");
    while drip.is_quiet() {
        drip.send("x");
    }
    assert_eq!(drip.answer().status, 408);
    // And what comes in time is served, one after the other.
    let mut good = server.connect();
    for _ in 0..2 {
        good.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello");
        assert_eq!(good.answer().text(), "5");
    }
}

#[test]
fn a_body_that_the_service_does_not_read_has_no_time_limit() {
    let server = Server::start_with(
        service_fn(|_: Request<dapple_http::Body>| async {
            dapple::time::sleep(2 * SOON).await.unwrap();
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
        }),
        |serve| serve.body_timeout(SOON),
    );
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\n");
    assert_eq!(client.answer().text(), "done");
}

#[test]
fn a_client_that_does_not_read_is_cut() {
    let server = Server::start_with(router(), |serve| serve.write_timeout(SOON));
    let mut deaf = server.connect();
    deaf.send("GET /large HTTP/1.1\r\nhost: a\r\n\r\n");
    let mut other = server.connect();
    while server.stats.snapshot().timeouts == 0 {
        assert_eq!(other.get("/").text(), "hello");
    }
    drop(other);
    while server.stats.snapshot().open > 0 {
        std::thread::yield_now();
    }
    assert_eq!(server.stop().cut, 0);
}

/// A body without an end that counts how much of it was taken.
struct Endless(Arc<AtomicUsize>);

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static PIECE: [u8; 16 << 10] = [b'x'; 16 << 10];
        self.0.fetch_add(PIECE.len(), Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&PIECE)))))
    }
}

/// The kernel would take 2.5 MiB for each such client, and to copy that keeps the processors from other requests.
#[test]
fn a_client_that_reads_nothing_is_sent_little() {
    let taken = Arc::new(AtomicUsize::new(0));
    let counter = taken.clone();
    let endless = move |_: Request<dapple_http::Body>| {
        let counter = counter.clone();
        async move { Ok::<_, Infallible>(Response::new(Endless(counter))) }
    };
    let server = Server::start_with(service_fn(endless), |serve| serve.write_timeout(SOON));
    // A connection that was made before the server runs is as the system makes it.
    while server.stats.snapshot().accepted == 0 {
        drop(server.connect());
    }
    let address = server.address.into();
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap(); // what the client's side takes is not what is asked about
    socket.connect(&address).unwrap();
    (&socket).write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    while server.stats.snapshot().timeouts == 0 {
        std::thread::yield_now();
    }
    let taken = taken.load(Relaxed);
    assert!(taken <= 3 << 19, "{taken} bytes were taken");
}

/// The socket has room again after the client has received half a mebibyte, which takes several times as long as a client
/// may read nothing.
#[test]
fn a_client_that_reads_less_than_the_socket_holds_is_served_and_cut_when_it_stops() {
    // Long beside the pauses of a busy machine: a client that stands still for half of it is cut.
    let limit = Duration::from_secs(2);
    let server = Server::start_with(router(), move |serve| serve.write_timeout(limit));
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    // So that it is seen to receive in small steps.
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    socket.connect(&server.address.into()).unwrap();
    let mut client = std::net::TcpStream::from(socket);
    client.write_all(b"GET /large HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
    let mut buffer = [0; 8 * 1024];
    for step in 0..60 {
        std::thread::sleep(limit / 20);
        assert!(client.read(&mut buffer).is_ok_and(|count| count > 0), "after {step} reads");
        assert_eq!(server.stats.snapshot().timeouts, 0, "after {step} reads");
    }
    while server.stats.snapshot().timeouts == 0 {
        std::thread::sleep(limit / 20);
    }
}

#[test]
fn a_client_that_reads_slowly_but_reads_is_served() {
    let server = Server::start_with(router(), |serve| serve.write_timeout(Duration::from_millis(500)));
    let mut client = server.connect();
    client.send("GET /large HTTP/1.1\r\nhost: a\r\n\r\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.body.len()), (200, 64 << 20));
    assert_eq!(server.stats.snapshot().timeouts, 0);
}
