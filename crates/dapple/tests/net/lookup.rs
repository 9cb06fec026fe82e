//! From names to addresses, and to connections.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::mpsc;
use std::time::Duration;

use crate::common::{Event, foreign_block_on, runtime, watched};
use dapple::net::{TcpListener, TcpSocket, TcpStream, ToAddrs, lookup};
use dapple::{Runtime, is_cancelled};

const V4: Ipv4Addr = Ipv4Addr::LOCALHOST;
const V6: Ipv6Addr = Ipv6Addr::LOCALHOST;

#[track_caller]
fn run<F: Future<Output = ()> + Send + 'static>(test: F) {
    watched(|| {
        let rt = runtime(2);
        rt.block_on(rt.spawn(test)).unwrap();
    });
}

async fn found(host: impl ToAddrs) -> Vec<SocketAddr> {
    lookup(host).await.unwrap()
}

#[test]
fn literals_and_addresses_need_no_pool_and_no_runtime() {
    watched(|| {
        foreign_block_on(async {
            let v4 = SocketAddr::from((V4, 80));
            let v6 = SocketAddr::from((V6, 80));
            assert_eq!(found(v4).await, [v4]);
            assert_eq!(found(SocketAddrV4::new(V4, 80)).await, [v4]);
            assert_eq!(found(SocketAddrV6::new(V6, 80, 0, 0)).await, [v6]);
            assert_eq!(found((IpAddr::V4(V4), 80)).await, [v4]);
            assert_eq!(found((V4, 80)).await, [v4]);
            assert_eq!(found((V6, 80)).await, [v6]);
            assert_eq!(found("127.0.0.1:80").await, [v4]);
            assert_eq!(found("[::1]:80".to_owned()).await, [v6]);
            assert_eq!(found(("127.0.0.1", 80)).await, [v4]);
            assert_eq!(found(&("::1".to_owned(), 80)).await, [v6]);
            assert_eq!(found(&[v4, v6][..]).await, [v4, v6]);
            assert_eq!(found([v6, v4]).await, [v6, v4]);
            assert_eq!(found(vec![v4]).await, [v4]);
            assert_eq!(found("::1").await, [SocketAddr::from((V6, 0))]);
            assert_eq!(found("[::1]").await, [SocketAddr::from((V6, 0))]);
            assert_eq!(found("127.0.0.1").await, [SocketAddr::from((V4, 0))]);
            let error = lookup("localhost:80").await.unwrap_err();
            assert!(error.to_string().contains("no runtime"), "{error}");
        });
    });
}

#[test]
fn literals_give_way() {
    watched(|| {
        let rt = runtime(1);
        let looking_up = rt.spawn(async {
            loop {
                if let Err(error) = lookup("127.0.0.1:80").await {
                    return error;
                }
            }
        });
        rt.block_on(rt.spawn(async {})).unwrap();
        looking_up.cancel();
        assert!(is_cancelled(&rt.block_on(looking_up).unwrap()));
    });
}

#[test]
fn names_are_looked_up() {
    run(async {
        for addrs in [found("localhost:81").await, found(("localhost", 81)).await] {
            assert!(!addrs.is_empty());
            assert!(addrs.iter().all(|addr| addr.ip().is_loopback() && addr.port() == 81), "{addrs:?}");
        }
        assert!(found("localhost".to_owned()).await.iter().all(|addr| addr.port() == 0));
    });
}

#[test]
fn a_name_without_an_address_is_named() {
    run(async {
        for host in ["no-such-host.invalid", "", "with\0nul"] {
            let error = lookup((host, 80)).await.unwrap_err();
            assert!(error.to_string().contains(&format!("{host:?}")), "{error}");
            let error = TcpStream::connect((host, 80)).await.unwrap_err();
            assert!(error.to_string().contains(&format!("{host:?}")), "{error}");
            assert!(!is_cancelled(&error));
        }
    });
}

