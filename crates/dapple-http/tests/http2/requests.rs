//! HTTP/2: what is different with many requests on one connection.

use std::pin::Pin;
use std::sync::mpsc::{self, Receiver, Sender};
use std::task::{Context, Poll};
use std::time::Duration;

use crate::common::{PATIENCE, Server};
use axum::Router;
use axum::extract::State;
use axum::routing::{get, post};
use bytes::Bytes;
use dapple::net::TcpStream;
use dapple::time::sleep;
use dapple_http::{Handler, Serve};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::client::conn::http2::SendRequest;

const SOON: Duration = Duration::from_millis(60);

type Told = Sender<&'static str>;

/// Waits until it is cancelled, and tells.
async fn wait(State(tell): State<Told>) -> &'static str {
    let _ = tell.send("begun");
    let waited = sleep(Duration::MAX).await;
    let _ = tell.send(if waited.is_err() { "cancelled" } else { "over" });
    "done"
}

fn server(
    configure: impl FnOnce(Serve<dapple::net::TcpListener, Tower>) -> Serve<dapple::net::TcpListener, Tower>
    + Send
    + 'static,
) -> (Server, Receiver<&'static str>) {
    let (tell, told) = mpsc::channel();
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .route("/wait", get(wait))
        .route("/echo", post(|body: Bytes| async move { body.len().to_string() }))
        .route("/whole", get(|| async { Bytes::from(vec![b'x'; 64 << 20]) }))
        .route("/pieces", get(|| async { axum::body::Body::new(Pieces) }))
        .with_state(tell);
    (Server::start_with(router, configure), told)
}

/// One piece after the other, without end.
struct Pieces;

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&[b'x'; 1 << 16])))))
    }
}

type Tower = <Router as dapple_http::IntoHandler<dapple_http::ByTower>>::Handler;

const _: () = {
    const fn is_handler<H: Handler>() {}
    is_handler::<Tower>();
};

async fn connect(server: &Server) -> SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let executor = dapple::hyper::Executor;
    let (ask, connection) = hyper::client::conn::http2::handshake(executor, stream).await.unwrap();
    dapple::spawn(async { drop(connection.await) }).detach();
    ask
}

fn request(method: &str, path: &str, body: &'static str) -> Request<Full<Bytes>> {
    Request::builder().method(method).uri(format!("http://localhost{path}")).body(body.into()).unwrap()
}

async fn answer(ask: &mut SendRequest<Full<Bytes>>, request: Request<Full<Bytes>>) -> (u16, String) {
    let response = ask.send_request(request).await.unwrap();
    let status = response.status().as_u16();
    (status, String::from_utf8(response.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap())
}

#[test]
fn a_client_gives_up_one_request_and_goes_on_with_others() {
    let (server, told) = server(|serve| serve);
    dapple::run(async {
        let mut ask = connect(&server).await;
        let waiting = ask.send_request(request("GET", "/wait", ""));
        let mut waiting = Box::pin(waiting);
        assert!(futures_lite::future::poll_once(&mut waiting).await.is_none());
        assert_eq!(answer(&mut ask, request("GET", "/", "")).await, (200, "hello".into()));
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "begun");
        drop(waiting);
        // Whatever is sent next takes the reset along.
        assert_eq!(answer(&mut ask, request("GET", "/", "")).await, (200, "hello".into()));
        let told = dapple::blocking(move || told.recv_timeout(PATIENCE));
        assert_eq!(told.await.unwrap().unwrap(), "cancelled");
    });
    assert_eq!(server.stats.snapshot().cancelled, 1);
    let served = server.stop();
    assert_eq!((served.connections, served.requests, served.cut), (1, 3, 0));
}

#[test]
fn a_body_that_is_too_large_ends_its_request_alone() {
    let (server, _told) = server(|serve| serve.max_body_size(3));
    dapple::run(async {
        let mut ask = connect(&server).await;
        assert_eq!(answer(&mut ask, request("POST", "/echo", "four")).await.0, 413);
        assert_eq!(answer(&mut ask, request("POST", "/echo", "two")).await, (200, "3".into()));
    });
}

#[test]
fn the_host_is_said_once() {
    let (server, _told) = server(|serve| serve);
    dapple::run(async {
        let mut ask = connect(&server).await;
        for (host, status) in [("localhost", 200), ("elsewhere", 400)] {
            let mut request = request("GET", "/", "");
            request.headers_mut().insert("host", host.parse().unwrap());
            assert_eq!(answer(&mut ask, request).await.0, status, "{host}");
        }
    });
}

#[test]
fn a_client_that_does_not_read_a_response_is_cut() {
    // Whether the service has more of it, or nothing more to do for it.
    for path in ["/pieces", "/whole"] {
        let (server, _told) = server(|serve| serve.write_timeout(SOON));
        dapple::run(async {
            let mut ask = connect(&server).await;
            let response = ask.send_request(request("GET", path, "")).await.unwrap();
            assert_eq!(response.status(), 200);
            while server.stats.snapshot().open > 0 {
                sleep(Duration::from_millis(1)).await.unwrap();
            }
            assert!(response.into_body().collect().await.is_err());
        });
        assert_eq!(server.stats.snapshot().timeouts, 1, "{path}");
    }
}

