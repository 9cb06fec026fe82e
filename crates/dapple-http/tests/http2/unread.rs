//! Streams that a client opens and does not read: how much of their bodies the server takes into memory.

use std::io::{Read, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use dapple::io::AsyncWriteExt;
use dapple::sim::net::{TcpListener, TcpStream};
use http_body::Frame;

use crate::common::{PATIENCE, Server};
use crate::raw::{PREFACE, SETTINGS, WINDOW_UPDATE, frame, get_frame};

const STREAMS: usize = 100;
const LEN: usize = 300_000;

/// Bytes and first pieces that hyper has taken from all bodies.
#[derive(Default)]
struct Taken {
    bytes: AtomicUsize,
    bodies: AtomicUsize,
}

struct CountedBody {
    body: Body,
    has_begun: bool,
    taken: Arc<Taken>,
}

impl http_body::Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.taken.bytes.fetch_add(frame.data_ref().map_or(0, Bytes::len), SeqCst);
            let is_first = !std::mem::replace(&mut self.has_begun, true);
            self.taken.bodies.fetch_add(usize::from(is_first), SeqCst);
        }
        polled
    }
}

/// Reads one frame: its kind and its payload's length.
fn read_frame(stream: &mut std::net::TcpStream) -> (u8, usize) {
    let mut head = [0; 9];
    stream.read_exact(&mut head).unwrap();
    let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
    stream.read_exact(&mut vec![0; len]).unwrap();
    (head[3], len)
}

#[test]
fn unread_streams_hold_a_bounded_part_of_their_files_and_arrive_whole_once_read() {
    let folder = std::env::temp_dir().join(format!("dapple-http2-unread-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.bin"), vec![b'x'; LEN]).unwrap();
    let taken = Arc::new(Taken::default());
    let count = {
        let taken = taken.clone();
        move |response: Response| {
            let taken = taken.clone();
            async move { response.map(|body| Body::new(CountedBody { body, has_begun: false, taken })) }
        }
    };
    let files = dapple_http::files(&folder).unwrap().largest_cached(1000);
    let server = Server::start(Router::new().fallback_service(files).layer(map_response(count)));

    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(PREFACE).unwrap();
    // SETTINGS_INITIAL_WINDOW_SIZE is 16: each stream may send a few bytes, and hyper asks its body for a piece.
    stream.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 16])).unwrap();
    for number in 0..STREAMS {
        stream.write_all(&get_frame(2 * number as u32 + 1, "/a.bin")).unwrap();
    }
    let begun = std::time::Instant::now();
    while taken.bodies.load(SeqCst) < STREAMS {
        assert!(begun.elapsed() < PATIENCE, "{} bodies were begun", taken.bodies.load(SeqCst));
        std::thread::sleep(Duration::from_millis(1));
    }
    // Twice 4 KiB for each stream, half a MiB for all, and whole pieces for the first four: QUEUE-BOUNDED. Without a bound
    // it is 12.5 MiB.
    let held = taken.bytes.load(SeqCst);
    assert!(held <= 2 << 20, "{held} bytes were taken from the bodies of unread streams");

    // All windows are opened: every byte arrives.
    stream.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0x3f, 0xff, 0xff, 0xff])).unwrap();
    stream.write_all(&frame(WINDOW_UPDATE, 0, 0, &[0x3f, 0xff, 0xff, 0xff])).unwrap();
    let mut received = 0;
    while received < STREAMS * LEN {
        if let (0, len) = read_frame(&mut stream) {
            received += len;
        }
    }
    assert_eq!((received, taken.bytes.load(SeqCst)), (STREAMS * LEN, STREAMS * LEN));
    drop(stream);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A body without an end, of which a piece of 4 KiB is always ready.
struct EndlessBody(Arc<AtomicUsize>);

impl http_body::Body for EndlessBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let piece = Bytes::from_static(&[b'x'; 4 << 10]);
        self.0.fetch_add(piece.len(), SeqCst);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}

/// The client opens all windows and reads nothing from its socket, so only the server bounds its own memory.
#[dapple::test(sim, seeds = 3)]
async fn a_client_with_open_windows_that_reads_nothing_is_sent_a_bounded_part_of_each_stream() {
    let taken = Arc::new(AtomicUsize::new(0));
    let body = {
        let taken = taken.clone();
        move || {
            let body = Body::new(EndlessBody(taken.clone()));
            async move { body }
        }
    };
    let listener = TcpListener::bind("10.0.0.1:80").await.unwrap();
    let server = dapple_http::serve(listener, Router::new().route("/", get(body)));
    let server = dapple::spawn(server.into_future());
    let mut stream = TcpStream::connect("10.0.0.1:80").await.unwrap();
    stream.write_all(PREFACE).await.unwrap();
    stream.write_all(&frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff])).await.unwrap();
    stream.write_all(&frame(WINDOW_UPDATE, 0, 0, &[0x3f, 0xff, 0xff, 0xff])).await.unwrap();
    for number in 0..STREAMS {
        stream.write_all(&get_frame(2 * number as u32 + 1, "/")).await.unwrap();
    }
    dapple::time::sleep(Duration::from_secs(5)).await.unwrap();
    let held = taken.load(SeqCst);
    assert!(held > STREAMS * (4 << 10), "only {held} bytes were taken: not all streams have begun");
    // 64 KiB and two pieces for each stream, and a MiB for the simulated socket. With the bound of h2 it is 40 MiB.
    assert!(held <= STREAMS * (72 << 10) + (1 << 20), "{held} bytes were taken from unread streams");
    drop(stream);
    server.abort();
}
