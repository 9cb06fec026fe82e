//! Every head is looked at, also one that comes right behind a body, wherever the reads are cut.
//!
//! The whole server in a simulation, where all cuts can be tried; and once over a real socket, in one write.

use crate::common::Server;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::any;
use bytes::Bytes;
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::sim::net::{TcpListener, TcpStream};
use dapple::time::sleep;
use dapple_http::serve;
use http::Request;
use std::time::Duration;

const AT: &str = "10.0.0.1:80";

/// A request with both a length and chunks, and a second request behind it. The server must start neither: two parsers may
/// disagree on where the body of the first one ends.
const SMUGGLER: &str = "POST /smuggled HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n\
                        0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";

/// A request with a line that ends with LF alone: some parsers take it as the end of the line, and others do not.
const LINE_FEED: &str = "GET /smuggled HTTP/1.1\r\nhost: a\nx: y\r\n\r\n";

/// A service that takes the connection over and echoes all bytes that follow.
async fn parrot(mut request: Request<axum::body::Body>) -> StatusCode {
    let upgraded = dapple_http::upgrade(&mut request);
    let parrot = dapple::Color::current().spawn(async move {
        let mut stream = upgraded.await?;
        let mut told = Vec::new();
        stream.read_to_end(&mut told).await?;
        stream.write_all(&told).await?;
        stream.close().await
    });
    parrot.detach();
    StatusCode::SWITCHING_PROTOCOLS
}

fn router() -> Router {
    Router::new()
        .route("/read", any(|body: Bytes| async move { format!("read {}", body.len()) }))
        .route("/unread", any(|| async { "unread" }))
        .route("/smuggled", any(|| async { "smuggled" }))
        .route("/parrot", any(parrot))
}

/// The answer to a client that sends `bytes` in two parts, with a pause between them.
async fn ask(bytes: &[u8], split: usize, is_ending: bool) -> String {
    let mut client = TcpStream::connect(AT).await.unwrap();
    let (first, second) = bytes.split_at(split);
    client.write_all(first).await.unwrap();
    sleep(Duration::from_millis(50)).await.unwrap();
    // It may have been closed by then.
    let _ = client.write_all(second).await;
    if is_ending {
        let _ = client.close().await;
    }
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer).await;
    String::from_utf8(answer).unwrap()
}

fn statuses(answer: &str) -> Vec<u16> {
    // Texts say the name of the protocol as well.
    answer.split("HTTP/1.1 ").skip(1).filter_map(|answer| answer[..3].parse().ok()).collect()
}

#[dapple::test(sim, seeds = 1)]
async fn a_head_behind_a_body_is_seen_wherever_it_is_cut() {
    let server = dapple::spawn(serve(TcpListener::bind(AT).await.unwrap(), router()).into_future());
    let length = "POST /read HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello";
    let chunks = "POST /read HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
                  3;x=y;z\r\nhel\r\n002\r\n\r\n\r\n0;q\r\na: b\r\nc: d\r\n\r\n";
    let asked = "POST /read HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\nhello";
    let upgrade = "GET /read HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n";
    let bodies = [
        (length.to_owned(), vec![200]),
        (format!("{length}\r\n"), vec![200]),
        (chunks.to_owned(), vec![200]),
        (asked.to_owned(), vec![100, 200]),
        (upgrade.to_owned(), vec![200]),
        (format!("{chunks}{length}"), vec![200, 200]),
    ];
    for (before, mut expected) in bodies {
        expected.push(400);
        for last in [SMUGGLER, LINE_FEED] {
            let bytes = format!("{before}{last}").into_bytes();
            for split in 0..bytes.len() {
                let answer = ask(&bytes, split, false).await;
                assert_eq!(statuses(&answer), expected, "{before:?} at {split}: {answer}");
                assert!(!answer.contains("smuggled"), "{before:?} at {split}: {answer}");
            }
        }
        // And what is good is served.
        let bytes =
            format!("{before}GET /read HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").into_bytes();
        *expected.last_mut().unwrap() = 200;
        for split in 0..bytes.len() {
            let answer = ask(&bytes, split, false).await;
            assert_eq!(statuses(&answer), expected, "{before:?} at {split}: {answer}");
        }
    }
    server.cancel();
    server.await.unwrap().unwrap();
}

