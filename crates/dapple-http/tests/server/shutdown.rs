//! Shutdown: requests that were begun are finished, idle connections are closed, and no client waits for ever.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::mpsc;

use crate::common::{PATIENCE, Server};
use bytes::Bytes;
use dapple::sync::Notify;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;

#[test]
fn what_was_begun_is_finished_and_the_rest_is_closed() {
    let (tell, told) = mpsc::channel();
    let go = Arc::new(Notify::new());
    let until = go.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let (tell, go) = (tell.clone(), until.clone());
        async move {
            if request.uri().path() == "/slow" {
                tell.send(()).unwrap();
                go.notified().await.unwrap();
            }
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("done")))
        }
    });
    let mut server = Server::start(service);
    let mut silent = server.connect();
    let mut idle = server.connect();
    assert_eq!(idle.get("/").text(), "done");
    let mut slow = server.connect();
    slow.send("GET /slow HTTP/1.1\r\nhost: a\r\n\r\n");
    told.recv_timeout(PATIENCE).unwrap();
    server.ask_to_stop();
    silent.ends();
    idle.ends();
    go.notify_one();
    assert_eq!(slow.answer().text(), "done");
    slow.ends();
    let served = server.stop();
    assert_eq!((served.connections, served.requests, served.cut), (3, 2, 0));
}

#[test]
fn a_cancelled_scope_ends_the_server() {
    dapple::run(async {
        let listener = dapple::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let router = axum::Router::new();
        let server = dapple::spawn(dapple_http::serve(listener, router).into_future());
        dapple::task::yield_now().await;
        server.cancel();
        assert_eq!(server.await.unwrap().unwrap().cut, 0);
    });
}

#[test]
fn a_server_that_is_dropped_lets_its_connections_end() {
    dapple::run(async {
        let listener = dapple::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = Box::pin(dapple_http::serve(listener, axum::Router::new()).into_future());
        let client = dapple::blocking(move || {
            let mut client = crate::common::Client::connect(address);
            assert_eq!(client.get("/").status, 404);
            client
        });
        let mut client = futures_lite::future::or(async { client.await.unwrap() }, async {
            server.as_mut().await.unwrap();
            unreachable!("nobody has told it to end")
        })
        .await;
        drop(server);
        dapple::blocking(move || client.ends()).await.unwrap();
    });
}
