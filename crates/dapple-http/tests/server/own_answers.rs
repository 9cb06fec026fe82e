//! The server's own answers are reported, once each, with the known parts of the request.

use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use crate::common::{PATIENCE, Server};
use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::limit::Limit;
use dapple::time::sleep;
use dapple_http::OwnAnswer;

/// The report as text: `GET /a HTTP/1.1 400`, with `-` for each unknown part.
fn text(answer: &OwnAnswer<'_>) -> String {
    let dash = || "-".to_owned();
    format!(
        "{} {} {} {}",
        answer.method.map_or_else(dash, ToString::to_string),
        answer.uri.map_or_else(dash, ToString::to_string),
        answer.version.map_or_else(dash, |version| format!("{version:?}")),
        answer.status.as_u16(),
    )
}

fn router() -> Router {
    Router::new()
        .route("/", any(|body: Bytes| async move { body.len().to_string() }))
        .route("/panics", any(|| async { panic!("on purpose") as &str }))
        .route("/long", any(|| async { sleep(Duration::MAX).await.map_or("cancelled", |()| "done") }))
}

fn server() -> (Server, Receiver<(String, u64, bool)>) {
    let (tell, told) = mpsc::channel();
    let server = Server::start_with(router(), move |serve| {
        let soon = Duration::from_millis(100);
        let serve = serve.header_timeout(soon).body_timeout(soon).request_timeout(2 * soon);
        serve.max_body_size(1000).max_header_size(100_000).on_own_answer(move |answer| {
            assert!(answer.peer.address.is_some());
            let _ = tell.send((text(answer), answer.bytes, answer.headers.is_some()));
        })
    });
    (server, told)
}

#[test]
fn each_answer_of_the_server_itself_is_told() {
    let (server, told) = server();
    let fields = "x: y\r\n".repeat(20_000);
    let forms = [
        ("what is this\r\n\r\n".to_owned(), "- - - 400"),
        ("GET / HTTP/1.1\r\nhost : a\r\n\r\n".into(), "GET / HTTP/1.1 400"),
        ("GET /?q HTTP/1.1\r\n\r\n".into(), "GET /?q HTTP/1.1 400"),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n".into(),
            "POST / HTTP/1.1 400",
        ),
        ("PUT / HTTP/1.1\r\nhost: a\r\ncontent-length: 1001\r\n\r\n".into(), "PUT / HTTP/1.1 413"),
        (
            "PUT / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n3e9\r\n".into(),
            "PUT / HTTP/1.1 413",
        ),
        (
            "POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: gzip, chunked\r\n\r\n".into(),
            "POST / HTTP/1.1 501",
        ),
        (format!("GET /many HTTP/1.1\r\nhost: a\r\n{fields}\r\n"), "GET /many HTTP/1.1 431"),
        (format!("GET /{} HTTP/1.1\r\nhost: a\r\n\r\n", "x".repeat(66_000)), "- - - 414"),
        ("GET / HT".into(), "- - - 408"),
        ("GET / HTTP/1.0\r\nhost:".into(), "GET / HTTP/1.0 408"),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1\r\n\r\n".into(), "POST / HTTP/1.1 408"),
        ("GET /panics HTTP/1.1\r\nhost: a\r\n\r\n".into(), "GET /panics HTTP/1.1 500"),
        ("GET /long HTTP/1.1\r\nhost: a\r\n\r\n".into(), "GET /long HTTP/1.1 503"),
    ];
    for (request, expected) in forms {
        let mut client = server.connect();
        client.send(&request);
        let answer = client.answer();
        drop(client);
        let (text, bytes, _) = told.recv_timeout(PATIENCE).unwrap();
        assert_eq!((text.as_str(), bytes), (expected, answer.body.len() as u64));
        assert!(expected.ends_with(&answer.status.to_string()), "{answer:?}");
    }
    assert_eq!(server.stats.snapshot().bad, 9);
    // Answers of the service are not reported.
    assert_eq!(server.connect().get("/").text(), "0");
    assert_eq!(server.connect().get("/none").status, 404);
    server.stop();
    assert!(told.try_recv().is_err());
}

#[test]
fn what_is_refused_over_the_limit_is_told_with_its_headers() {
    let (tell, told) = mpsc::channel();
    let limit = Limit::new().concurrency(1);
    let server = Server::start_with(router(), {
        let limit = limit.clone();
        move |serve| {
            serve.limit(limit).on_own_answer(move |answer| {
                let agent = answer.headers.and_then(|headers| headers.get("user-agent")).cloned();
                let _ = tell.send((text(answer), agent));
            })
        }
    });
    let mut first = server.connect();
    first.send("GET /long HTTP/1.1\r\nhost: a\r\n\r\n");
    while limit.stats().running == 0 {
        std::thread::yield_now();
    }
    let mut second = server.connect();
    second.send("GET /other HTTP/1.1\r\nhost: a\r\nuser-agent: me\r\n\r\n");
    assert_eq!(second.answer().status, 503);
    let (text, agent) = told.recv_timeout(PATIENCE).unwrap();
    assert_eq!((text.as_str(), agent.unwrap().to_str().unwrap()), ("GET /other HTTP/1.1 503", "me"));
}

#[dapple::test(sim, seeds = 3)]
async fn a_bad_request_is_told_also_if_its_client_stays() {
    use dapple::sim::net::{TcpListener, TcpStream};
    let at = "10.0.0.1:80";
    let (tell, told) = mpsc::channel();
    let serve = dapple_http::serve(TcpListener::bind(at).await.unwrap(), router());
    let serve = serve.on_own_answer(move |answer| tell.send(text(answer)).unwrap());
    let server = dapple::spawn(serve.into_future());
    let mut client = TcpStream::connect(at).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost : a\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 400 "));
    sleep(Duration::from_secs(3)).await.unwrap();
    assert_eq!(told.try_recv().unwrap(), "GET / HTTP/1.1 400");
    server.cancel();
    assert_eq!(server.await.unwrap().unwrap().cut, 0);
    assert!(told.recv().is_err());
}
