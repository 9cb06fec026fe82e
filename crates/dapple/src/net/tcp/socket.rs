//! A TCP socket that is neither connected nor listening yet.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use socket2::{Domain, Protocol, SockAddr, Socket, TcpKeepalive, Type};

use super::listener::TcpListener;
use crate::world;

/// Makes a socket, non-blocking and close-on-exec, in one system call.
pub(super) fn new_socket(addr: SocketAddr) -> io::Result<Socket> {
    Socket::new_raw(Domain::for_address(addr), Type::STREAM.nonblocking().cloexec(), Some(Protocol::TCP))
}

/// A TCP socket that is neither connected nor listening yet: for options that must be set before.
///
/// # Examples
///
/// Two listeners at one address, between which the system divides the connections:
///
/// ```
/// use dapple::net::{TcpListener, TcpSocket};
/// use std::net::SocketAddr;
///
/// fn listen(addr: SocketAddr) -> std::io::Result<TcpListener> {
///     let socket = TcpSocket::new_v4()?;
///     socket.set_reuseport(true)?;
///     socket.bind(addr)?;
///     socket.listen(1024)
/// }
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let first = listen(([127, 0, 0, 1], 0).into())?;
///     let second = listen(first.local_addr()?)?;
///     assert_eq!(first.local_addr()?, second.local_addr()?);
///     Ok(())
/// })
/// # }
/// ```
pub struct TcpSocket(Socket);

impl TcpSocket {
    /// Makes a socket for IPv4.
    ///
    /// # Errors
    ///
    /// If no file descriptor is left.
    pub fn new_v4() -> io::Result<TcpSocket> {
        world::outside("TcpSocket::new_v4")?;
        new_socket(([0, 0, 0, 0], 0).into()).map(TcpSocket)
    }

    /// Makes a socket for IPv6. If it is bound to `::` and not [only for IPv6](Self::set_only_v6), it is for IPv4, too.
    ///
    /// # Errors
    ///
    /// If no file descriptor is left, or this machine has no IPv6.
    pub fn new_v6() -> io::Result<TcpSocket> {
        world::outside("TcpSocket::new_v6")?;
        new_socket(([0_u16; 8], 0).into()).map(TcpSocket)
    }

    /// Makes a socket for the kind of address that `addr` is.
    ///
    /// # Errors
    ///
    /// As for [`new_v4`](Self::new_v4) and [`new_v6`](Self::new_v6).
    pub fn new_for(addr: SocketAddr) -> io::Result<TcpSocket> {
        world::outside("TcpSocket::new_for")?;
        new_socket(addr).map(TcpSocket)
    }

    /// Wraps a socket that another library has made and not connected, and puts it in
    /// non-blocking mode.
    ///
    /// # Errors
    ///
    /// If it is not a socket.
    pub fn from_std(socket: impl Into<OwnedFd>) -> io::Result<TcpSocket> {
        world::outside("TcpSocket::from_std")?;
        let socket = Socket::from(socket.into());
        socket.set_nonblocking(true)?;
        Ok(TcpSocket(socket))
    }

    pub(super) fn into_socket(self) -> Socket {
        self.0
    }

    /// Binds the socket to an address of this machine. Port 0 means any free port.
    ///
    /// # Errors
    ///
    /// If the address is in use, is not of this machine, or is not allowed.
    pub fn bind(&self, addr: SocketAddr) -> io::Result<()> {
        self.0.bind(&SockAddr::from(addr))
    }

    /// Listens for connections, of which up to `backlog` wait to be accepted (the system's
    /// limit is in `/proc/sys/net/core/somaxconn`).
    ///
    /// # Errors
    ///
    /// If another socket listens at the address.
    pub fn listen(self, backlog: u32) -> io::Result<TcpListener> {
        world::outside("TcpSocket::listen")?;
        self.0.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
        Ok(TcpListener::from_nonblocking(self.0.into()))
    }

