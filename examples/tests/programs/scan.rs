//! The scanner finds what the test opens.

use std::io::Write;
use std::net::TcpListener;
use std::thread;

use crate::common::{Program, accept, output};

const SCAN: &str = env!("CARGO_BIN_EXE_scan");

/// Each test has an address of its own, so that none meets the scanner of another.
fn listener(ip: &str) -> (TcpListener, u16) {
    let listener = TcpListener::bind((ip, 0)).expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    (listener, port)
}

#[test]
fn an_open_port_is_found_with_what_it_says() {
    let (listener, port) = listener("127.0.0.71");
    let server = thread::spawn(move || {
        let mut stream = accept(&listener);
        stream.write_all(b"220 test\x07 ready\r\nmore").expect("it is sent");
        listener // open until the scan is over
    });
    let ports = port.to_string();
    let (is_ok, text) = output(SCAN, &["--ports", &ports, "--timeout", "30000", "127.0.0.71"]);
    assert!(is_ok && text.contains(&format!("{port:5} open  220 test ready\n")), "{text}");
    assert!(text.ends_with("ports of 127.0.0.71 asked: 1; open: 1"), "{text}");
    drop(server.join());
}

#[test]
fn every_port_of_the_range_is_asked() {
    let (_listener, port) = listener("127.0.0.72"); // it is silent: the system accepts, the program never does
    let (is_ok, text) = output(SCAN, &["--ports", "20000-65535", "--timeout", "100", "127.0.0.72"]);
    assert!(is_ok && text.contains(&format!("{port:5} open")), "{text}");
    assert!(text.contains("ports of 127.0.0.72 asked: 45536; open: "), "{text}");
}

#[test]
fn ctrl_c_ends_it_with_what_was_found() {
    let (listener, port) = listener("127.0.0.73");
    let ports = format!("{}-{}", port - 20, port);
    // One at a time: the scan stays at the open one, which is silent, while others may be in line.
    let mut scan =
        Program::start(SCAN, &["--ports", &ports, "--at-once", "1", "--timeout", "600000", "127.0.0.73"]);
    let _connection = accept(&listener);
    scan.signal("INT");
    let (status, text) = scan.end();
    assert!(status.success(), "{text}");
    assert!(text.contains(&format!("{port:5} open")), "{text}");
    assert!(text.contains(", then stopped; open: 1"), "{text}");
}

#[test]
fn arguments_are_checked() {
    let (is_ok, text) = output(SCAN, &["--help"]);
    assert!(is_ok && text.contains("Usage: scan"), "{text}");
    for (arguments, complaint) in [
        (&["192.0.2.1"][..], "only loopback addresses"),
        (&["--ports", "9-1"], "ports are a number"),
        (&["--at-once", "0"], "never end"),
        (&["a", "b"], "\"b\""),
    ] {
        let (is_ok, text) = output(SCAN, arguments);
        assert!(!is_ok && text.contains(complaint), "{arguments:?}: {text}");
    }
}