#[test]
fn what_is_no_address_is_said_to_be_none() {
    run(async {
        for (text, says) in
            [("localhost", "no port"), ("localhost:http", "valid port"), ("a:65536", "valid port")]
        {
            let error = TcpStream::connect(text).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains(says) && error.to_string().contains(text), "{error}");
            assert_eq!(TcpListener::bind(text).await.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
        let none: [SocketAddr; 0] = [];
        let error = TcpStream::connect(none).await.unwrap_err();
        assert!(error.to_string().contains("empty"), "{error}");
    });
}

/// A runtime whose pool is kept busy: lookups wait until the sender is dropped.
fn with_busy_pool() -> (Runtime, mpsc::Sender<()>) {
    let rt = Runtime::builder().workers(1).max_blocking_threads(1).build().unwrap();
    let (release, released) = mpsc::channel();
    rt.handle().blocking(move || released.recv()).detach();
    (rt, release)
}

#[test]
fn a_cancelled_lookup_returns_cancelled() {
    watched(|| {
        let (rt, release) = with_busy_pool();
        let begun = Event::default();
        let is_begun = begun.clone();
        let task = rt.spawn(async move {
            is_begun.set();
            let waited = lookup("localhost:80").await.unwrap_err();
            let later = lookup("127.0.0.1:80").await.unwrap_err();
            (waited, later)
        });
        begun.wait();
        task.cancel();
        let (waited, later) = rt.block_on(task).unwrap();
        assert!(is_cancelled(&waited) && is_cancelled(&later));
        drop(release);
        assert!(!rt.block_on(lookup("localhost:80")).unwrap().is_empty());
    });
}

#[test]
fn connects_by_name_to_whichever_address_answers() {
    run(async {
        let listener = TcpListener::bind("localhost:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let stream = TcpStream::connect(("localhost", port)).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().port(), port);
        let stream = TcpStream::connect(format!("localhost:{port}")).await.unwrap();
        assert!(stream.peer_addr().unwrap().ip().is_loopback());
    });
}

/// An address without a listener, reserved for as long as the socket exists.
fn refusing() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((V4, 0).into()).unwrap();
    let addr = socket.local_addr().unwrap();
    (socket, addr)
}

#[test]
fn all_addresses_are_tried_and_told() {
    run(async {
        let listener = TcpListener::bind((V4, 0)).await.unwrap();
        let good = listener.local_addr().unwrap();
        let ((_first, one), (_second, two)) = (refusing(), refusing());
        assert_eq!(TcpStream::connect([one, two, good]).await.unwrap().peer_addr().unwrap(), good);
        let error = TcpStream::connect([one, two]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let text = error.to_string();
        assert!(text.contains(&one.to_string()) && text.contains(&two.to_string()), "{text}");
        assert!(text.matches("refused").count() == 2, "{text}");
    });
}

/// A listener with a full backlog: it answers no further connection.
fn full() -> (std::net::TcpListener, Vec<std::net::TcpStream>) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((V4, 0).into()).unwrap();
    let listener = socket.listen(0).unwrap().into_std().unwrap();
    let addr = listener.local_addr().unwrap();
    let mut waiting = Vec::new();
    while let Ok(stream) = std::net::TcpStream::connect_timeout(&addr, Duration::from_millis(200)) {
        waiting.push(stream);
        assert!(waiting.len() < 100, "the backlog has no end");
    }
    (listener, waiting)
}

#[test]
fn an_address_that_does_not_answer_is_given_up_in_time() {
    run(async {
        let (silent, _waiting) = full();
        let addr = silent.local_addr().unwrap();
        let error = TcpStream::connect_timeout(addr, Duration::from_millis(20)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(error.to_string().contains(&addr.to_string()), "{error}");
        let listener = TcpListener::bind((V4, 0)).await.unwrap();
        let good = listener.local_addr().unwrap();
        let stream = TcpStream::connect_timeout([addr, good], Duration::from_millis(20)).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), good);
        let socket = TcpSocket::new_v4().unwrap();
        let error = socket.connect_timeout(addr, Duration::from_millis(5)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    });
}

#[test]
fn connecting_can_be_cancelled_while_it_waits_and_before() {
    watched(|| {
        let rt = runtime(2);
        let (silent, _waiting) = full();
        let addr = silent.local_addr().unwrap();
        let begun = Event::default();
        let is_begun = begun.clone();
        let task = rt.spawn(async move {
            let mut connecting = Box::pin(TcpStream::connect([addr, addr]));
            let error = std::future::poll_fn(|cx| {
                let polled = connecting.as_mut().poll(cx);
                is_begun.set();
                polled
            })
            .await
            .unwrap_err();
            (error, TcpStream::connect(addr).await.unwrap_err())
        });
        begun.wait();
        task.cancel();
        let (waited, later) = rt.block_on(task).unwrap();
        assert!(is_cancelled(&waited) && is_cancelled(&later));
        assert_eq!(waited.to_string(), dapple::Cancelled.to_string(), "the second address is not tried");
    });
}
