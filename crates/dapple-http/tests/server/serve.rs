//! A server, from the first connection to the last.

use std::convert::Infallible;

use crate::common::{Client, Server};
use axum::Router;
use axum::extract::Path;
use axum::routing::{get, post};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;

fn router() -> Router {
    Router::new()
        .route("/hello/{name}", get(|Path(name): Path<String>| async move { format!("hello, {name}") }))
        .route("/echo", post(|body: Bytes| async move { body }))
}

#[test]
fn an_axum_router_is_served_as_it_is() {
    let server = Server::start(router());
    let mut client = server.connect();
    for name in ["you", "me"] {
        let answer = client.get(&format!("/hello/{name}"));
        assert_eq!((answer.status, answer.text()), (200, &*format!("hello, {name}")));
    }
    assert_eq!(client.get("/nowhere").status, 404);
    client.send("POST /echo HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello");
    assert_eq!(client.answer().text(), "hello");
    client.send("POST /echo HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n");
    assert_eq!(client.answer().text(), "hello");
    assert_eq!(server.stats.snapshot().requests, 5);
    let served = server.stop();
    assert_eq!((served.connections, served.requests, served.cut), (1, 5, 0));
    client.ends();
}

#[test]
fn a_client_that_will_send_nothing_more_is_answered_at_once() {
    let server = Server::start(router());
    for _ in 0..20 {
        let mut client = server.connect();
        let one = "GET /hello/you HTTP/1.1\r\nhost: a\r\n\r\n";
        client.send(format!("{one}{one}"));
        client.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(client.answer().text(), "hello, you");
        assert_eq!(client.answer().text(), "hello, you");
        client.ends();
    }
}

#[test]
fn a_service_of_hyper_is_served_as_it_is() {
    async fn length(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
        let body = request.into_body().collect().await?.to_bytes();
        Ok(Response::new(Full::new(body.len().to_string().into())))
    }
    let server = Server::start(service_fn(length));
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello");
    assert_eq!(client.answer().text(), "5");
}

#[test]
fn a_service_of_hyper_may_take_the_servers_own_body() {
    async fn length(
        request: Request<dapple_http::Body>,
    ) -> Result<Response<Full<Bytes>>, dapple_http::BoxError> {
        let body = request.into_body().bytes().await?;
        Ok(Response::new(Full::new(body.len().to_string().into())))
    }
    let server = Server::start(service_fn(length));
    let mut client = server.connect();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello");
    assert_eq!(client.answer().text(), "5");
    assert_eq!(client.get("/").text(), "0");
}

#[test]
fn a_handler_that_panics_is_answered_for() {
    async fn trip(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        assert!(request.uri().path() != "/trip", "tripped, as it should");
        Ok(Response::new(Full::new("fine".into())))
    }
    let server = Server::start(service_fn(trip));
    let mut client = server.connect();
    assert_eq!(client.get("/trip").status, 500);
    assert_eq!(client.get("/").text(), "fine");
    assert_eq!(server.stats.snapshot().panics, 1);
}

#[test]
fn many_clients_are_served_side_by_side() {
    let server = Server::start(router());
    let address = server.address;
    let clients: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                (0..100).for_each(|i| assert_eq!(client.get(&format!("/hello/{i}")).status, 200));
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let served = server.stop();
    assert_eq!((served.connections, served.requests), (8, 800));
}
