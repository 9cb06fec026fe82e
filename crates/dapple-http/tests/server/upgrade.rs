//! Connections that become something else, and listeners that are not TCP.
#![cfg(feature = "ws")]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;

use crate::common::{Client, Server};
use axum::Router;
use axum::extract::State;
use axum::response::Response;
use axum::routing::any;
use dapple::channel::watch;
use dapple::io::{AsyncReadExt, AsyncWriteExt};
use dapple::net::UnixListener;
use dapple::sim;
use dapple::time::{Duration, sleep, timeout};
use dapple_http::ws::{Error, Message, WebSocket, WebSocketUpgrade};

async fn echo(upgrade: WebSocketUpgrade) -> Response {
    upgrade.protocols(["parrot", "echo"]).on_upgrade(async |mut socket: WebSocket| {
        while let Some(Ok(message)) = socket.recv().await {
            if socket.send(message).await.is_err() {
                break;
            }
        }
    })
}

fn router() -> Router {
    Router::new().route("/echo", any(echo))
}

const HANDSHAKE: &str = "GET /echo HTTP/1.1\r\nhost: a\r\nconnection: keep-alive, Upgrade\r\nupgrade: websocket\r\n\
                         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
                         sec-websocket-protocol: other, echo\r\n\r\n";

/// A frame as a client sends it, with a mask.
fn frame(kind: u8, text: &[u8]) -> Vec<u8> {
    let mask = [1, 2, 3, 4];
    let masked = text.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    [&[0x80 | kind, 0x80 | u8::try_from(text.len()).unwrap()][..], &mask, &masked.collect::<Vec<_>>()]
        .concat()
}

fn greet(server: &Server) -> Client {
    let mut client = server.connect();
    let answer = client.send(HANDSHAKE).answer();
    assert_eq!(answer.status, 101);
    // From RFC 6455.
    assert_eq!(answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(answer.header("sec-websocket-protocol"), Some("echo"));
    client
}

#[test]
fn a_web_socket_says_back_what_it_is_told() {
    let server = Server::start(router());
    let mut client = greet(&server);
    client.send(frame(1, b"hello"));
    assert_eq!(client.take(7), b"\x81\x05hello");
    client.send(frame(9, b"?"));
    // It is answered by itself, and then said back.
    let mut both = client.take(6);
    both.sort_unstable();
    let mut expected = *b"\x8a\x01?\x89\x01?";
    expected.sort_unstable();
    assert_eq!(both, expected);
    client.send(frame(8, &[3, 232]));
    assert_eq!(client.take(4), b"\x88\x02\x03\xe8");
    client.ends();
    assert_eq!(server.stop().cut, 0);
}

#[test]
fn a_web_socket_is_asked_for_properly() {
    let server = Server::start(router());
    for (from, to, status) in [
        ("GET", "POST", 405),
        ("upgrade: websocket", "x: y", 426),
        ("connection: keep-alive, Upgrade", "connection: keep-alive", 426),
        ("sec-websocket-version: 13", "sec-websocket-version: 12", 426),
        ("sec-websocket-key", "x", 400),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZQ", 400),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25j", 400),
        ("dGhlIHNhbXBsZSBub25jZQ==", "dGhlIHNhbXBsZSBub25jZ?==", 400),
    ] {
        let mut client = server.connect();
        assert_eq!(client.send(HANDSHAKE.replace(from, to)).answer().status, status, "{to}");
    }
}

#[test]
fn a_web_socket_is_cut_at_the_deadline() {
    let server =
        Server::start_with(router(), |serve| serve.shutdown_deadline(std::time::Duration::from_millis(20)));
    let mut client = greet(&server);
    client.send(frame(1, b"hello"));
    assert_eq!(client.take(7), b"\x81\x05hello");
    assert_eq!(server.stats.snapshot().open, 1);
    let served = server.stop();
    assert_eq!((served.requests, served.cut), (1, 1));
    client.ends();
}

/// Sends each message back, and gives each `recv` a millisecond, by a race and by a time limit in turn.
async fn impatient(upgrade: WebSocketUpgrade) -> Response {
    upgrade.protocols(["echo"]).on_upgrade(async |mut socket: WebSocket| {
        for turn in 0.. {
            let limit = Duration::from_millis(1);
            let received = if turn % 2 == 0 {
                let late = async {
                    let _ = sleep(limit).await;
                    Some(Err(Error::Io(dapple::Cancelled.into())))
                };
                dapple::race((socket.recv(), late)).await
            } else {
                let received = timeout(limit, socket.recv()).await;
                received.unwrap_or_else(|late| late.into_inner().expect("`recv` knows of cancelling"))
            };
            match received {
                Some(Ok(Message::Close(_))) | None => return,
                Some(Ok(message)) => socket.send(message).await.unwrap(),
                Some(Err(Error::Io(error))) => assert!(dapple::is_cancelled(&error), "{error}"),
                Some(Err(error)) => panic!("{error}"),
            }
        }
    })
}

