//! The first bytes of a connection: a client that speaks another protocol than the server expects gets an answer that
//! names it.

use std::io::Read;

use crate::common::Server;
use crate::identity::{Identity, identity};
use axum::Router;
use axum::routing::get;

fn router() -> Router {
    Router::new().route("/", get(|| async { "hello" }))
}

#[test]
fn a_malformed_preface_of_http2_is_answered_with_400() {
    let server = Server::start(router());
    for rest in ["SM\r\n\nX", "\r\nXX\r\n\r\n", "host: a\r\n\r\n"] {
        let mut client = server.connect();
        client.send(format!("PRI * HTTP/2.0\r\n{rest}"));
        let answer = client.answer();
        assert_eq!((answer.status, answer.header("connection")), (400, Some("close")), "{rest:?}");
        assert!(answer.text().contains("preface"), "{}", answer.text());
        client.ends();
    }
    assert_eq!(server.stats.snapshot().bad, 3);
}

#[test]
fn a_method_that_begins_like_the_preface_is_http1() {
    let server = Server::start(router());
    let mut client = server.connect();
    client.send("PRINT / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(client.answer().status, 405);
}

#[test]
fn plain_http_on_a_port_for_tls_is_told_to_use_https() {
    let Identity { certificate, key, .. } = identity();
    let tls = dapple_http::Tls::from_pem(certificate, key).unwrap();
    let server = Server::start_with(router(), move |serve| serve.tls(tls));
    for request in
        ["GET / HTTP/1.1\r\nhost: a\r\n\r\n", "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello"]
    {
        let mut client = server.connect();
        client.send(request);
        let mut answer = String::new();
        client.stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "{answer:?}");
        assert!(answer.contains("https://"), "{answer:?}");
    }
}
