//! The forms of a file: which one is sent, its charset, and the memory that they take.

use std::time::Duration;

use crate::common::Server;
use crate::site::{Site, ask, get};

#[test]
fn a_compressed_form_that_is_not_smaller_is_not_sent() {
    let site = Site::new(&[
        ("a.txt", "short"),
        ("a.txt.gz", "much longer than it"),
        ("b.txt", "just as long"),
        ("b.txt.br", "JUST AS LONG"),
        ("c.txt", "the original"),
        ("c.txt.gz", "gz"),
        ("c.txt.br", "longer than the original"),
    ]);
    let server = Server::start(site.files());
    let mut client = server.connect();
    for (path, coding, body) in
        [("/a.txt", None, "short"), ("/b.txt", None, "just as long"), ("/c.txt", Some("gzip"), "gz")]
    {
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\naccept-encoding: gzip, br\r\n\r\n");
        let answer = client.send(head).answer();
        assert_eq!((answer.header("content-encoding"), answer.text()), (coding, body), "{path}");
        assert_eq!(answer.header("vary").is_some(), coding.is_some(), "{path}");
    }
}

#[test]
fn nothing_is_said_of_bytes_that_were_not_read() {
    let latin = [b"Stra\xdfe ".repeat(200_000), b"x".repeat(100_000)].concat();
    let utf = "Stra\u{df}e ".repeat(200_000);
    let late = [b"plain ".repeat(200_000), b"\xdf".to_vec()].concat();
    let site = Site::new(&[("latin.txt", &latin[..]), ("utf.txt", utf.as_bytes()), ("late.html", &late)]);
    let server = Server::start(site.files());
    let mut client = server.connect();
    for (path, kind) in
        [("/latin.txt", "text/plain"), ("/utf.txt", "text/plain"), ("/late.html", "text/html")]
    {
        let answer =
            client.send(format!("HEAD {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"));
        assert!(answer.take(15).starts_with(b"HTTP/1.1 200 OK"), "{path}");
        let answer = server.connect().get(path);
        assert_eq!(answer.header("content-type"), Some(kind), "{path}");
        client = server.connect();
    }
}

#[dapple::test]
async fn small_texts_are_read_for_their_charset_even_if_nothing_is_kept() {
    // A character across the end of a piece, and one that is not whole at the end of all.
    let across = format!("{}\u{20ac}{}", "x".repeat((64 << 10) - 1), "\u{20ac}".repeat(50_000));
    let broken = [across.as_bytes(), b"\xe2\x82"].concat();
    let latin = b"Stra\xdfe".to_vec();
    let site = Site::new(&[
        ("across.txt", across.as_bytes()),
        ("broken.txt", &broken),
        ("latin.txt", &latin),
        ("a.html", b"<p>"),
        ("a.bin", b"\xff"),
    ]);
    for files in [site.files(), site.files().cache_size(0)] {
        for (path, kind) in [
            ("/across.txt", "text/plain; charset=utf-8"),
            ("/broken.txt", "text/plain"),
            ("/latin.txt", "text/plain"),
            ("/a.html", "text/html; charset=utf-8"),
            ("/a.bin", "application/octet-stream"),
        ] {
            assert_eq!(get(&files, path).await.header("content-type"), kind, "{path}");
        }
    }
}

#[dapple::test]
async fn open_forms_are_counted_one_by_one() {
    let site =
        Site::new(&[("a.js", vec![b'x'; 5000]), ("a.js.gz", vec![b'x'; 500]), ("a.js.br", vec![b'x'; 400])]);
    let files = site.files().largest_cached(1000).recheck(Duration::MAX);
    for (coding, len) in [("br", 400), ("gzip", 500), ("identity", 5000)] {
        let got = ask(&files, "GET", "/a.js", &[("accept-encoding", coding)]).await;
        assert_eq!(got.body.len(), len, "{coding}");
    }
    let stats = files.stats();
    assert_eq!(
        (stats.opens, stats.loads, stats.cached_bytes),
        (3, 0, 0),
        "a page is in memory as a whole, or not"
    );
}