async fn greet_simulated() -> sim::net::TcpStream {
    let mut client = sim::net::TcpStream::connect("10.0.0.1:80").await.unwrap();
    client.write_all(HANDSHAKE.as_bytes()).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).await.unwrap();
        head.extend(byte);
    }
    client
}

#[test]
fn a_cancelled_recv_loses_no_message_and_does_not_end_the_web_socket() {
    sim::explore(0..50, || async {
        let listener = sim::net::TcpListener::bind("10.0.0.1:80").await.unwrap();
        let (stop, stopped) = dapple::channel::oneshot::channel::<()>();
        let router = Router::new().route("/echo", any(impatient));
        let server = dapple::spawn(dapple_http::serve(listener, router).shutdown_on(stopped).into_future());
        let mut client = greet_simulated().await;
        for number in 0..5 {
            let message = frame(1, format!("hello{number}").as_bytes());
            let (first, second) = message.split_at(4);
            client.write_all(first).await.unwrap();
            sleep(Duration::from_millis(3)).await.unwrap();
            client.write_all(second).await.unwrap();
            let mut answer = [0; 8];
            client.read_exact(&mut answer).await.unwrap();
            assert_eq!(&answer[2..], format!("hello{number}").as_bytes());
        }
        client.write_all(&frame(8, &[3, 232])).await.unwrap();
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"\x88\x02\x03\xe8");
        drop(stop);
        assert_eq!(server.await.unwrap().unwrap().cut, 0);
    });
}

/// As in the documentation of `ws`: hears of the end, and says goodbye.
async fn attentive(upgrade: WebSocketUpgrade, State(mut closing): State<watch::Receiver<bool>>) -> Response {
    upgrade.protocols(["echo"]).on_upgrade(async move |mut socket: WebSocket| {
        let talk = async { while let Some(Ok(_)) = socket.recv().await {} };
        let closed = async { closing.wait_for(|closing| *closing).await.map_or((), drop) };
        dapple::race((talk, closed)).await;
        let _ = socket.send(Message::Close(None)).await;
    })
}

#[test]
fn a_web_socket_that_hears_of_the_end_is_not_waited_for_until_the_deadline() {
    sim::explore(0..20, || async {
        let listener = sim::net::TcpListener::bind("10.0.0.1:80").await.unwrap();
        let (close, closing) = watch::channel(false);
        let router = Router::new().route("/echo", any(attentive)).with_state(closing);
        let ending = async move {
            let _ = sleep(Duration::from_secs(5)).await;
            let _ = close.send(true);
        };
        let server = dapple::spawn(dapple_http::serve(listener, router).shutdown_on(ending).into_future());
        let mut client = greet_simulated().await;
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"\x88\x00");
        assert_eq!(server.await.unwrap().unwrap().cut, 0);
    });
}

#[test]
fn a_unix_socket_is_listened_to() {
    let folder = std::env::temp_dir().join(format!("dapple-http-unix-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("socket");
    let at = path.clone();
    dapple::run(async {
        let listener = UnixListener::bind(&path).unwrap();
        let (stop, stopped) = dapple::channel::oneshot::channel::<()>();
        let router = Router::new().route("/", any(|| async { "hello" }));
        let server = dapple::spawn(dapple_http::serve(listener, router).shutdown_on(stopped).into_future());
        let answer = dapple::blocking(move || {
            let mut stream = UnixStream::connect(at).unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        let answer = answer.await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.ends_with("hello"), "{answer}");
        drop(stop);
        assert_eq!(server.await.unwrap().unwrap().requests, 1);
    });
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn several_listeners_are_served_at_once() {
    dapple::run(async {
        let mut listeners = Vec::new();
        for _ in 0..3 {
            listeners.push(dapple::net::TcpListener::bind("127.0.0.1:0").await.unwrap());
        }
        let addresses: Vec<_> = listeners.iter().map(|listener| listener.local_addr().unwrap()).collect();
        let (stop, stopped) = dapple::channel::oneshot::channel::<()>();
        let router = Router::new().route("/", any(|| async { "hello" }));
        let server = dapple::spawn(dapple_http::serve(listeners, router).shutdown_on(stopped).into_future());
        let asked = dapple::blocking(move || {
            for address in addresses.iter().cycle().take(6) {
                assert_eq!(Client::connect(*address).get("/").text(), "hello");
            }
        });
        asked.await.unwrap();
        drop(stop);
        assert_eq!(server.await.unwrap().unwrap().connections, 6);
    });
}
