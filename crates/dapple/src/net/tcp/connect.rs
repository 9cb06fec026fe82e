//! Connecting: the addresses in turn, each with a time limit.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Poll, ready};
use std::time::Duration;

use socket2::{SockAddr, Socket};

use super::socket::{TcpSocket, new_socket};
use super::stream::TcpStream;
use crate::is_cancelled;
use crate::net::lookup::{LookupTarget, resolve};
use crate::source::stream::Stream;
use crate::source::{Direction, Source};
use crate::time::sleep;
use crate::world;

/// Tries all addresses in turn.
pub(super) async fn connect_to_any(target: LookupTarget, each: Duration) -> io::Result<TcpStream> {
    let addrs = resolve(target).await?;
    let mut tried = Vec::new();
    for &addr in addrs.as_slice() {
        let socket = match new_socket(addr) {
            Ok(socket) => socket,
            Err(error) => {
                tried.push((addr, error));
                continue;
            }
        };
        match connect(socket, addr, Some(each)).await {
            Err(error) if !is_cancelled(&error) => tried.push((addr, error)),
            done => return done,
        }
    }
    Err(unreached(tried))
}

/// The error after all addresses were tried.
pub(crate) fn unreached(tried: Vec<(SocketAddr, io::Error)>) -> io::Error {
    let kind = tried.last().map_or(ErrorKind::InvalidInput, |(_, error)| error.kind());
    io::Error::new(kind, Unreached { tried })
}

/// Connects a socket. If it fails, or the future is dropped, the socket is closed.
pub(super) async fn connect(
    socket: Socket,
    addr: SocketAddr,
    limit: Option<Duration>,
) -> io::Result<TcpStream> {
    let (source, address) = (Source::new(socket), SockAddr::from(addr));
    // A second `connect` on the same socket returns the result of the first.
    let mut connecting = source.io(Direction::Write, |socket| match socket.connect(&address) {
        Err(error) => match error.raw_os_error() {
            Some(libc::EINPROGRESS) => match socket.connect(&address) {
                // Over loopback it is often connected by now.
                Err(error) if is_under_way(&error) => Err(ErrorKind::WouldBlock.into()),
                result => result,
            },
            Some(libc::EALREADY) => Err(ErrorKind::WouldBlock.into()),
            Some(libc::EISCONN) => Ok(()),
            // `EAGAIN` would become `WouldBlock`, but it means that no local port is free.
            Some(libc::EAGAIN) => Err(io::Error::new(
                ErrorKind::AddrNotAvailable,
                "no local port is free for it: see /proc/sys/net/ipv4/ip_local_port_range",
            )),
            _ => Err(error),
        },
        Ok(()) => Ok(()),
    });
    let mut timer = None;
    poll_fn(|cx| {
        if let Poll::Ready(result) = Pin::new(&mut connecting).poll(cx) {
            return Poll::Ready(result);
        }
        let Some(limit) = limit else { return Poll::Pending };
        ready!(Pin::new(timer.get_or_insert_with(|| sleep(limit))).poll(cx))?;
        let message = format!("no answer within {limit:?}");
        Poll::Ready(Err(io::Error::new(ErrorKind::TimedOut, message)))
    })
    .await?;
    drop(connecting);
    Ok(TcpStream(Stream::from_source(source.map(std::net::TcpStream::from))))
}

fn is_under_way(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EALREADY))
}

/// None of the addresses could be connected to.
#[derive(Debug)]
struct Unreached {
    tried: Vec<(SocketAddr, io::Error)>,
}

impl fmt::Display for Unreached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("cannot connect")?;
        for (index, (addr, error)) in self.tried.iter().enumerate() {
            write!(f, "{} {addr}: {error}", if index == 0 { " to" } else { "; nor to" })?;
        }
        Ok(())
    }
}

impl Error for Unreached {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.tried.last().map(|(_, error)| error as _)
    }
}

impl TcpSocket {
    /// Connects to an address. The system decides how long it tries (about two minutes).
    ///
    /// # Errors
    ///
    /// If no listener is at the address, or there is no route to it; if the wait was cancelled
    /// ([`is_cancelled`](crate::is_cancelled)); outside of a runtime, if it has to wait.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the socket is closed. *Scope cancelled*: returns the connection if
    /// it was ready, or an error, and then the socket is closed.
    pub async fn connect(self, addr: SocketAddr) -> io::Result<TcpStream> {
        world::outside("TcpSocket::connect")?;
        connect(self.into_socket(), addr, None).await
    }

    /// As [`connect`](Self::connect), with a time limit.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect), and [`TimedOut`](ErrorKind::TimedOut).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the socket is closed. *Scope cancelled*: returns the connection if
    /// it was ready, or an error, and then the socket is closed.
    pub async fn connect_timeout(self, addr: SocketAddr, limit: Duration) -> io::Result<TcpStream> {
        world::outside("TcpSocket::connect_timeout")?;
        connect(self.into_socket(), addr, Some(limit)).await
    }
}
