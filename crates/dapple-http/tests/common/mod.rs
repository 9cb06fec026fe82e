//! Shared by the tests of this crate: a server on a real socket, and a client that sends given bytes, one at a time if a
//! test wants that.
#![allow(dead_code, unreachable_pub, reason = "each test program uses a part of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use dapple::channel::oneshot;
use dapple::net::TcpListener;
use dapple_http::{Handler, IntoHandler, Serve, Served, StatsReader, serve};

/// Long enough for an answer that must come, however busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A server in a runtime and a thread of its own.
pub struct Server {
    pub address: SocketAddr,
    pub stats: StatsReader,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<std::io::Result<Served>>>,
}

impl Server {
    pub fn start<S, M>(service: S) -> Server
    where
        S: IntoHandler<M> + Send + 'static,
        S::Handler: Handler,
    {
        Server::start_with(service, |serve| serve)
    }

    pub fn start_with<S, M>(
        service: S,
        configure: impl FnOnce(Serve<TcpListener, S::Handler>) -> Serve<TcpListener, S::Handler> + Send + 'static,
    ) -> Server
    where
        S: IntoHandler<M> + Send + 'static,
        S::Handler: Handler,
    {
        let (stop, stopped) = oneshot::channel();
        let (tell, told) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = dapple::Runtime::builder().workers(2).build()?;
            runtime.block_on(async {
                let listener = TcpListener::bind("127.0.0.1:0").await?;
                let address = listener.local_addr()?;
                let serve = configure(serve(listener, service).shutdown_on(stopped));
                tell.send((address, serve.stats())).unwrap();
                serve.await
            })
        });
        let (address, stats) = told.recv_timeout(PATIENCE).unwrap();
        Server { address, stats, stop: Some(stop), thread: Some(thread) }
    }

    pub fn connect(&self) -> Client {
        Client::connect(self.address)
    }

    /// Tells it to end, without waiting.
    pub fn ask_to_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Ends it, and waits for that.
    pub fn stop(mut self) -> Served {
        self.ask_to_stop();
        self.thread.take().unwrap().join().unwrap().unwrap()
    }
}

/// A client on a plain socket.
pub struct Client {
    pub stream: TcpStream,
    unread: Vec<u8>,
}

/// An answer, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

impl Client {
    pub fn connect(address: SocketAddr) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, unread: Vec::new() }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Client {
        self.stream.write_all(bytes.as_ref()).unwrap();
        self
    }

    /// Reads one answer with a content length, or chunked, or until the end.
    pub fn answer(&mut self) -> Answer {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|window| window == b"\r\n\r\n") {
                break at + 4;
            }
            assert!(self.fill(), "the connection ended: {:?}", String::from_utf8_lossy(&self.unread));
        };
        let head = String::from_utf8(self.unread.drain(..end).collect()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer { status, head, body: Vec::new() };
        if answer.status == 100 || answer.status == 101 {
            return answer;
        }
        if let Some(length) = answer.header("content-length") {
            let length: usize = length.parse().unwrap();
            answer.body = self.take(length);
        } else if answer.header("transfer-encoding").is_some() {
            loop {
                let size = usize::from_str_radix(self.line().trim(), 16).unwrap();
                answer.body.extend(self.take(size));
                assert_eq!(self.line(), "\r\n");
                if size == 0 {
                    break;
                }
            }
        }
        answer
    }

    fn line(&mut self) -> String {
        let end = loop {
            if let Some(at) = self.unread.iter().position(|byte| *byte == b'\n') {
                break at + 1;
            }
            assert!(self.fill(), "the connection ended in a line");
        };
        String::from_utf8(self.unread.drain(..end).collect()).unwrap()
    }

    pub fn take(&mut self, length: usize) -> Vec<u8> {
        while self.unread.len() < length {
            assert!(self.fill(), "the connection ended in a body");
        }
        self.unread.drain(..length).collect()
    }

    /// Reads on; not so if the connection has ended.
    fn fill(&mut self) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(count) => {
                self.unread.extend(&buffer[..count]);
                count > 0
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("{error}"),
        }
    }

    /// Asserts that nothing more comes, and that the connection ends.
    pub fn ends(&mut self) {
        assert!(!self.fill(), "more came: {:?}", String::from_utf8_lossy(&self.unread));
    }

    /// Whether nothing comes for a moment.
    pub fn is_quiet(&self) -> bool {
        self.stream.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
        let peeked = self.stream.peek(&mut [0]);
        self.stream.set_read_timeout(Some(PATIENCE)).unwrap();
        peeked.is_err_and(|why| {
            matches!(why.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
        })
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.send(format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")).answer()
    }
}

/// Gives hyper's traits to a stream of futures-io, for clients in tests.
pub struct Hyper<S>(pub S);

impl<S: futures_lite::AsyncRead + Unpin> hyper::rt::Read for Hyper<S> {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        mut cursor: hyper::rt::ReadBufCursor<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        let mut buffer = vec![0; cursor.remaining().min(16 * 1024)];
        let count = std::task::ready!(std::pin::Pin::new(&mut self.0).poll_read(cx, &mut buffer))?;
        cursor.put_slice(&buffer[..count]);
        std::task::Poll::Ready(Ok(()))
    }
}

impl<S: futures_lite::AsyncWrite + Unpin> hyper::rt::Write for Hyper<S> {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::pin::Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_close(cx)
    }
}
