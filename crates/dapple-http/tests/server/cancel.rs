//! A client that goes away cancels what was begun for it, as a scope is cancelled: nothing is dropped in the middle.

use std::convert::Infallible;
use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use crate::common::{PATIENCE, Server};
use bytes::Bytes;
use dapple::time::sleep;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;

type Served = Result<Response<Full<Bytes>>, Infallible>;

/// A service that reports when it begins, waits for ever, and reports the result of that wait, and its own drop.
fn waiting(
    tell: Sender<&'static str>,
) -> impl hyper::service::Service<
    Request<Incoming>,
    Response = Response<Full<Bytes>>,
    Error = Infallible,
    Future: Send + 'static,
> + Clone
+ Send
+ 'static {
    service_fn(move |_: Request<Incoming>| {
        let tell = tell.clone();
        async move {
            struct Dropped(Sender<&'static str>, bool);
            impl Drop for Dropped {
                fn drop(&mut self) {
                    if !self.1 {
                        let _ = self.0.send("dropped in the middle");
                    }
                }
            }
            let mut guard = Dropped(tell.clone(), false);
            let _ = tell.send("begun");
            let waited = sleep(Duration::MAX).await;
            let _ = tell.send(if waited.is_err() { "cancelled" } else { "over" });
            // Clean-up that waits is still possible.
            dapple::shield(sleep(Duration::from_millis(1))).await.unwrap();
            let _ = tell.send("cleaned up");
            guard.1 = true;
            Served::Ok(Response::default())
        }
    })
}

#[test]
fn a_client_that_goes_away_cancels_its_request() {
    let (tell, told) = mpsc::channel();
    let server = Server::start(waiting(tell));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "begun");
    drop(client);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "cancelled");
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "cleaned up");
    assert_eq!(server.stats.snapshot().cancelled, 1);
    assert_eq!(server.stop().cut, 0);
    assert!(told.try_recv().is_err());
}

#[test]
fn a_request_that_takes_too_long_is_cancelled_and_answered() {
    let (tell, told) = mpsc::channel();
    let server = Server::start_with(waiting(tell), |serve| serve.request_timeout(Duration::from_millis(20)));
    let mut client = server.connect();
    let answer = client.get("/");
    assert_eq!(answer.status, 503);
    for what in ["begun", "cancelled", "cleaned up"] {
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), what);
    }
    // The connection is as good as ever.
    assert_eq!(client.get("/").status, 503);
    assert_eq!(server.stats.snapshot().timeouts, 2);
}

#[test]
fn what_does_not_know_of_cancelling_is_dropped_after_the_grace() {
    let (tell, told) = mpsc::channel();
    let stubborn = service_fn(move |_: Request<Incoming>| {
        let tell = tell.clone();
        async move {
            struct Dropped(Sender<&'static str>);
            impl Drop for Dropped {
                fn drop(&mut self) {
                    self.0.send("dropped").unwrap();
                }
            }
            let _guard = Dropped(tell.clone());
            tell.send("begun").unwrap();
            std::future::pending::<()>().await;
            Served::Ok(Response::default())
        }
    });
    let server = Server::start_with(stubborn, |serve| serve.cancel_grace(Duration::from_millis(20)));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "begun");
    drop(client);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "dropped");
}

#[test]
fn the_deadline_of_a_shutdown_cancels_what_is_left() {
    let (tell, told) = mpsc::channel();
    let mut server =
        Server::start_with(waiting(tell), |serve| serve.shutdown_deadline(Duration::from_millis(20)));
    let mut client = server.connect();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n");
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "begun");
    server.ask_to_stop();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "cancelled");
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), "cleaned up");
    assert_eq!(server.stop().cut, 1);
    client.ends();
}
