//! The stock-quote server and its clients, as two programs.

use std::net::SocketAddr;

use crate::common::{Program, Talker, output};

const QUOTES: &str = env!("CARGO_BIN_EXE_quotes");

fn serve(options: &[&str]) -> (Program, SocketAddr) {
    let mut server = Program::start(QUOTES, &[&["serve", "127.0.0.1:0"], options].concat());
    let address = server.address();
    (server, address)
}

/// The last line that has this in it.
fn last<'a>(text: &'a str, part: &str) -> &'a str {
    text.lines()
        .rev()
        .find_map(|line| line.find(part).map(|at| &line[at..]))
        .unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn every_client_gets_all_that_was_sent_and_a_last_line() {
    for options in [&["--every", "20"][..], &["--every", "20", "--tasks"]] {
        let (mut server, address) = serve(options);
        let mut watch = Program::start(QUOTES, &["watch", "50", &address.to_string()]);
        server.expect("50 clients, ");
        watch.expect("50 clients, ");
        server.signal("INT");
        let (status, sent) = server.end();
        assert!(status.success(), "{sent}");
        let (status, received) = watch.end();
        assert!(status.success(), "{received}");
        let sent = last(&sent, "messages: ");
        assert!(sent.ends_with("; clients that got the last line: 50"), "{sent}");
        assert_eq!(last(&received, "messages: "), sent);
    }
}

#[test]
fn slow_and_departed_readers_hold_up_no_other() {
    let (mut server, address) = serve(&["--every", "10"]);
    let mut one = Talker::new(address);
    assert!(one.hear().starts_with("DAPL "));
    let mut other = Talker::new(address);
    assert!(other.hear().starts_with("DAPL "));
    server.expect("2 clients, ");
    drop(one);
    server.expect("1 clients, "); // it is noticed when a message cannot be sent
    server.signal("INT");
    // `other` has read nothing for a while: all of it has been kept for it.
    let lines: Vec<String> =
        std::iter::from_fn(|| Some(other.hear()).filter(|line| !line.is_empty())).collect();
    let (last_line, quotes) = lines.split_last().expect("a last line");
    assert_eq!(last_line, "the market is closed");
    assert!(quotes.iter().all(|line| line.starts_with("DAPL ")), "{lines:?}");
    let (status, text) = server.end();
    assert!(status.success() && text.ends_with("clients that got the last line: 1"), "{text}");
}

#[test]
fn ctrl_c_ends_the_clients_too() {
    let (mut server, address) = serve(&["--every", "20"]);
    let mut watch = Program::start(QUOTES, &["watch", "5", &address.to_string()]);
    watch.expect("5 clients, ");
    watch.signal("INT");
    let (status, text) = watch.end();
    assert!(status.success() && text.ends_with("clients that got the last line: 0"), "{text}");
    server.signal("INT");
    assert!(server.end().0.success());
}

#[test]
fn the_file_limit_bounds_the_clients() {
    let (mut server, address) = serve(&["--every", "20"]);
    let script = format!("ulimit -n 40; exec {QUOTES} watch 1000 {address}");
    let mut watch = Program::start("sh", &["-c", &script]);
    let line = watch.expect("40 files may be open: room for ");
    let room = line.split_whitespace().rev().nth(1).expect("a number").parse::<u32>().expect("a number");
    assert!((1..40).contains(&room), "{line}");
    watch.expect(&format!("{room} clients connect"));
    watch.expect(&format!("{room} clients, "));
    server.signal("INT");
    let (status, text) = watch.end();
    assert!(status.success(), "{text}");
    assert!(text.ends_with(&format!("clients that got the last line: {room}")), "{text}");
    assert!(server.end().0.success());
}

#[test]
fn a_server_with_few_files_lets_the_others_wait() {
    let mut server =
        Program::start("sh", &["-c", &format!("ulimit -n 40; exec {QUOTES} serve --every 20 127.0.0.1:0")]);
    let line = server.expect("40 files may be open: room for ");
    let room = line.split_whitespace().rev().nth(1).expect("a number").parse::<usize>().expect("a number");
    let address = server.address();
    let mut clients: Vec<Talker> = (0..=room).map(|_| Talker::new(address)).collect();
    for client in &mut clients[..room] {
        assert!(client.hear().starts_with("DAPL "));
    }
    drop(clients.remove(0)); // one goes, and the one that waited comes in
    assert!(clients[room - 1].hear().starts_with("DAPL "));
    server.signal("INT");
    let (status, text) = server.end();
    assert!(status.success(), "{text}");
    assert!(text.ends_with(&format!("clients that got the last line: {room}")), "{text}");
}

#[test]
fn arguments_are_checked() {
    let (is_ok, text) = output(QUOTES, &["--help"]);
    assert!(is_ok && text.contains("Usage: quotes"), "{text}");
    for (arguments, complaint) in [
        (&[][..], "serve, or watch how many?"),
        (&["watch", "many"], "invalid digit"),
        (&["serve", "--every", "0"], "\"0\""),
        (&["watch", "1", "127.0.0.1:1"], "refused"),
    ] {
        let (is_ok, text) = output(QUOTES, arguments);
        assert!(!is_ok && text.contains(complaint), "{arguments:?}: {text}");
    }
}
