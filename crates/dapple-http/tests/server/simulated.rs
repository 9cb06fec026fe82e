//! The whole server in virtual time: what is late is late to the millisecond, on any machine, by any seed.

use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::sim::net::{TcpListener, TcpStream};
use dapple::time::{Instant, sleep};
use dapple_http::{Served, serve};
use http_body_util::{BodyExt, Empty};

const AT: &str = "10.0.0.1:80";

/// The time that something takes, within what the network and the timers add.
async fn takes<T>(expected: Duration, future: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let result = future.await;
    let took = begun.elapsed();
    assert!(took.abs_diff(expected) < Duration::from_millis(100), "{took:?}, not {expected:?}");
    result
}

async fn read_all(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // A connection that is cut may end with an error.
    let _ = stream.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

async fn read_answer(stream: &mut TcpStream) {
    let mut answer = Vec::new();
    while !answer.ends_with(b"hello") {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        answer.extend(byte);
    }
}

fn router() -> Router {
    let large = get(|| async { vec![b'x'; 16 << 20] });
    Router::new().route("/", get(|| async { "hello" })).route("/large", large).route(
        "/slow",
        get(|| async {
            let _or_cancelled = sleep(Duration::from_secs(20)).await;
            "hello"
        }),
    )
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n";

#[dapple::test(sim, seeds = 10)]
async fn each_time_limit_is_kept_to_the_millisecond() {
    let listener = TcpListener::bind(AT).await.unwrap();
    let server = serve(listener, router())
        .header_timeout(Duration::from_secs(10))
        .idle_timeout(Duration::from_secs(40))
        .request_timeout(Duration::from_secs(5));
    let server = dapple::spawn(server.into_future());

    // Nothing at all.
    let mut client = TcpStream::connect(AT).await.unwrap();
    assert_eq!(takes(Duration::from_secs(10), read_all(&mut client)).await, "");

    // Half a head, from when the client came.
    let mut client = TcpStream::connect(AT).await.unwrap();
    client.write_all(b"GET / HT").await.unwrap();
    let answer = takes(Duration::from_secs(10), read_all(&mut client)).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");

    // Idle, from the last answer on; each request begins anew.
    let mut client = TcpStream::connect(AT).await.unwrap();
    for _ in 0..3 {
        client.write_all(REQUEST).await.unwrap();
        read_answer(&mut client).await;
        sleep(Duration::from_secs(30)).await.unwrap();
    }
    assert_eq!(takes(Duration::from_secs(10), read_all(&mut client)).await, "");

    // Half of a second head, from its first byte on, whatever the timer was set to before.
    let mut client = TcpStream::connect(AT).await.unwrap();
    client.write_all(REQUEST).await.unwrap();
    read_answer(&mut client).await;
    sleep(Duration::from_secs(35)).await.unwrap();
    client.write_all(b"GET / HT").await.unwrap();
    let answer = takes(Duration::from_secs(10), read_all(&mut client)).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");

    // A handler that takes too long.
    let mut client = TcpStream::connect(AT).await.unwrap();
    client.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let answer = takes(Duration::from_secs(5), read_all(&mut client)).await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");

    server.cancel();
    let served = server.await.unwrap().unwrap();
    assert_eq!((served.connections, served.requests, served.cut), (5, 5, 0));
}

#[dapple::test(sim, seeds = 20)]
async fn the_way_out_takes_as_long_as_what_was_begun_and_no_longer_than_the_deadline() {
    for (deadline, expected, cut) in [(60, 20, 0), (8, 8, 1)] {
        let listener = TcpListener::bind(AT).await.unwrap();
        let server = serve(listener, router()).shutdown_deadline(Duration::from_secs(deadline));
        let stats = server.stats();
        let server = dapple::spawn(server.into_future());
        let mut slow = TcpStream::connect(AT).await.unwrap();
        slow.write_all(b"GET /slow HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
        let mut idle = TcpStream::connect(AT).await.unwrap();
        idle.write_all(REQUEST).await.unwrap();
        read_answer(&mut idle).await;
        while stats.snapshot().requests < 2 {
            sleep(Duration::from_millis(1)).await.unwrap();
        }
        server.cancel();
        let closed = dapple::spawn(async move { takes(Duration::ZERO, read_all(&mut idle)).await });
        let served: Served = takes(Duration::from_secs(expected), server).await.unwrap().unwrap();
        assert_eq!(served.cut, cut);
        assert_eq!(closed.await.unwrap(), "");
        let answer = read_all(&mut slow).await;
        assert_eq!(answer.ends_with("hello"), cut == 0, "{answer}");
    }
}

/// A head is begun when its first byte is here, also if that could be the first one of HTTP/2's preface.
#[dapple::test(sim, seeds = 10)]
async fn a_head_that_has_come_in_part_is_waited_for_on_the_way_out() {
    for (before, first, rest) in [
        (&b""[..], "G", "ET / HTTP/1.1\r\nhost: a\r\n\r\n"),
        (b"", "P", "OST /post HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"),
        (REQUEST, "G", "ET / HTTP/1.1\r\nhost: a\r\n\r\n"),
        (REQUEST, "P", "OST /post HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi"),
    ] {
        let listener = TcpListener::bind(AT).await.unwrap();
        let router = router().route("/post", axum::routing::post(|| async { "hello" }));
        let server = dapple::spawn(serve(listener, router).into_future());
        let mut client = TcpStream::connect(AT).await.unwrap();
        if !before.is_empty() {
            client.write_all(before).await.unwrap();
            read_answer(&mut client).await;
        }
        client.write_all(first.as_bytes()).await.unwrap();
        sleep(Duration::from_secs(1)).await.unwrap();
        server.cancel();
        sleep(Duration::from_secs(1)).await.unwrap();
        client.write_all(rest.as_bytes()).await.unwrap();
        let answer = takes(Duration::ZERO, read_all(&mut client)).await;
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"), "{first} {answer}");
        assert_eq!(server.await.unwrap().unwrap().cut, 0);
    }
}

#[dapple::test(sim, seeds = 10)]
async fn a_head_that_does_not_come_is_cut_at_the_deadline() {
    for part in ["G", "P", "PRI * HT"] {
        let listener = TcpListener::bind(AT).await.unwrap();
        let server = serve(listener, router()).shutdown_deadline(Duration::from_secs(5));
        let server = dapple::spawn(server.into_future());
        let mut client = TcpStream::connect(AT).await.unwrap();
        client.write_all(part.as_bytes()).await.unwrap();
        sleep(Duration::from_secs(1)).await.unwrap();
        server.cancel();
        takes(Duration::from_secs(5), read_all(&mut client)).await;
        assert_eq!(server.await.unwrap().unwrap().cut, 1, "{part}");
    }
}

/// It never reads, so that only its writes can tell it.
#[dapple::test(sim, seeds = 10)]
async fn a_stream_that_is_not_http_any_more_and_only_writes_is_cut_at_the_deadline() {
    for (pause, most) in [(Duration::from_secs(1), 30), (Duration::ZERO, 100_000)] {
        let listener = TcpListener::bind(AT).await.unwrap();
        let ticking = move |mut request: axum::extract::Request| async move {
            let upgraded = dapple_http::upgrade(&mut request);
            let ticks = dapple::spawn(async move {
                let mut stream = upgraded.await.unwrap();
                for _ in 0..most {
                    if stream.write_all(b"tick").await.is_err() {
                        return;
                    }
                    sleep(pause).await.unwrap();
                }
            });
            ticks.detach();
            let response = axum::response::Response::builder().status(101).header("upgrade", "ticks");
            response.body(axum::body::Body::empty()).unwrap()
        };
        let router = Router::new().route("/", get(ticking));
        let server = serve(listener, router).shutdown_deadline(Duration::from_secs(5));
        let server = dapple::spawn(server.into_future());
        let mut client = TcpStream::connect(AT).await.unwrap();
        let upgrade = b"GET / HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: ticks\r\n\r\n";
        client.write_all(upgrade).await.unwrap();
        sleep(Duration::from_millis(1500)).await.unwrap();
        server.cancel();
        if pause.is_zero() {
            // It has no room, since nothing of it is read before the deadline.
            sleep(Duration::from_secs(5)).await.unwrap();
            sleep(Duration::from_millis(500)).await.unwrap();
            assert!(takes(Duration::ZERO, read_all(&mut client)).await.len() < 200_000);
        } else {
            let text = takes(Duration::from_millis(5500), read_all(&mut client)).await;
            assert!(text.contains("ticktick"), "{text}");
        }
        assert_eq!(server.await.unwrap().unwrap().cut, 1);
    }
}

#[dapple::test(sim, seeds = 3)]
async fn a_response_of_http2_that_is_not_read_is_waited_for_and_one_that_is_given_up_is_not() {
    for is_given_up in [true, false] {
        let listener = TcpListener::bind(AT).await.unwrap();
        let server = serve(listener, router()).write_timeout(Duration::from_secs(5));
        let stats = server.stats();
        let server = dapple::spawn(server.into_future());
        let stream = TcpStream::connect(AT).await.unwrap();
        let handshake = hyper::client::conn::http2::handshake(dapple::hyper::Executor, stream);
        let (mut ask, connection) = handshake.await.unwrap();
        let connection = dapple::spawn(async { drop(connection.await) });
        let mut get = async |path: &str| {
            let request = http::Request::get(format!("http://a{path}")).body(Empty::<Bytes>::new());
            ask.send_request(request.unwrap()).await.unwrap()
        };
        let response = get("/large").await;
        if is_given_up {
            drop(response);
            // Whatever is sent next takes the reset along.
            assert_eq!(get("/").await.status(), 200);
            sleep(Duration::from_secs(50)).await.unwrap();
            assert_eq!(get("/").await.status(), 200);
            assert_eq!(stats.snapshot().timeouts, 0);
            drop(ask);
            connection.await.unwrap();
        } else {
            takes(Duration::from_secs(5), connection).await.unwrap();
            assert!(response.into_body().collect().await.is_err());
            assert_eq!(stats.snapshot().timeouts, 1);
        }
        server.cancel();
        server.await.unwrap().unwrap();
    }
}
