//! The service of Node.Scala's Figure 2, asked over real sockets.

use std::io::{Read, Write};

use crate::common::{Program, ask, connect};

const FIBONACCI: &str = env!("CARGO_BIN_EXE_fibonacci");

#[test]
fn what_was_computed_is_kept() {
    let mut program = Program::start(FIBONACCI, &["127.0.0.1:0"]);
    let address = program.address();
    let get = |path: &str| ask(address, "GET", path, "");
    assert_eq!(get("/lookup?n=20").1, "unknown");
    for _ in 0..2 {
        assert_eq!(get("/?n=20"), (200, "result: 6765".into()));
    }
    assert_eq!(get("/lookup?n=20").1, "result: 6765");
    assert_eq!(get("/held?n=10").1, "result: 55");
    assert_eq!(get("/held?n=20").1, "result: 6765");
    assert_eq!(get("/stats").1, "2 known, 2 hits, 2 misses");
    assert_eq!(get("/?n=many").0, 400);
    program.signal("INT");
    let (status, text) = program.end();
    assert!(status.success() && text.contains("8 requests, 0 connections cut"), "{text}");
}

/// More sleep than there are workers, and others are answered before they wake up.
#[test]
fn handlers_that_block_do_not_stop_the_others() {
    let mut program = Program::start(FIBONACCI, &["127.0.0.1:0"]);
    let address = program.address();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut sleepers: Vec<_> = (0..2 * workers)
        .map(|_| {
            let mut stream = connect(address);
            let request = "GET /sleepy?ms=3000 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
            stream.write_all(request.as_bytes()).unwrap();
            stream
        })
        .collect();
    assert_eq!(ask(address, "GET", "/?n=5", "").1, "result: 5");
    for sleeper in &mut sleepers {
        sleeper.set_nonblocking(true).unwrap();
        let read = sleeper.read(&mut [0]);
        assert!(read.is_err_and(|why| why.kind() == std::io::ErrorKind::WouldBlock), "it has not slept");
    }
}
