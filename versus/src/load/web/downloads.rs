//! Clients who download one big file over TLS, and do not decrypt it.
//!
//! On two cores a client that decrypts would take as much of them as the server that encrypts, and hide what the
//! server can do. So a client shakes hands and asks by rustls, and from then on only takes bytes off the socket until
//! the server hangs up; the kernel does not even copy them (`MSG_TRUNC`). The first download of a load is read as it
//! should be, and checked; of the others the first bytes are.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Stream};

use crate::load::{Load, Poll};
use crate::web::secret::HOST;

/// The clients, each with one download under way.
pub(crate) struct Downloads {
    servers: Vec<SocketAddr>,
    config: Arc<ClientConfig>,
    /// The path of the file, and its length.
    path: String,
    length: usize,
    clients: usize,
}

/// Bytes that are taken at a time.
const BUFFER: usize = 1 << 20;

/// How an answer begins.
const FIRST: &str = "HTTP/1.1 200";

/// A server that is silent for this long has failed.
const PATIENCE: Duration = Duration::from_secs(60);

impl Downloads {
    /// `clients` clients, spread over the servers in turn.
    pub(crate) fn new(
        servers: Vec<SocketAddr>,
        config: Arc<ClientConfig>,
        path: &str,
        length: usize,
        clients: usize,
    ) -> Self {
        Self { servers, config, path: path.to_owned(), length, clients }
    }

    /// Shakes hands and asks.
    fn ask(&self, server: SocketAddr) -> (ClientConnection, TcpStream) {
        let mut stream = TcpStream::connect(server).expect("a server that listens");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        let name = ServerName::try_from(HOST).expect("a name");
        let mut session = ClientConnection::new(self.config.clone(), name).expect("a session");
        let request = format!("GET {} HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n", self.path);
        Stream::new(&mut session, &mut stream).write_all(request.as_bytes()).expect("a handshake");
        (session, stream)
    }

    /// Downloads from each server as one should, and looks at what came.
    pub(crate) fn check(&self, is_right: impl Fn(&[u8]) -> bool) {
        for &server in &self.servers {
            let (mut session, mut stream) = self.ask(server);
            let mut answer = Vec::with_capacity(self.length + 1024);
            // nginx hangs up without the alert that TLS wants: what counts is that all is there.
            let _ = Stream::new(&mut session, &mut stream).read_to_end(&mut answer);
            let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("a head") + 4;
            assert!(answer.starts_with(b"HTTP/1.1 200 "), "a wrong answer");
            assert!(answer.len() - end == self.length && is_right(&answer[end..]), "a wrong file");
        }
    }
}

impl Load for Downloads {
    /// Does `operations` downloads for each client.
    fn run(&mut self, operations: usize) {
        let mut poll = Poll::new(self.clients);
        let mut buffer = vec![0; BUFFER];
        for _ in 0..operations {
            let begin = |number: usize| {
                let (mut session, mut stream) = self.ask(self.servers[number % self.servers.len()]);
                // A refusal would look like a download that was cut.
                let mut first = [0; FIRST.len()];
                Stream::new(&mut session, &mut stream).read_exact(&mut first).expect("an answer");
                assert_eq!(String::from_utf8_lossy(&first), FIRST, "a wrong answer");
                stream.set_nonblocking(true).expect("a socket that does not block");
                poll.add(&stream, number, EventFlags::IN);
                // The bytes that the session has read ahead are a small part of the download.
                drop(session);
                (stream, 0)
            };
            let mut streams: Vec<(TcpStream, usize)> = (0..self.clients).map(begin).collect();
            let mut left = self.clients;
            while left > 0 {
                let numbers: Vec<usize> = poll.wait_for(PATIENCE).collect();
                assert!(!numbers.is_empty(), "the server does not answer");
                for number in numbers {
                    let (stream, come) = &mut streams[number];
                    if take(stream, &mut buffer, come) {
                        assert!(*come >= self.length - BUFFER, "a download was cut");
                        poll.remove(&*stream);
                        left -= 1;
                    }
                }
            }
        }
    }
}

/// Takes what there is; whether that was all.
fn take(stream: &TcpStream, buffer: &mut [u8], come: &mut usize) -> bool {
    match recv(stream, &mut *buffer, RecvFlags::TRUNC) {
        Ok((_, 0)) => true,
        Ok((_, length)) => {
            *come += length;
            false
        }
        Err(Errno::AGAIN | Errno::INTR) => false,
        Err(error) => panic!("a server that stays: {error}"),
    }
}
