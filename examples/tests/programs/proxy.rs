//! The proxy in front of an echo server of the standard library.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};
use std::thread;

use crate::common::{Program, connect, output};

const PROXY: &str = env!("CARGO_BIN_EXE_proxy");

/// Sends all input back, and `the end` when the other side has ended.
fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            thread::spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(len @ 1..) = stream.read(&mut buffer) {
                    stream.write_all(&buffer[..len]).expect("the client reads");
                }
                let _ = stream.write_all(b"the end");
            });
        }
    });
    address
}

/// An address without a listener.
fn closed_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port")
}

#[test]
fn half_closed_connections_are_carried_to_their_end() {
    let server = echo_server().to_string();
    let mut proxy = Program::start(PROXY, &["127.0.0.1:0", &server]);
    let mut client = connect(proxy.address());
    let sent = vec![7; 300_000];
    let mut writer = client.try_clone().expect("a clone");
    let writing = thread::spawn(move || {
        writer.write_all(&vec![7; 300_000]).expect("it is sent");
        writer.shutdown(Shutdown::Write).expect("the half is closed");
    });
    let mut received = Vec::new();
    client.read_to_end(&mut received).expect("all within the limit");
    writing.join().expect("it was sent");
    assert!(received == [&sent[..], b"the end"].concat(), "{} bytes", received.len());
    proxy.expect("bytes there: 300000, back: 300007, ended");
    proxy.signal("INT");
    let (status, text) = proxy.end();
    assert!(status.success(), "{text}");
    assert!(text.contains("connections: 1, not served: 0"), "{text}");
    assert!(text.contains("bytes there: 300000, back: 300007, undelivered: 0"), "{text}");
}

#[test]
fn servers_that_are_gone_are_passed_over() {
    let (gone, server) = (closed_port().to_string(), echo_server().to_string());
    let mut proxy = Program::start(PROXY, &["localhost:0", &gone, &server]);
    let address = proxy.address();
    for _ in 0..4 {
        let mut client = connect(address);
        client.write_all(b"hello").expect("it is sent");
        client.shutdown(Shutdown::Write).expect("the half is closed");
        let mut received = String::new();
        client.read_to_string(&mut received).expect("an answer within the limit");
        assert_eq!(received, "hellothe end");
    }
    proxy.expect(&gone);
    proxy.signal("INT");
    let (_, text) = proxy.end();
    assert!(text.contains("connections: 4, not served: 0"), "{text}");
    assert!(text.contains("bytes there: 20, back: 48, undelivered: 0"), "{text}");
}

#[test]
fn connections_that_do_not_end_are_cancelled_and_counted() {
    let server = echo_server().to_string();
    let mut proxy = Program::start(PROXY, &["--grace", "10", "--max", "1", "127.0.0.1:0", &server]);
    let address = proxy.address();
    let mut client = connect(address);
    client.write_all(b"hello").expect("it is sent");
    let mut answer = [0; 5];
    client.read_exact(&mut answer).expect("an answer within the limit");
    let _waits = connect(address); // there is no permit for it
    proxy.signal("INT");
    let (status, text) = proxy.end();
    assert!(status.success(), "{text}");
    assert!(text.contains("connections: 1, not served: 0"), "{text}");
    assert!(text.contains("bytes there: 5, back: 5, undelivered: 0"), "{text}");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).expect("the end within the limit");
    assert!(rest.is_empty());
}

#[test]
fn without_a_server_the_client_sees_the_end() {
    let gone = closed_port().to_string();
    let mut proxy = Program::start(PROXY, &["127.0.0.1:0", &gone]);
    let mut client = connect(proxy.address());
    assert_eq!(client.read(&mut [0; 8]).expect("the end within the limit"), 0);
    proxy.signal("INT");
    let (_, text) = proxy.end();
    assert!(text.contains("connections: 1, not served: 1"), "{text}");
}

#[test]
fn arguments_are_checked() {
    let (is_ok, text) = output(PROXY, &["--help"]);
    assert!(is_ok && text.contains("Usage: proxy"), "{text}");
    for (arguments, complaint) in [
        (&["127.0.0.1:0"][..], "a server"),
        (&["--max", "many", "127.0.0.1:0", "localhost:1"], "many"),
        (&["--wrong"], "--wrong"),
        (&["127.0.0.1", "localhost:1"], "has no port"),
    ] {
        let (is_ok, text) = output(PROXY, arguments);
        assert!(!is_ok && text.contains(complaint), "{arguments:?}: {text}");
    }
}
