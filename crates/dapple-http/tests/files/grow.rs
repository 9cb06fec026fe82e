//! Files that grow while they are sent, as logs do: the answer has the length that it announced.

use std::fs;
use std::io::Write;

use crate::common::Server;
use crate::site::{Site, begin};
use http_body_util::BodyExt;

/// More than is read at a time, several times over.
const LARGE: usize = 700_000;

fn append(site: &Site, name: &str, text: &str) {
    let mut file = fs::File::options().append(true).open(site.at(name)).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_line_appended_to_a_log_does_not_cut_its_download() {
    const LEN: usize = 20 << 20; // more than sockets and buffers hold
    let site = Site::new(&[("a.log", vec![b'o'; LEN])]);
    let server = Server::start(site.files());
    let mut client = server.connect();
    client.send("GET /a.log HTTP/1.1\r\nhost: localhost\r\n\r\n");
    client.stream.peek(&mut [0]).unwrap(); // the answer has begun, and its end fits into no buffer
    append(&site, "a.log", "one line\n");
    let answer = client.answer();
    assert_eq!((answer.status, answer.body.len()), (200, LEN));
    assert!(answer.body.iter().all(|&byte| byte == b'o'), "the new line is no part of this answer");
    // The connection is as good as before, and a new request gets the line, too, when it is looked for.
    assert_eq!(client.get("/none").status, 404);
    let again = Server::start(site.files()).connect().get("/a.log");
    assert_eq!((again.status, again.body.len()), (200, LEN + 9));
    assert!(again.body.ends_with(b"one line\n"));
}

#[test]
fn a_log_that_is_written_to_all_the_while_is_sent_as_announced() {
    const LEN: usize = 8 << 20;
    let site = Site::new(&[("a.log", vec![b'o'; LEN])]);
    let server = Server::start(site.files());
    let is_done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let grows = std::thread::spawn({
        let (path, is_done) = (site.at("a.log"), is_done.clone());
        move || {
            let mut file = fs::File::options().append(true).open(path).unwrap();
            // Appends that are seen half, and a bound, should the test fail.
            for _ in 0..2_000_000 {
                file.write_all(b"x").unwrap();
                if is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    break;
                }
            }
        }
    });
    let mut client = server.connect();
    for _ in 0..5 {
        let answer = client.get("/a.log");
        assert_eq!(answer.status, 200);
        assert!(answer.body.len() >= LEN && answer.body[..LEN].iter().all(|&byte| byte == b'o'));
    }
    is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    grows.join().unwrap();
}

/// Reads a large file piece by piece; before the second and the third one something happens to it.
async fn sent(changes: [&dyn Fn(&Site); 2]) -> Result<usize, usize> {
    let site = Site::new(&[("a.log", vec![b'o'; LARGE])]);
    let files = site.files().largest_cached(1000);
    let mut body = begin(&files, "GET", "/a.log", &[]).await.into_body();
    let mut changes = changes.into_iter();
    let mut sent = 0;
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(sent) };
        let piece = frame.into_data().unwrap();
        assert!(piece.iter().all(|&byte| byte == b'o'), "bytes of another state");
        sent += piece.len();
        if let Some(change) = changes.next() {
            change(&site);
        }
    }
    Ok(sent)
}

#[dapple::test]
async fn however_often_it_grows_it_is_sent_as_announced() {
    let grow = |site: &Site| append(site, "a.log", "one line\n");
    assert_eq!(sent([&grow, &grow]).await, Ok(LARGE));
}

#[dapple::test]
async fn a_file_that_has_grown_and_is_cut_then_or_written_to_is_cut_off() {
    let grow = |site: &Site| append(site, "a.log", "one line\n");
    let open = |site: &Site| fs::File::options().write(true).open(site.at("a.log")).unwrap();
    // Longer than announced all the while.
    let shrink = |site: &Site| open(site).set_len(LARGE as u64 + 1).unwrap();
    let write = |site: &Site| {
        std::thread::sleep(std::time::Duration::from_millis(20)); // file systems count time in steps of some
        open(site).write_all(&[b'n'; LARGE]).unwrap();
    };
    for change in [&shrink as &dyn Fn(&Site), &write] {
        let sent = sent([&grow, change]).await.unwrap_err();
        assert!(sent < LARGE, "{sent}");
    }
}

#[test]
fn a_small_file_that_grows_all_the_time_is_served() {
    let site = Site::new(&[("a.log", "x".repeat(50_000))]);
    let server = Server::start(site.files().recheck(std::time::Duration::ZERO));
    let grows = std::thread::spawn({
        let path = site.at("a.log");
        move || {
            let mut file = fs::File::options().append(true).open(path).unwrap();
            (0..20_000).for_each(|_| file.write_all(b"x").unwrap());
        }
    });
    let mut client = server.connect();
    while !grows.is_finished() {
        let answer = client.get("/a.log");
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(answer.body.len() >= 50_000 && answer.body.iter().all(|&byte| byte == b'x'));
    }
    grows.join().unwrap();
}