#[dapple::test(sim, seeds = 1)]
async fn nothing_is_smuggled_behind_an_unread_body() {
    let server = dapple::spawn(serve(TcpListener::bind(AT).await.unwrap(), router()).into_future());
    for body in
        ["content-length: 5\r\n\r\nhello", "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"]
    {
        let bytes = format!("POST /unread HTTP/1.1\r\nhost: a\r\n{body}{SMUGGLER}").into_bytes();
        for split in 0..bytes.len() {
            let answer = ask(&bytes, split, false).await;
            // Where the body had not come, or is more than hyper passes over at once, the connection is closed.
            let statuses = statuses(&answer);
            assert!(statuses == [200] || statuses == [200, 400], "{body:?} at {split}: {answer}");
            assert!(!answer.contains("smuggled"), "{answer}");
        }
    }
    server.cancel();
    server.await.unwrap().unwrap();
}

#[dapple::test(sim, seeds = 1)]
async fn what_comes_after_an_upgrade_is_not_looked_at() {
    let server = dapple::spawn(serve(TcpListener::bind(AT).await.unwrap(), router()).into_future());
    let head = "POST /read HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi\
                GET /parrot HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: parrot\r\n\r\n";
    let bytes = format!("{head}{SMUGGLER}").into_bytes();
    for split in 0..bytes.len() {
        let answer = ask(&bytes, split, true).await;
        // A client that closes its side before it was answered is gone.
        if split < head.len() && statuses(&answer).last() != Some(&101) {
            continue;
        }
        assert!(answer.ends_with(SMUGGLER), "{split}: {answer}");
    }
    server.cancel();
    server.await.unwrap().unwrap();
}

#[dapple::test(sim, seeds = 1)]
async fn trailers_that_others_would_end_earlier_are_refused() {
    let server = dapple::spawn(serve(TcpListener::bind(AT).await.unwrap(), router()).into_future());
    let bytes = b"POST /read HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
                  5\r\nhello\r\n0\r\na: b\n\nGET /smuggled HTTP/1.1\r\nhost: a\r\n\r\n";
    for split in 0..bytes.len() {
        let answer = ask(bytes, split, false).await;
        assert_eq!(statuses(&answer), [400], "{split}: {answer}");
    }
    server.cancel();
    server.await.unwrap().unwrap();
}

#[dapple::test(sim, seeds = 1)]
async fn however_a_request_is_garbled_it_is_clear_where_the_next_begins() {
    let server = dapple::spawn(serve(TcpListener::bind(AT).await.unwrap(), router()).into_future());
    let whole = b"POST /read HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n\
                  3;x=y\r\nhel\r\n1a\r\nabcdefghijklmnopqrstuvwxyz\r\n0\r\na: b\r\n\r\n\
                  PUT /read HTTP/1.1\r\nhost: a\r\ncontent-length: 12\r\n\r\nhello, world\
                  GET /read HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let mut good = 0;
    for at in 0..whole.len() {
        for byte in *b"\r\n0;" {
            let mut changed = whole.to_vec();
            let mut inserted = whole.to_vec();
            changed[at] = byte;
            inserted.insert(at, byte);
            for bytes in [changed, inserted] {
                let split = (at * 7 + usize::from(byte)) % bytes.len();
                let answer = ask(&bytes, split, false).await;
                // hyper and the look at the heads have always read the same.
                assert!(!answer.contains("not clear"), "{}: {answer}", String::from_utf8_lossy(&bytes));
                good += usize::from(statuses(&answer) == [200, 200, 200]);
            }
        }
    }
    assert!(good > 100, "{good}");
    server.cancel();
    server.await.unwrap().unwrap();
}

#[test]
fn a_smuggler_in_one_breath_with_a_body_is_refused() {
    let server = Server::start(router());
    let bodies = [
        "content-length: 5\r\n\r\nhello".to_owned(),
        "transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nx: y\r\n\r\n".to_owned(),
        // More than is read at once.
        format!("content-length: 300000\r\n\r\n{}", "x".repeat(300_000)),
        format!("transfer-encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n", 300_000, "x".repeat(300_000)),
    ];
    for body in bodies {
        let mut client = server.connect();
        client.send(format!("POST /read HTTP/1.1\r\nhost: a\r\n{body}{SMUGGLER}"));
        assert_eq!(client.answer().status, 200);
        assert_eq!(client.answer().status, 400);
        client.ends();
    }
    assert_eq!(server.stats.snapshot().bad, 4);
}
