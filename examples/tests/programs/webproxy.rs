//! The web proxy in both styles, in front of a server of the standard library: the answers are the same.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::thread;

use crate::common::{Program, connect, output};

const PROXY: &str = env!("CARGO_BIN_EXE_webproxy");
const STYLES: [&str; 2] = ["callbacks", "tasks"];
/// More than fits into the buffers on the way.
const BIG: usize = 8 << 20;

/// A server that answers by the path of the request, and then closes.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("a connection");
            thread::spawn(move || answer(stream));
        }
    });
    address
}

fn answer(stream: TcpStream) {
    let mut reader = BufReader::new(stream.try_clone().expect("a clone"));
    let mut head = Vec::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).expect("a line");
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
        match line.trim_end() {
            "" => break,
            line => head.push(line.to_owned()),
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the body");
    let file = head[0].split(' ').nth(1).expect("a file");
    let content = match file {
        "/big" => vec![b'b'; BIG],
        "/echo" => body,
        "/nothing" => return,
        _ => format!("{head:?}").into_bytes(),
    };
    let mut stream = stream;
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", content.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&content));
    let _ = stream.shutdown(Shutdown::Write);
}

/// All that comes back.
fn ask(proxy: SocketAddr, request: &[u8]) -> Vec<u8> {
    let mut client = connect(proxy);
    client.write_all(request).expect("it is sent");
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).expect("all within the limit");
    answer
}

/// The answers of both styles to the same requests.
fn answers(requests: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let [first, second] = STYLES.map(|style| {
        let mut program = Program::start(PROXY, &["--style", style, "127.0.0.1:0"]);
        let proxy = program.address();
        let answers: Vec<_> = thread::scope(|scope| {
            let asked: Vec<_> =
                requests.iter().map(|request| scope.spawn(move || ask(proxy, request))).collect();
            asked.into_iter().map(|thread| thread.join().expect("an answer")).collect()
        });
        program.signal("INT");
        let (status, text) = program.end();
        assert!(status.success(), "{style}: {text}");
        answers
    });
    for (i, (first, second)) in first.iter().zip(&second).enumerate() {
        let request = String::from_utf8_lossy(&requests[i]);
        assert!(first == second, "{request}: {} and {}", show(first), show(second));
    }
    first
}

fn show(answer: &[u8]) -> String {
    String::from_utf8_lossy(&answer[..answer.len().min(300)]).into_owned()
}

fn get(server: impl std::fmt::Display, file: &str) -> Vec<u8> {
    format!(
        "GET http://{server}{file} HTTP/1.1\r\nHost: {server}\r\nAccept: */*\r\nProxy-Connection: x\r\n\r\n"
    )
    .into_bytes()
}

#[test]
fn both_styles_give_the_same_answers() {
    let server = origin();
    let closed = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
    let body = "body ".repeat(50_000);
    let post = format!("POST http://{server}/echo HTTP/1.1\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let mut requests = vec![
        get(server, "/file?x=1"),
        get(server, ""),
        get(server, "/big"),
        get(server, "/nothing"),
        get(closed, "/"),
        post.into_bytes(),
        b"GET /no-proxy HTTP/1.1\r\n\r\n".to_vec(),
        b"CONNECT localhost:443 HTTP/1.1\r\n\r\n".to_vec(),
    ];
    requests.extend((0..40).map(|i| get(server, &format!("/{i}"))));
    let answers: Vec<String> = answers(&requests).iter().map(|answer| show(answer)).collect();
    let [file, root, big, nothing, unreachable, echo, bad, tunnel, many @ ..] = &answers[..] else {
        unreachable!()
    };
    let got = |file: &str| {
        format!("GET {file} HTTP/1.1\", \"Host: {server}\", \"Connection: close\", \"Accept: */*\"]")
    };
    assert!(file.contains(&got("/file?x=1")), "{file}");
    assert!(root.contains(&got("/")), "{root}");
    assert!(big.contains(&format!("Content-Length: {BIG}\r\n")), "{big}");
    assert_eq!(nothing, "");
    assert!(unreachable.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{unreachable}");
    assert!(echo.contains("\r\n\r\nbody body "), "{echo}");
    assert!(bad.starts_with("HTTP/1.1 400 "), "{bad}");
    assert!(tunnel.starts_with("HTTP/1.1 501 "), "{tunnel}");
    for (i, one) in many.iter().enumerate() {
        assert!(one.contains(&got(&format!("/{i}"))), "{one}");
    }
}

#[test]
fn all_of_a_long_answer_comes_to_a_slow_client() {
    let server = origin();
    for style in STYLES {
        let mut program = Program::start(PROXY, &["--style", style, "127.0.0.1:0"]);
        let mut client = connect(program.address());
        // In pieces, so that it is complete only with the last.
        for piece in get(server, "/big").chunks(7) {
            client.write_all(piece).expect("it is sent");
        }
        let (mut answer, mut buffer) = (Vec::<u8>::new(), [0; 1000]);
        loop {
            match client.read(&mut buffer).expect("more within the limit") {
                0 => break,
                n => answer.extend(&buffer[..n]),
            }
            thread::yield_now();
        }
        let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head");
        let body = &answer[head + 4..];
        assert!(body.len() == BIG && body.iter().all(|&byte| byte == b'b'), "{style}: {} bytes", body.len());
    }
}

#[test]
fn a_departed_client_affects_no_other() {
    let server = origin();
    for style in STYLES {
        let mut program = Program::start(PROXY, &["--style", style, "127.0.0.1:0"]);
        let proxy = program.address();
        for request in [&b""[..], b"GET http", &get(server, "/big")] {
            let mut client = connect(proxy);
            client.write_all(request).expect("it is sent");
            drop(client);
        }
        assert!(show(&ask(proxy, &get(server, "/after"))).contains("GET /after"));
        program.signal("INT");
        let (status, text) = program.end();
        assert!(status.success(), "{style}: {text}");
    }
}

#[test]
fn arguments_are_checked() {
    let (is_ok, text) = output(PROXY, &["--help"]);
    assert!(is_ok && text.contains("Usage: webproxy"), "{text}");
    for (arguments, complaint) in [
        (&[][..], "an address"),
        (&["--style", "threads", "127.0.0.1:0"], "no style \"threads\""),
        (&["127.0.0.1:0", "more"], "more"),
    ] {
        let (is_ok, text) = output(PROXY, arguments);
        assert!(!is_ok && text.contains(complaint), "{text}");
    }
}