    /// Sets whether it can be bound to an address at which connections of an earlier listener still linger.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_reuseaddr(&self, on: bool) -> io::Result<()> {
        self.0.set_reuse_address(on)
    }

    /// Whether an address can be bound anew (`SO_REUSEADDR`); see [`set_reuseaddr`](Self::set_reuseaddr).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn reuseaddr(&self) -> io::Result<bool> {
        self.0.reuse_address()
    }

    /// Sets whether several sockets with this option can be bound to one address. The system divides connections
    /// between them.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_reuseport(&self, on: bool) -> io::Result<()> {
        self.0.set_reuse_port(on)
    }

    /// Whether several sockets can be bound to one address (`SO_REUSEPORT`); see [`set_reuseport`](Self::set_reuseport).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn reuseport(&self) -> io::Result<bool> {
        self.0.reuse_port()
    }

    /// Sets whether an IPv6 socket is only for IPv6. The system's default is in
    /// `/proc/sys/net/ipv6/bindv6only`.
    ///
    /// # Errors
    ///
    /// If it is a socket for IPv4.
    pub fn set_only_v6(&self, on: bool) -> io::Result<()> {
        self.0.set_only_v6(on)
    }

    /// Whether the socket is only for IPv6 (`IPV6_V6ONLY`); see [`set_only_v6`](Self::set_only_v6).
    ///
    /// # Errors
    ///
    /// If it is a socket for IPv4.
    pub fn only_v6(&self) -> io::Result<bool> {
        self.0.only_v6()
    }

    /// Sets whether bytes are sent at once, rather than delayed for a moment in case more follow.
    /// Accepted connections inherit it from their listener.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.0.set_tcp_nodelay(on)
    }

    /// Whether bytes are sent at once (`TCP_NODELAY`); see [`set_nodelay`](Self::set_nodelay).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.tcp_nodelay()
    }

    /// Sets the idle time after which the peer is probed; `None`: never.
    /// Accepted connections inherit it from their listener.
    ///
    /// # Errors
    ///
    /// If it is too long for the system, or less than a second.
    pub fn set_keepalive(&self, after: Option<Duration>) -> io::Result<()> {
        set_keepalive(socket2::SockRef::from(&self.0), after)
    }

    /// The idle time after which the peer is probed (`SO_KEEPALIVE`); see [`set_keepalive`](Self::set_keepalive).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn keepalive(&self) -> io::Result<Option<Duration>> {
        keepalive(socket2::SockRef::from(&self.0))
    }

    /// Sets what a drop does with bytes that are not sent yet; see
    /// [`TcpStream::set_linger`](super::TcpStream::set_linger).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.0.set_linger(linger)
    }

    /// The time that a drop waits for bytes that are not sent yet (`SO_LINGER`); see [`set_linger`](Self::set_linger).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.0.linger()
    }

    /// Sets the size of the send buffer. Linux doubles
    /// it, and limits it by `/proc/sys/net/core/wmem_max`.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.0.set_send_buffer_size(bytes)
    }

    /// The size of the send buffer, as Linux has set it (`SO_SNDBUF`); see [`set_send_buffer_size`](Self::set_send_buffer_size).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn send_buffer_size(&self) -> io::Result<usize> {
        self.0.send_buffer_size()
    }

    /// Sets the size of the receive buffer. Linux doubles
    /// it, and limits it by `/proc/sys/net/core/rmem_max`.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.0.set_recv_buffer_size(bytes)
    }

    /// The size of the receive buffer, as Linux has set it (`SO_RCVBUF`); see [`set_recv_buffer_size`](Self::set_recv_buffer_size).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn recv_buffer_size(&self) -> io::Result<usize> {
        self.0.recv_buffer_size()
    }

    /// Sends and receives through this network interface only.
    ///
    /// # Errors
    ///
    /// If there is no interface of this name.
    pub fn bind_device(&self, interface: Option<&[u8]>) -> io::Result<()> {
        self.0.bind_device(interface)
    }

    /// The local address.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let addr = self.0.local_addr()?;
        addr.as_socket().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "not an IP socket"))
    }

    /// Takes the pending socket error (`SO_ERROR`), if there is one.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.take_error()
    }
}

pub(super) fn set_keepalive(socket: socket2::SockRef<'_>, after: Option<Duration>) -> io::Result<()> {
    match after {
        Some(after) => socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(after)),
        None => socket.set_keepalive(false),
    }
}

pub(super) fn keepalive(socket: socket2::SockRef<'_>) -> io::Result<Option<Duration>> {
    if socket.keepalive()? { socket.tcp_keepalive_time().map(Some) } else { Ok(None) }
}

impl AsFd for TcpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for TcpSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<TcpSocket> for OwnedFd {
    fn from(socket: TcpSocket) -> OwnedFd {
        socket.0.into()
    }
}

impl fmt::Debug for TcpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpSocket").field(&self.as_raw_fd()).finish()
    }
}
