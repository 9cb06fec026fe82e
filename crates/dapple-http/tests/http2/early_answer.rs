//! Requests of HTTP/2 that are answered before their body has ended: the client may end it, or break it, all the same.
//!
//! Each client here waits for the whole answer before it goes on. Cases of h2spec are named by their numbers: there the
//! frames are sent without waiting, so that a complete answer came first by chance.

use std::time::Duration;

use axum::Router;
use axum::routing::post;
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::sim::net::{TcpListener, TcpStream};
use dapple::time::{Instant, sleep, timeout};
use dapple_http::serve;

const AT: &str = "10.0.0.1:80";
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const CANCEL: u32 = 8;

/// How a stream ends for its client, after the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// The stream was reset, or the connection closed, with this code.
    Error(u32),
    Nothing,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn reset(code: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, 1, &code.to_be_bytes())
}

/// A header whose name is not in HPACK's table, without an index.
fn header(name: &str, value: &str) -> Vec<u8> {
    let length = |text: &str| u8::try_from(text.len()).unwrap();
    [&[0, length(name)], name.as_bytes(), &[length(value)], value.as_bytes()].concat()
}

/// `POST /` of `http://a`, and its body is to come.
fn post_frame(more: &[u8]) -> Vec<u8> {
    let block = [&[0x83, 0x86, 0x84, 0x41, 1, b'a'], more].concat();
    frame(HEADERS, END_HEADERS, 1, &block)
}

/// A client that has read the whole answer to a request, or none of it.
struct Client(TcpStream);

impl Client {
    async fn connect() -> Client {
        let mut stream = TcpStream::connect(AT).await.unwrap();
        stream.write_all(PREFACE).await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        Client(stream)
    }

    async fn send(&mut self, frames: &[Vec<u8>]) {
        for frame in frames {
            self.0.write_all(frame).await.unwrap();
        }
    }

    /// The next frame: kind, flags, stream and payload. None at the end of the connection.
    async fn next(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        let mut payload = vec![0; number(&head[..3]) as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((head[3], head[4], number(&head[5..]), payload))
    }

    /// Sends the head of a request, and reads the answer to its end.
    async fn answered(&mut self, more: &[u8]) {
        self.send(&[post_frame(more)]).await;
        loop {
            let (kind, flags, stream, _) = self.next().await.unwrap();
            assert_ne!((kind, stream), (RST_STREAM, 1));
            if stream == 1 && flags & END_STREAM != 0 {
                return;
            }
        }
    }

    /// Reads until the stream or the connection ends with an error, or nothing more comes.
    async fn told(&mut self) -> Told {
        let code = |payload: &[u8]| u32::from_be_bytes(payload.try_into().unwrap());
        while let Ok(frame) = timeout(Duration::from_secs(1), self.next()).await {
            match frame.unwrap() {
                (RST_STREAM, _, 1, payload) => return Told::Error(code(&payload)),
                (GO_AWAY, _, 0, payload) => return Told::Error(code(&payload[4..8])),
                _ => {}
            }
        }
        Told::Nothing
    }

    /// Waits for the reset of the stream.
    async fn reset(&mut self) -> u32 {
        loop {
            if let (RST_STREAM, _, 1, payload) = self.next().await.unwrap() {
                return u32::from_be_bytes(payload.try_into().unwrap());
            }
        }
    }
}

/// A server that answers without a look at the body.
async fn start() {
    let listener = TcpListener::bind(AT).await.unwrap();
    let router = Router::new().route("/", post(|| async { "hello" }));
    dapple::spawn(serve(listener, router).max_body_size(4 << 20).into_future()).detach();
}

/// A case: its name, more headers of the request, the frames behind it, and the errors that may follow.
type Case = (&'static str, Vec<u8>, Vec<Vec<u8>>, &'static [u32]);

fn cases() -> [Case; 6] {
    let test = |flags| frame(DATA, flags, 1, b"test");
    let length = header("content-length", "1");
    let again = frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x83, 0x86, 0x84, 0x41, 1, b'a']);
    let trailers = frame(HEADERS, END_HEADERS, 1, &header("x-test", "ok"));
    let method = frame(HEADERS, END_HEADERS, 1, &[0x83]);
    [
        ("5.1/8", vec![], vec![reset(CANCEL), test(END_STREAM)], &[STREAM_CLOSED]),
        // The other error is the connection's: h2 has forgotten the stream, and takes its number for a used one.
        ("5.1/9", vec![], vec![reset(CANCEL), again], &[STREAM_CLOSED, PROTOCOL_ERROR]),
        ("8.1/1", vec![], vec![test(0), trailers], &[PROTOCOL_ERROR]),
        ("8.1.2.1/3", vec![], vec![test(0), method], &[PROTOCOL_ERROR]),
        ("8.1.2.6/1", length.clone(), vec![test(END_STREAM)], &[PROTOCOL_ERROR]),
        ("8.1.2.6/2", length, vec![test(0), test(END_STREAM)], &[PROTOCOL_ERROR]),
    ]
}

