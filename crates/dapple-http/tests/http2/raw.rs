//! Peers of HTTP/2 that send frames a well-behaved client would not send, mostly in virtual time.

use std::io::{Read, Write};
use std::time::Duration;

use crate::common::Server;
use axum::Router;
use axum::routing::get;
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::sim::net::{TcpListener, TcpStream};
use dapple::time::{Instant, sleep};
use dapple_http::serve;

const AT: &str = "10.0.0.1:80";
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
pub(crate) const SETTINGS: u8 = 4;
const PING: u8 = 6;
pub(crate) const WINDOW_UPDATE: u8 = 8;

/// END_STREAM and END_HEADERS.
const WHOLE: u8 = 0x5;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// `GET path` of `http://a`, by HPACK's static table.
pub(crate) fn get_frame(stream: u32, path: &str) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x44, u8::try_from(path.len()).unwrap()];
    block.extend(path.as_bytes());
    block.extend([0x41, 1, b'a']);
    frame(HEADERS, WHOLE, stream, &block)
}

fn router() -> Router {
    let large = get(|| async { vec![b'x'; 1 << 20] });
    Router::new().route("/", get(|| async { "hello" })).route("/large", large)
}

/// Reads until the server closes.
async fn closed(stream: &mut TcpStream) {
    let mut buffer = [0; 1 << 16];
    while stream.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
}

async fn takes_about(expected: Duration, future: impl Future<Output = ()>) {
    let begun = Instant::now();
    future.await;
    let took = begun.elapsed();
    assert!(took.abs_diff(expected) < Duration::from_millis(1500), "{took:?}, not {expected:?}");
}

#[dapple::test(sim, seeds = 5)]
async fn pings_are_no_progress_for_a_peer_whose_window_is_shut() {
    let listener = TcpListener::bind(AT).await.unwrap();
    let server = serve(listener, router()).write_timeout(Duration::from_secs(5));
    let stats = server.stats();
    let server = dapple::spawn(server.into_future());
    let stream = TcpStream::connect(AT).await.unwrap();
    let (mut reader, mut writer) = stream.into_split();
    writer.write_all(PREFACE).await.unwrap();
    // SETTINGS_INITIAL_WINDOW_SIZE is 0.
    writer.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])).await.unwrap();
    writer.write_all(&get_frame(1, "/large")).await.unwrap();
    let pings = dapple::spawn(async move {
        while writer.write_all(&frame(PING, 0, 0, &[7; 8])).await.is_ok() {
            sleep(Duration::from_millis(100)).await.unwrap();
        }
    });
    takes_about(Duration::from_secs(5), async {
        let mut buffer = [0; 1 << 12];
        while reader.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
    })
    .await;
    assert_eq!(stats.snapshot().timeouts, 1);
    pings.await.unwrap();
    server.cancel();
    server.await.unwrap().unwrap();
}

#[dapple::test(sim, seeds = 5)]
async fn an_idle_peer_that_answers_no_ping_holds_up_a_shutdown_for_a_moment() {
    let listener = TcpListener::bind(AT).await.unwrap();
    let server = serve(listener, router()).shutdown_deadline(Duration::from_secs(30));
    let stats = server.stats();
    let server = dapple::spawn(server.into_future());
    let mut stream = TcpStream::connect(AT).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    stream.write_all(&get_frame(1, "/")).await.unwrap();
    while stats.snapshot().requests < 1 {
        sleep(Duration::from_millis(1)).await.unwrap();
    }
    sleep(Duration::from_secs(1)).await.unwrap();
    server.cancel();
    takes_about(Duration::from_secs(2), async {
        assert_eq!(server.await.unwrap().unwrap().cut, 0);
    })
    .await;
    closed(&mut stream).await;
}

#[dapple::test(sim, seeds = 5)]
async fn a_peer_that_has_sent_no_request_holds_up_a_shutdown_for_a_moment() {
    let listener = TcpListener::bind(AT).await.unwrap();
    let server = serve(listener, router()).shutdown_deadline(Duration::from_secs(20));
    let server = dapple::spawn(server.into_future());
    let mut stream = TcpStream::connect(AT).await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    sleep(Duration::from_secs(1)).await.unwrap();
    server.cancel();
    takes_about(Duration::from_secs(2), async {
        assert_eq!(server.await.unwrap().unwrap().cut, 0);
    })
    .await;
    closed(&mut stream).await;
}

/// The peer leaves the replies to its PINGs unread until the server has no room for more, then reads them all, and so on.
#[dapple::test(sim, seeds = 5)]
async fn pings_whose_replies_are_read_late_do_not_keep_a_connection_without_requests() {
    for first in [Vec::new(), get_frame(1, "/")] {
        let listener = TcpListener::bind(AT).await.unwrap();
        let soon = Duration::from_secs(5);
        let server = serve(listener, router()).header_timeout(soon).idle_timeout(soon).write_timeout(soon);
        let server = dapple::spawn(server.into_future());
        let (mut reader, mut writer) = TcpStream::connect(AT).await.unwrap().into_split();
        writer.write_all(PREFACE).await.unwrap();
        writer.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        writer.write_all(&first).await.unwrap();
        let pings = frame(PING, 0, 0, &[7; 8]).repeat(100);
        let pings = dapple::spawn(async move { while writer.write_all(&pings).await.is_ok() {} });
        // Two seconds more for a peer that has got a GOAWAY.
        takes_about(soon + Duration::from_secs(1), async {
            let mut buffer = vec![0; 1 << 20];
            let mut is_open = true;
            for _ in 0..15 {
                sleep(Duration::from_secs(1)).await.unwrap();
                for _ in 0..20 {
                    is_open = is_open && reader.read(&mut buffer).await.is_ok_and(|count| count > 0);
                }
                if !is_open {
                    break;
                }
            }
        })
        .await;
        drop(reader);
        pings.await.unwrap();
        server.cancel();
        server.await.unwrap().unwrap();
    }
}

/// Sends frames without end from a thread, and returns when the server has cut the connection.
fn flood(server: &Server, first: &[Vec<u8>], again: &[u8]) {
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    stream.set_write_timeout(Some(crate::common::PATIENCE)).unwrap();
    stream.write_all(PREFACE).unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
    first.iter().for_each(|frame| stream.write_all(frame).unwrap());
    let mut reader = stream.try_clone().unwrap();
    let reader =
        std::thread::spawn(move || while reader.read(&mut [0; 1 << 12]).is_ok_and(|count| count > 0) {});
    let many = again.repeat(1000);
    let begun = std::time::Instant::now();
    while stream.write_all(&many).is_ok() {
        assert!(begun.elapsed() < crate::common::PATIENCE, "the flood was not cut");
    }
    reader.join().unwrap();
}

#[test]
fn floods_of_frames_without_streams_are_cut_by_the_time_limits() {
    let soon = Duration::from_millis(200);
    let server = Server::start_with(router(), move |serve| serve.header_timeout(soon).idle_timeout(soon));
    let priority = frame(PRIORITY, 0, 3, &[0, 0, 0, 0, 16]);
    let window = frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 0]);
    let unknown = frame(0xfa, 0, 0, &[]);
    for again in [&priority, &unknown] {
        flood(&server, &[], again);
        flood(&server, &[get_frame(1, "/")], again);
    }
    // An update by zero is an error of the connection.
    flood(&server, &[], &window);
    let mut client = server.connect();
    assert_eq!(client.get("/").text(), "hello");
}
