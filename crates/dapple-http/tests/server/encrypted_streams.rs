//! Bytes over TLS arrive complete in both directions, however a client reads; and a client that goes away holds nothing.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{PATIENCE, Server};
use crate::identity::{Identity, identity};
use bytes::Bytes;
use dapple_http::{Body, Serve, Tls};
use futures_rustls::pki_types::ServerName;
use futures_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};
use http::{Request, Response};
use http_body_util::Full;
use hyper::service::service_fn;

const SOON: Duration = Duration::from_millis(60);

/// More than all buffers on the way have room for.
const LARGE: usize = 32 << 20;

/// Bytes that begin anew at no multiple of a record.
fn pattern(length: usize) -> Vec<u8> {
    let begin: Vec<u8> = (0..65_537_u32).map(|index| (index ^ (index >> 8)) as u8).collect();
    let mut all = begin.repeat(length.div_ceil(begin.len()));
    all.truncate(length);
    all
}

/// A server that gives back what it is sent, or something large.
struct Secure {
    server: Server,
    client: Arc<ClientConfig>,
}

type Client = StreamOwned<ClientConnection, TcpStream>;

impl Secure {
    fn start() -> Secure {
        Secure::start_with(PATIENCE)
    }

    fn start_with(write_timeout: Duration) -> Secure {
        let Identity { certificate, key, client } = identity();
        let tls = Tls::from_pem(certificate, key).unwrap();
        let large = Bytes::from(pattern(LARGE));
        let service = service_fn(move |request: Request<Body>| {
            let large = large.clone();
            async move {
                let answer = match request.uri().path() {
                    "/large" => large,
                    _ => request.into_body().bytes().await?,
                };
                Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Response::new(Full::new(answer)))
            }
        });
        let server = Server::start_with(service, move |serve: Serve<_, _>| {
            serve.tls(tls).write_timeout(write_timeout)
        });
        Secure { server, client: Arc::new(client) }
    }

    fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(self.client.clone(), name).unwrap(), stream)
    }

    fn ask(&self, request: &str) -> Client {
        let mut client = self.connect();
        client.write_all(request.as_bytes()).unwrap();
        client
    }

    /// Waits until no client is connected.
    fn until_all_have_left(self) {
        while self.server.stats.snapshot().open > 0 {
            std::thread::yield_now();
        }
        assert_eq!(self.server.stop().cut, 0);
    }
}

const GET_LARGE: &str = "GET /large HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";

/// Reads `count` bytes, if there are as many.
fn read(client: &mut Client, count: u64, into: &mut Vec<u8>) -> usize {
    client.take(count).read_to_end(into).unwrap()
}

/// The body of an answer that is the last one. An end that the server did not announce is an error.
fn body_of(client: &mut impl Read) -> Vec<u8> {
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200 OK\r\n"));
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap() + 4;
    answer.split_off(head)
}

#[test]
fn a_large_answer_comes_whole_and_its_end_is_announced() {
    let secure = Secure::start();
    let mut clients = [secure.ask(GET_LARGE), secure.ask(GET_LARGE)];
    for client in &mut clients {
        assert!(body_of(client) == pattern(LARGE));
    }
    secure.until_all_have_left();
}

#[test]
fn a_large_request_comes_whole_and_goes_back() {
    let secure = Secure::start();
    let sent = pattern(12 << 20);
    let head =
        format!("POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", sent.len());
    let mut client = secure.ask(&head);
    client.write_all(&sent).unwrap();
    assert!(body_of(&mut client) == sent);
    secure.until_all_have_left();
}

#[test]
fn a_client_that_reads_in_small_pieces_gets_all() {
    let secure = Secure::start();
    let mut client = secure.ask(GET_LARGE);
    let (mut came, mut piece) = (Vec::new(), [0; 1000]);
    // Now a little, now a lot, so that the server is blocked and gets on by turns.
    for round in 1.. {
        let count = match round % 50 {
            0 => read(&mut client, 3 << 20, &mut came),
            _ => {
                let count = client.read(&mut piece).unwrap();
                came.extend_from_slice(&piece[..count]);
                count
            }
        };
        if count == 0 {
            break;
        }
    }
    assert!(came.ends_with(&pattern(LARGE)));
    secure.until_all_have_left();
}

#[test]
fn a_client_that_reads_and_then_does_not_is_cut() {
    let secure = Secure::start_with(SOON);
    let mut client = secure.ask(GET_LARGE);
    // As long as it reads, the server gives it more at a time.
    read(&mut client, 4 << 20, &mut Vec::new());
    while secure.server.stats.snapshot().timeouts == 0 {
        std::thread::yield_now();
    }
    secure.until_all_have_left();
}

#[test]
fn new_keys_are_agreed_on_in_the_middle_of_an_answer() {
    let secure = Secure::start();
    let mut client = secure.ask(GET_LARGE);
    let mut came = Vec::new();
    for _ in 0..3 {
        read(&mut client, 1 << 20, &mut came);
        client.conn.refresh_traffic_keys().unwrap();
        client.flush().unwrap();
    }
    client.read_to_end(&mut came).unwrap();
    assert!(came.ends_with(&pattern(LARGE)));
    // And between two requests.
    let mut client = secure.ask("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 3\r\n\r\none");
    client.conn.refresh_traffic_keys().unwrap();
    client
        .write_all(b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 3\r\n\r\ntwo")
        .unwrap();
    let both = String::from_utf8(body_of(&mut client)).unwrap();
    assert!(both.starts_with("one") && both.ends_with("two"), "{both}");
    secure.until_all_have_left();
}

#[test]
fn a_client_that_goes_away_without_a_word_is_forgotten() {
    let secure = Secure::start();
    // In the middle of an answer.
    let mut client = secure.ask(GET_LARGE);
    read(&mut client, 1 << 20, &mut Vec::new());
    drop(client);
    // In the middle of a handshake.
    let mut client = secure.connect();
    let mut hello = Vec::new();
    client.conn.write_tls(&mut hello).unwrap();
    client.sock.write_all(&hello[..hello.len() / 2]).unwrap();
    drop(client);
    let mut client = secure.connect();
    client.sock.write_all(&hello).unwrap();
    drop(client);
    secure.until_all_have_left();
}

#[test]
fn a_request_whose_end_was_not_announced_is_not_taken_for_whole() {
    let secure = Secure::start();
    // Chunked, so that only TLS could tell that it is not over.
    let mut client =
        secure.ask("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n");
    client.sock.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    match client.read_to_end(&mut answer) {
        Ok(_) => {}
        Err(error) => assert!(matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)),
    }
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
    secure.until_all_have_left();
}
