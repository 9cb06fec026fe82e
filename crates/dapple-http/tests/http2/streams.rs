//! The streams of one HTTP/2 connection: each has a color of its own, and all of them end with their connection.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex};

use crate::common::{PATIENCE, Server};
use axum::Router;
use axum::extract::State;
use axum::routing::get;
use bytes::Bytes;
use dapple::net::TcpStream;
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::client::conn::http2::SendRequest;

/// Handlers that block their thread until a test lets them go.
#[derive(Default)]
struct Blocked {
    begun: AtomicUsize,
    running: Mutex<Running>,
    changed: Condvar,
}

#[derive(Default)]
struct Running {
    now: usize,
    most: usize,
    /// Handlers return once this many have run at the same time, or the test is over.
    until: usize,
    is_over: bool,
}

impl Blocked {
    fn until(count: usize) -> Arc<Blocked> {
        let running = Running { until: count, ..Running::default() };
        Arc::new(Blocked { running: Mutex::new(running), ..Blocked::default() })
    }

    fn block(&self) {
        self.begun.fetch_add(1, SeqCst);
        let mut running = self.running.lock().unwrap();
        running.now += 1;
        running.most = running.most.max(running.now);
        self.changed.notify_all();
        let waited = self.changed.wait_timeout_while(running, PATIENCE, |running| {
            running.most < running.until && !running.is_over
        });
        let (mut running, timed_out) = waited.unwrap();
        assert!(!timed_out.timed_out(), "{} handlers ran at the same time", running.most);
        running.now -= 1;
    }

    /// Waits until that many handlers block.
    fn wait_for(&self, count: usize) {
        let running = self.running.lock().unwrap();
        let waited = self.changed.wait_timeout_while(running, PATIENCE, |running| running.now < count);
        assert!(!waited.unwrap().1.timed_out());
    }

    fn end(&self) {
        self.running.lock().unwrap().is_over = true;
        self.changed.notify_all();
    }
}

fn router(blocked: &Arc<Blocked>) -> Router {
    let block = |State(blocked): State<Arc<Blocked>>| async move {
        blocked.block();
        "done"
    };
    let quick = get(|| async { "quick" });
    Router::new().route("/", get(block)).route("/quick", quick).with_state(blocked.clone())
}

async fn connect(server: &Server) -> SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(dapple::hyper::Executor, stream);
    let (ask, connection) = handshake.await.unwrap();
    dapple::spawn(async { drop(connection.await) }).detach();
    ask
}

fn request(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://localhost{path}")).body(Empty::new()).unwrap()
}

#[test]
fn handlers_that_block_run_in_parallel() {
    let blocked = Blocked::until(6);
    // No handler returns before all six have begun; and the limit is not what is tested here.
    let server = Server::start_with(router(&blocked), |serve| serve.no_limit());
    dapple::run(async {
        let mut ask = connect(&server).await;
        let asked: Vec<_> = (0..6).map(|_| ask.send_request(request("/"))).collect();
        for asked in asked {
            assert_eq!(asked.await.unwrap().status(), 200);
        }
    });
    assert_eq!(blocked.running.lock().unwrap().most, 6);
}

#[test]
fn no_more_handlers_of_a_connection_run_than_allowed() {
    let blocked = Blocked::until(3);
    let server = Server::start_with(router(&blocked), |serve| serve.no_limit().max_parallel_streams(3));
    dapple::run(async {
        let mut ask = connect(&server).await;
        let asked: Vec<_> = (0..12).map(|_| ask.send_request(request("/"))).collect();
        for asked in asked {
            assert_eq!(asked.await.unwrap().status(), 200);
        }
    });
    assert_eq!(blocked.running.lock().unwrap().most, 3);
}

#[test]
fn handlers_that_wait_for_their_turn_do_not_begin_once_the_client_is_gone() {
    let blocked = Blocked::until(usize::MAX);
    let server = Server::start_with(router(&blocked), |serve| serve.no_limit().max_parallel_streams(2));
    dapple::run(async {
        let mut ask = connect(&server).await;
        let asked: Vec<_> = (0..10).map(|_| ask.send_request(request("/"))).collect();
        let mut all = Box::pin(futures_lite::future::poll_once(dapple::or_cancelled(async {
            for asked in asked {
                let _ = asked.await;
            }
        })));
        all.as_mut().await;
        // A request that is answered came behind the ten.
        let both = blocked.clone();
        dapple::blocking(move || both.wait_for(2)).await.unwrap();
        drop(all);
        drop(ask);
    });
    while server.stats.snapshot().open > 0 {
        std::thread::yield_now();
    }
    blocked.end();
    assert_eq!(server.stop().connections, 1);
    assert_eq!(blocked.begun.load(SeqCst), 2);
}

#[test]
fn a_stream_goes_on_while_another_one_blocks() {
    let blocked = Blocked::until(usize::MAX);
    let server = Server::start_with(router(&blocked), |serve| serve.no_limit());
    dapple::run(async {
        let mut ask = connect(&server).await;
        let slow = ask.send_request(request("/"));
        let both = blocked.clone();
        dapple::blocking(move || both.wait_for(1)).await.unwrap();
        let quick = ask.send_request(request("/quick")).await.unwrap();
        assert_eq!(quick.into_body().collect().await.unwrap().to_bytes(), "quick");
        blocked.end();
        assert_eq!(slow.await.unwrap().status(), 200);
    });
}
