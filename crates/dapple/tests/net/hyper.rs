//! hyper on Dapple: its I/O traits, executor and timer.
#![cfg(feature = "hyper")]

use std::convert::Infallible;
use std::time::{Duration, Instant};

use crate::common::{Event, runtime, watched};
use dapple::hyper::{Executor, Timer};
use dapple::net::{TcpListener, TcpStream, UnixStream};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::rt::{Executor as _, Read, Timer as _, Write};
use hyper::service::service_fn;
use hyper::{Request, Response};

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let length = request.uri().path().trim_start_matches('/').parse().unwrap();
    Ok(Response::new(Full::new(vec![b'x'; length].into())))
}

#[test]
fn serves_and_asks_over_tcp() {
    watched(|| {
        let rt = runtime(2);
        rt.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            let (far, _) = listener.accept().await.unwrap();
            serve_and_ask(near, far).await;
        });
    });
}

#[test]
fn serves_and_asks_over_a_unix_socket() {
    watched(|| {
        let rt = runtime(2);
        rt.block_on(async {
            let (near, far) = UnixStream::pair().unwrap();
            serve_and_ask(near, far).await;
        });
    });
}

async fn serve_and_ask<S: Read + Write + Send + Unpin + 'static>(near: S, far: S) {
    let server = dapple::spawn(async move {
        let mut http = hyper::server::conn::http1::Builder::new();
        let http = http.timer(Timer).header_read_timeout(Duration::from_secs(30));
        http.serve_connection(far, service_fn(answer)).await
    });
    let (mut ask, connection) = hyper::client::conn::http1::handshake(near).await.unwrap();
    Executor.execute(connection);
    for length in [5_usize, 0, 1_000_000, 1] {
        ask.ready().await.unwrap();
        let request = Request::get(format!("/{length}")).header("host", "localhost");
        let response = ask.send_request(request.body(Empty::<Bytes>::new()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert!(body.len() == length && body.iter().all(|byte| *byte == b'x'));
    }
    drop(ask);
    server.await.unwrap().unwrap();
}

#[dapple::test(sim, seeds = 20)]
async fn a_client_that_sends_no_head_is_given_up() {
    let listener = dapple::sim::net::TcpListener::bind("10.0.0.1:80").await.unwrap();
    let _silent = dapple::sim::net::TcpStream::connect("10.0.0.1:80").await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let (limit, begun) = (Duration::from_secs(30), Timer.now());
    let mut http = hyper::server::conn::http1::Builder::new();
    let http = http.timer(Timer).header_read_timeout(limit);
    let error = http.serve_connection(stream, service_fn(answer)).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    let took = Timer.now() - begun;
    assert!(took >= limit && took < limit + Duration::from_millis(1), "{took:?}");
}

#[test]
fn cancelling_ends_a_connection_with_an_error() {
    watched(|| {
        let rt = runtime(2);
        let listener = rt.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let slow = rt.block_on(TcpStream::connect(listener.local_addr().unwrap())).unwrap();
        slow.try_write(b"GET / HT").unwrap();
        let (stream, _) = rt.block_on(listener.accept()).unwrap();
        let begun = Event::default();
        let is_begun = begun.clone();
        let task = rt.spawn(async move {
            let mut http = hyper::server::conn::http1::Builder::new();
            let http = http.timer(Timer).header_read_timeout(Duration::from_secs(1000));
            let mut serving = Box::pin(http.serve_connection(stream, service_fn(answer)));
            std::future::poll_fn(|cx| {
                let polled = Future::poll(serving.as_mut(), cx);
                is_begun.set();
                polled
            })
            .await
        });
        begun.wait();
        task.cancel();
        let error = rt.block_on(task).unwrap().unwrap_err();
        assert!(!error.is_timeout());
        let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref());
        assert!(dapple::is_cancelled(source.unwrap()), "{error:?}");
    });
}

#[dapple::test(sim, seeds = 50)]
async fn timers_are_on_time_and_can_be_reset() {
    let assert_now = |moment: Instant| {
        let now = Timer.now();
        assert!(now >= moment && now - moment < Duration::from_micros(500), "{:?}", now - moment);
    };
    let start = Timer.now();
    Timer.sleep(Duration::from_millis(2)).await;
    assert_now(start + Duration::from_millis(2));
    let now = Timer.now();
    Timer.sleep_until(start).await; // is over
    assert!(Timer.now() - now < Duration::from_micros(500));
    let mut sleep = Timer.sleep(Duration::from_secs(1_000_000));
    Timer.reset(&mut sleep, start + Duration::from_millis(4));
    sleep.await;
    assert_now(start + Duration::from_millis(4));
}

#[dapple::test]
async fn poll_look_sees_the_received_bytes_in_their_buffer() {
    let (mut near, mut far) = UnixStream::pair().unwrap();
    dapple::io::AsyncWriteExt::write_all(&mut near, b"hello").await.unwrap();
    drop(near);
    // Behind what is there already, and no further than there is room.
    let mut buffer = [0; 7];
    let mut buffer = hyper::rt::ReadBuf::new(&mut buffer);
    buffer.unfilled().put_slice(b"...");
    let mut looked = Vec::new();
    loop {
        let count = std::future::poll_fn(|cx| {
            dapple::hyper::poll_look(&mut far, cx, buffer.unfilled(), |bytes| {
                looked.extend_from_slice(bytes);
                bytes.len()
            })
        });
        if count.await.unwrap() == 0 {
            break;
        }
    }
    assert_eq!((buffer.filled(), &looked[..]), (&b"...hell"[..], &b"hell"[..]));
    let mut rest = [0; 7];
    let mut rest = hyper::rt::ReadBuf::new(&mut rest);
    let mut poll = async || {
        std::future::poll_fn(|cx| dapple::hyper::poll_look(&mut far, cx, rest.unfilled(), <[u8]>::to_vec))
            .await
            .unwrap()
    };
    assert_eq!((poll().await, poll().await), (b"o".to_vec(), b"".to_vec()));
}
