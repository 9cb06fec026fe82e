//! The list of things to do, asked over real sockets.

use std::io::{Read, Write};

use crate::common::{Program, ask, connect};

const TODO: &str = env!("CARGO_BIN_EXE_todo");

#[test]
fn things_are_made_shown_changed_and_removed() {
    let mut todo = Program::start(TODO, &["127.0.0.1:0"]);
    let address = todo.address();
    let created = ask(address, "POST", "/todos", r#"{"text": "sleep"}"#);
    assert_eq!(created, (201, r#"{"id":1,"text":"sleep","done":false}"#.into()));
    assert_eq!(ask(address, "POST", "/todos", r#"{"text": "eat"}"#).0, 201);
    assert_eq!(ask(address, "POST", "/todos", r#"{"task": "eat"}"#).0, 422);
    let changed = ask(address, "PATCH", "/todos/1", r#"{"done": true}"#);
    assert_eq!(changed, (200, r#"{"id":1,"text":"sleep","done":true}"#.into()));
    assert_eq!(ask(address, "GET", "/todos/1", "").1, r#"{"id":1,"text":"sleep","done":true}"#);
    let open = ask(address, "GET", "/todos?done=false&limit=1", "");
    assert_eq!(open, (200, r#"[{"id":2,"text":"eat","done":false}]"#.into()));
    assert_eq!(ask(address, "GET", "/todos?limit=x", "").0, 400);
    assert_eq!(ask(address, "DELETE", "/todos/1", "").0, 204);
    for method in ["GET", "DELETE"] {
        assert_eq!(ask(address, method, "/todos/1", "").0, 404);
    }
    assert_eq!(ask(address, "GET", "/nowhere", "").0, 404);
}

#[test]
fn a_web_socket_echoes_messages() {
    let mut todo = Program::start(TODO, &["127.0.0.1:0"]);
    let mut stream = connect(todo.address());
    let request = "GET /echo HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                   sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    // A frame of text, with a mask of zeros.
    stream.write_all(b"\x81\x85\0\0\0\0hello").unwrap();
    let mut frame = [0; 7];
    stream.read_exact(&mut frame).unwrap();
    assert_eq!(&frame, b"\x81\x05hello");
}
