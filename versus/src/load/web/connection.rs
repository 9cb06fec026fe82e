//! One connection of a load to an HTTP server: it never waits, not even for being connected.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rustix::net::sockopt::{set_socket_linger, set_tcp_nodelay};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};

use super::answer::{Answer, Reader};

/// A connection, with at most one request under way.
pub(crate) struct Connection {
    pub(crate) stream: TcpStream,
    reader: Reader,
    /// Bytes that could not be sent yet, because the connection is not established.
    unsent: Vec<u8>,
}

/// The result of reading.
pub(crate) enum Received {
    /// The answer is not whole.
    Part,
    Whole(Answer),
    /// The server has hung up.
    End,
}

impl Connection {
    /// Begins to connect. When it goes, it goes at once, and leaves no port in TIME_WAIT.
    pub(crate) fn begin(server: SocketAddr) -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
        set_tcp_nodelay(&socket, true)?;
        set_socket_linger(&socket, Some(Duration::ZERO))?;
        match connect(&socket, &server) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self { stream: socket.into(), reader: Reader::default(), unsent: Vec::new() })
    }

    /// Sends a request, or keeps it until it can be sent.
    pub(crate) fn send(&mut self, request: &[u8]) -> io::Result<()> {
        match self.stream.write(request) {
            Ok(length) if length == request.len() => Ok(()),
            Ok(length) => {
                self.unsent.extend_from_slice(&request[length..]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                self.unsent.extend_from_slice(request);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Whether something is kept.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends what was kept, now that there is room for it.
    pub(crate) fn send_rest(&mut self) -> io::Result<()> {
        let rest = std::mem::take(&mut self.unsent);
        self.send(&rest)
    }

    /// Reads once.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> io::Result<Received> {
        match self.stream.read(buffer) {
            Ok(0) => Ok(Received::End),
            Ok(length) => match self.reader.take(&buffer[..length]) {
                Ok(Some(answer)) => Ok(Received::Whole(answer)),
                Ok(None) => Ok(Received::Part),
                Err(error) => panic!("{error}"),
            },
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(Received::Part),
            Err(error) => Err(error),
        }
    }
}