/// Sends a piece of its body every now and then, and never comes to an end.
struct Drip(dapple::time::Sleep, Bytes);

impl http_body::Body for Drip {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.1.is_empty() {
            return Poll::Pending;
        }
        std::task::ready!(Pin::new(&mut self.0).poll(cx)).unwrap();
        self.0 = sleep(SOON / 20);
        Poll::Ready(Some(Ok(Frame::data(self.1.clone()))))
    }
}

#[test]
fn a_body_that_does_not_come_is_answered_with_408_and_the_others_go_on() {
    for piece in ["", "x"] {
        let (server, _told) = server(|serve| serve.body_timeout(SOON));
        dapple::run(async {
            let stream = TcpStream::connect(server.address).await.unwrap();
            let handshake = hyper::client::conn::http2::handshake(dapple::hyper::Executor, stream);
            let (mut ask, connection) = handshake.await.unwrap();
            dapple::spawn(async { drop(connection.await) }).detach();
            let mut other = ask.clone();
            for path in ["/echo", "/echo"] {
                let body = Drip(sleep(Duration::ZERO), Bytes::from_static(piece.as_bytes()));
                let request = Request::post(format!("http://localhost{path}"));
                let request = ask.send_request(request.body(body.boxed()).unwrap());
                let get = Request::get("http://localhost/").body(Full::default().boxed()).unwrap();
                assert_eq!(other.send_request(get).await.unwrap().status(), 200);
                assert_eq!(request.await.unwrap().status(), 408);
            }
        });
        assert_eq!((server.stats.snapshot().timeouts, server.stats.snapshot().accepted), (2, 1));
        assert_eq!(server.stop().cut, 0);
    }
}

#[test]
fn an_idle_connection_is_told_and_closed() {
    let (server, _told) = server(|serve| serve.idle_timeout(SOON));
    dapple::run(async {
        let mut ask = connect(&server).await;
        assert_eq!(answer(&mut ask, request("GET", "/", "")).await.0, 200);
        while server.stats.snapshot().open > 0 {
            sleep(Duration::from_millis(1)).await.unwrap();
        }
    });
    assert_eq!(server.stats.snapshot().timeouts, 0);
}

#[test]
fn the_deadline_of_a_shutdown_cancels_all_requests() {
    let (mut server, told) = server(|serve| serve.shutdown_deadline(SOON));
    dapple::run(async {
        let mut ask = connect(&server).await;
        let mut waiting: Vec<_> =
            (0..3).map(|_| Box::pin(ask.send_request(request("GET", "/wait", "")))).collect();
        for waiting in &mut waiting {
            assert!(futures_lite::future::poll_once(waiting).await.is_none());
        }
        let told = dapple::blocking(move || {
            for what in ["begun"; 3] {
                assert_eq!(told.recv_timeout(PATIENCE).unwrap(), what);
            }
            server.ask_to_stop();
            for what in ["cancelled"; 3] {
                assert_eq!(told.recv_timeout(PATIENCE).unwrap(), what);
            }
            server
        });
        let server = told.await.unwrap();
        for waiting in waiting {
            assert!(waiting.await.is_err());
        }
        assert_eq!(server.stop().cut, 1);
    });
}

/// A body in a response that must not have one is an error of the protocol, and clients end the stream with it.
#[test]
fn responses_that_have_no_body_are_sent_without_one() {
    let service = hyper::service::service_fn(|request: Request<dapple_http::Body>| async move {
        let status = request.uri().path().trim_start_matches('/').parse().unwrap();
        let response = http::Response::builder().status::<u16>(status);
        Ok::<_, std::convert::Infallible>(response.body(Full::<Bytes>::from("a body")).unwrap())
    });
    let server = Server::start(service);
    dapple::run(async {
        let mut ask = connect(&server).await;
        for (method, path, host, status, length) in [
            ("HEAD", "/200", "localhost", 200, Some("6")),
            ("HEAD", "/404", "localhost", 404, Some("6")),
            // The server's own answer.
            ("HEAD", "/200", "elsewhere", 400, Some("66")),
            ("GET", "/204", "localhost", 204, None),
            ("GET", "/304", "localhost", 304, None),
        ] {
            let mut request = request(method, path, "");
            request.headers_mut().insert("host", host.parse().unwrap());
            let response = ask.send_request(request).await.unwrap();
            assert_eq!(response.status(), status, "{method} {path}");
            let said = response.headers().get("content-length").map(|length| length.to_str().unwrap());
            assert_eq!(said, length, "{method} {path}");
            let body = response.into_body().collect().await;
            assert!(body.is_ok_and(|body| body.to_bytes().is_empty()), "{method} {path}");
        }
        assert_eq!(answer(&mut ask, request("GET", "/200", "")).await, (200, "a body".into()));
    });
}