#[track_caller]
fn assert_error(told: Told, codes: &[u32], name: &str) {
    assert!(matches!(told, Told::Error(code) if codes.contains(&code)), "{name}: {told:?}");
}

#[dapple::test(sim, seeds = 5)]
async fn errors_after_a_complete_answer_are_told() {
    start().await;
    for (name, more, frames, codes) in cases() {
        let mut client = Client::connect().await;
        client.answered(&more).await;
        // Long enough for everything that is still to be done for the answer.
        sleep(Duration::from_millis(100)).await.unwrap();
        client.send(&frames).await;
        assert_error(client.told().await, codes, name);
    }
}

#[dapple::test(sim, seeds = 20)]
async fn errors_beside_an_answer_are_told() {
    start().await;
    for (name, more, frames, codes) in cases() {
        let mut client = Client::connect().await;
        client.send(&[post_frame(&more)]).await;
        client.send(&frames).await;
        assert_error(client.told().await, codes, name);
    }
}

#[dapple::test(sim, seeds = 5)]
async fn a_window_that_grows_too_large_before_the_answer_is_an_error() {
    let listener = TcpListener::bind(AT).await.unwrap();
    let later = || async {
        sleep(Duration::from_secs(1)).await.unwrap();
        "hello"
    };
    dapple::spawn(serve(listener, Router::new().route("/", post(later))).into_future()).detach();
    let mut client = Client::connect().await;
    // 6.9.1/3. Once the answer is complete, h2 does not look at the window any more ("h2spec" in docs/design/http.md).
    let most = frame(WINDOW_UPDATE, 0, 1, &[0x7f, 0xff, 0xff, 0xff]);
    client.send(&[post_frame(&[]), most]).await;
    assert_error(client.told().await, &[FLOW_CONTROL_ERROR], "6.9.1/3");
}

#[dapple::test(sim, seeds = 5)]
async fn a_body_that_ends_after_the_answer_is_not_reset() {
    start().await;
    let mut client = Client::connect().await;
    client.answered(&[]).await;
    sleep(Duration::from_secs(1)).await.unwrap();
    client.send(&[frame(DATA, 0, 1, b"test"), frame(DATA, END_STREAM, 1, b"test")]).await;
    sleep(Duration::from_secs(3)).await.unwrap();
    assert_eq!(client.told().await, Told::Nothing);
}

#[dapple::test(sim, seeds = 5)]
async fn a_body_that_is_refused_may_end_as_well() {
    start().await;
    let mut client = Client::connect().await;
    // A host unlike the authority is refused before the service.
    client.answered(&header("host", "b")).await;
    client.send(&[frame(DATA, END_STREAM, 1, b"test")]).await;
    sleep(Duration::from_secs(3)).await.unwrap();
    assert_eq!(client.told().await, Told::Nothing);
}

#[dapple::test(sim, seeds = 5)]
async fn a_body_that_does_not_end_is_reset_after_a_moment() {
    start().await;
    let mut client = Client::connect().await;
    client.answered(&[]).await;
    let begun = Instant::now();
    let reset = timeout(Duration::from_secs(30), client.reset()).await;
    assert_eq!(reset.unwrap(), NO_ERROR);
    let took = begun.elapsed();
    assert!(took.abs_diff(Duration::from_secs(2)) < Duration::from_millis(500), "{took:?}");
}

#[dapple::test(sim, seeds = 5)]
async fn a_body_that_is_long_is_reset_before_that() {
    start().await;
    let mut client = Client::connect().await;
    client.answered(&[]).await;
    let begun = Instant::now();
    let piece = frame(DATA, 0, 1, &[b'x'; 1 << 14]);
    // The window of a stream, and one piece more.
    for _ in 0..65 {
        client.send(std::slice::from_ref(&piece)).await;
        sleep(Duration::from_millis(1)).await.unwrap();
    }
    assert_eq!(client.reset().await, NO_ERROR);
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[dapple::test(sim, seeds = 5)]
async fn a_body_that_does_not_end_holds_up_a_shutdown_for_a_moment() {
    let listener = TcpListener::bind(AT).await.unwrap();
    let router = Router::new().route("/", post(|| async { "hello" }));
    let serve = serve(listener, router).shutdown_deadline(Duration::from_secs(30));
    let server = dapple::spawn(serve.into_future());
    let mut client = Client::connect().await;
    client.answered(&[]).await;
    server.cancel();
    let begun = Instant::now();
    assert_eq!(server.await.unwrap().unwrap().cut, 0);
    let took = begun.elapsed();
    assert!(took < Duration::from_millis(2500), "{took:?}");
}
