//! Datagrams over IP.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::task::{Context, Poll};

use super::datagram::DatagramSocket;
use super::error::failed;
use super::lookup::{ToAddrs, resolve};
use crate::net::socket_traits::impl_socket;
use crate::source::Direction;
use crate::world;

/// A UDP socket.
///
/// All operations take a shared reference: any number of tasks may send and receive at the same time,
/// for example through an `Arc`. Each datagram goes to one of the receivers.
///
/// Either the socket talks to any address, with [`send_to`](Self::send_to) and
/// [`recv_from`](Self::recv_from). Or it is [connected](Self::connect) to one address, with
/// [`send`](Self::send) and [`recv`](Self::recv), and receives from that address only.
///
/// # Lengths
///
/// A datagram is sent and received as a whole. The part that does not fit into the receiver's buffer
/// is **lost**: the call returns the length of the buffer, and nothing shows that there was more.
/// 65,507 bytes are enough for every datagram. A datagram may be empty, so a length of 0 does
/// not mean an end.
///
/// # Options before binding
///
/// Options that must be set before the socket is bound (`SO_REUSEPORT`, `IPV6_V6ONLY`) can be set with the
/// crate `socket2`; pass its socket to [`from_std`](Self::from_std). Other options can be set at any time, because
/// this type is [`AsFd`](std::os::fd::AsFd).
///
/// # Examples
///
/// ```
/// use dapple::net::UdpSocket;
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let server = UdpSocket::bind("127.0.0.1:0").await?;
///     let client = UdpSocket::bind("127.0.0.1:0").await?;
///     client.connect(server.local_addr()?).await?;
///     client.send(b"ping").await?;
///
///     let mut buffer = [0; 1500];
///     let (n, from) = server.recv_from(&mut buffer).await?;
///     assert_eq!(&buffer[..n], b"ping");
///     server.send_to(b"pong", from).await?;
///
///     let n = client.recv(&mut buffer).await?;
///     assert_eq!(&buffer[..n], b"pong");
///     Ok(())
/// })
/// # }
/// ```
pub struct UdpSocket(DatagramSocket<std::net::UdpSocket>);

/// Creation.
impl UdpSocket {
    /// Makes a socket that is bound to the first of the addresses for which binding works. Port 0 means any
    /// free port; see [`local_addr`](Self::local_addr).
    ///
    /// # Errors
    ///
    /// If the name does not resolve, or none of the addresses can be bound: the error is that of the last
    /// one. If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// It waits only for a name to be resolved. *Dropped early*: **clean**. *Scope cancelled*: returns an
    /// error, and nothing is bound.
    pub async fn bind(addrs: impl ToAddrs) -> io::Result<UdpSocket> {
        world::outside("UdpSocket::bind")?;
        let bind = |addr| {
            std::net::UdpSocket::bind(addr).map_err(|why| failed(format!("cannot bind to {addr}"), why))
        };
        first_that_works(addrs, bind).await.and_then(UdpSocket::from_std)
    }

    /// Wraps a socket that was made elsewhere, and puts it in non-blocking mode (which all its
    /// duplicates share).
    ///
    /// # Errors
    ///
    /// If it cannot be put in non-blocking mode.
    pub fn from_std(socket: std::net::UdpSocket) -> io::Result<UdpSocket> {
        world::outside("UdpSocket::from_std")?;
        socket.set_nonblocking(true)?;
        Ok(UdpSocket(DatagramSocket::new(socket)))
    }

    /// Returns the socket. It stays in non-blocking mode.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn into_std(self) -> io::Result<std::net::UdpSocket> {
        Ok(self.0.into_inner())
    }

    /// Connects the socket to one address: the first of `addrs` for which it works. From then on datagrams from
    /// other addresses are not received; those that came before may be.
    ///
    /// It sends nothing, so it succeeds whether or not a socket is bound to that address.
    ///
    /// # Errors
    ///
    /// If the name does not resolve, or there is no route to any of the addresses. If the wait was
    /// cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// It waits only for a name to be resolved. *Dropped early*: **clean**. *Scope cancelled*: returns an
    /// error, and nothing has changed.
    pub async fn connect(&self, addrs: impl ToAddrs) -> io::Result<()> {
        let socket = self.0.get();
        let connect =
            |addr| socket.connect(addr).map_err(|why| failed(format!("cannot connect to {addr}"), why));
        first_that_works(addrs, connect).await
    }

    /// The address that the socket is bound to.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// The address that the socket is connected to.
    ///
    /// # Errors
    ///
    /// `NotConnected` if it is not.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }
}

/// Operations of connected sockets.
impl UdpSocket {
    /// Sends a datagram to the address that the socket is connected to. Waits while the system has no
    /// room for it, which is rare. Returns the number of bytes sent, which is all of them.
    ///
    /// # Errors
    ///
    /// If the socket is not connected; if the datagram is too long for the network;
    /// `ConnectionRefused` if an *earlier* datagram found no receiver. The socket stays usable after each
    /// of them. If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: nothing was sent. *Scope cancelled*: returns an error, and nothing was
    /// sent.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.io(Direction::Write, |io| io.send(bytes)).await
    }

    /// Receives the next datagram from the address that the socket is connected to, or any if it is not
    /// connected. Returns its length; see [Lengths](Self#lengths).
    ///
    /// # Errors
    ///
    /// `ConnectionRefused` if the socket is connected, and an earlier datagram found no receiver; the socket stays
    /// usable. If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no datagram is lost. *Scope cancelled*: returns an error, and the
    /// datagrams stay; or a datagram, if there was one at the next poll.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.io(Direction::Read, |io| io.recv(buffer)).await
    }

    /// As [`recv`](Self::recv), but the datagram stays and will be received again.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: as for [`recv`](Self::recv).
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.io(Direction::Read, |io| io.peek(buffer)).await
    }

    /// As [`send`](Self::send), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room; otherwise as for [`send`](Self::send).
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get().send(bytes)
    }

    /// As [`recv`](Self::recv), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none; otherwise as for [`recv`](Self::recv).
    pub fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.get().recv(buffer)
    }

    /// As [`peek`](Self::peek), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none; otherwise as for [`recv`](Self::recv).
    pub fn try_peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.get().peek(buffer)
    }

    /// As [`send`](Self::send), for futures written by hand. Of all tasks that poll to send, in any
    /// form, only the last one is woken.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_io(cx, Direction::Write, |io| io.send(bytes))
    }

    /// As [`recv`](Self::recv), for futures written by hand. Of all tasks that poll to receive, in
    /// any form, only the last one is woken.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_io(cx, Direction::Read, |io| io.recv(buffer))
    }

    /// As [`peek`](Self::peek), for futures written by hand; see [`poll_recv`](Self::poll_recv).
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    pub fn poll_peek(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_io(cx, Direction::Read, |io| io.peek(buffer))
    }
}

/// Operations with any address.
impl UdpSocket {
    /// Sends a datagram to an address. Waits while the system has no room for it, which is rare.
    /// Returns the number of bytes sent, which is all of them.
    ///
    /// A name is resolved for every datagram, in the pool for blocking calls, and its first address
    /// is used. To send many datagrams, resolve it once, with [`lookup`](super::lookup()).
    ///
    /// # Errors
    ///
    /// If the name does not resolve; if there is no route to the address (a socket bound to an IPv4 address
    /// has none to an IPv6 one); if the datagram is too long for the network. If the wait was
    /// cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: nothing was sent. *Scope cancelled*: returns an error, and nothing was
    /// sent.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::net::UdpSocket;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// dapple::run(async {
    ///     let server = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let client = UdpSocket::bind("127.0.0.1:0").await?;
    ///     client.send_to(b"ping", server.local_addr()?).await?;
    ///     let mut datagram = [0; 16];
    ///     let (len, from) = server.recv_from(&mut datagram).await?;
    ///     assert_eq!((&datagram[..len], from), (&b"ping"[..], client.local_addr()?));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub async fn send_to(&self, bytes: &[u8], to: impl ToAddrs) -> io::Result<usize> {
        let to = resolve(to.target()).await?.as_slice()[0];
        self.0.io(Direction::Write, |io| io.send_to(bytes, to)).await
    }

    /// Receives the next datagram. Returns its length and its sender's address; see
    /// [Lengths](Self#lengths).
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no datagram is lost. *Scope cancelled*: returns an error, and the
    /// datagrams stay; or a datagram, if there was one at the next poll.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.io(Direction::Read, |io| io.recv_from(buffer)).await
    }

    /// As [`recv_from`](Self::recv_from), but the datagram stays and will be received again.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: as for [`recv`](Self::recv).
    pub async fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.io(Direction::Read, |io| io.peek_from(buffer)).await
    }

    /// Waits for a datagram, and returns its sender's address. The datagram stays and will be received.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: as for [`recv`](Self::recv).
    pub async fn peek_sender(&self) -> io::Result<SocketAddr> {
        self.0.io(Direction::Read, |io| io.peek_from(&mut [])).await.map(|(_, from)| from)
    }

    /// As [`send_to`](Self::send_to), without waiting; so it takes no name.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room; otherwise as for [`send_to`](Self::send_to).
    pub fn try_send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.0.get().send_to(bytes, to)
    }

    /// As [`recv_from`](Self::recv_from), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none; otherwise as for [`recv`](Self::recv).
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.get().recv_from(buffer)
    }

    /// As [`peek_from`](Self::peek_from), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none; otherwise as for [`recv`](Self::recv).
    pub fn try_peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.get().peek_from(buffer)
    }

    /// As [`peek_sender`](Self::peek_sender), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none; otherwise as for [`recv`](Self::recv).
    pub fn try_peek_sender(&self) -> io::Result<SocketAddr> {
        self.0.get().peek_from(&mut []).map(|(_, from)| from)
    }

    /// As [`send_to`](Self::send_to), for futures written by hand; see [`poll_send`](Self::poll_send).
    ///
    /// # Errors
    ///
    /// As for [`send_to`](Self::send_to).
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        to: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.0.poll_io(cx, Direction::Write, |io| io.send_to(bytes, to))
    }

    /// As [`recv_from`](Self::recv_from), for futures written by hand; see
    /// [`poll_recv`](Self::poll_recv).
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.0.poll_io(cx, Direction::Read, |io| io.recv_from(buffer))
    }

    /// As [`peek_from`](Self::peek_from), for futures written by hand; see
    /// [`poll_recv`](Self::poll_recv).
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    pub fn poll_peek_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.0.poll_io(cx, Direction::Read, |io| io.peek_from(buffer))
    }
}

/// Waiting without receiving, and the caller's own system calls.
impl UdpSocket {
    /// Waits until a datagram, or an error, can be received. Another task may receive it first, so
    /// a `try_` form may still return `WouldBlock`.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.ready(Direction::Read).await
    }

    /// Waits until there is room to send; otherwise as [`readable`](Self::readable).
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready.
    pub async fn writable(&self) -> io::Result<()> {
        self.0.ready(Direction::Write).await
    }

    /// As [`readable`](Self::readable), for futures written by hand; see [`poll_recv`](Self::poll_recv).
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    pub fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(cx, Direction::Read)
    }

    /// As [`writable`](Self::writable), for futures written by hand; see [`poll_send`](Self::poll_send).
    ///
    /// # Errors
    ///
    /// As for [`writable`](Self::writable).
    pub fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(cx, Direction::Write)
    }

    /// Calls `operation` until it returns anything but `WouldBlock` (or `Interrupted`). Before each call but the first
    /// it waits for datagrams. For `recvmsg`, `recvmmsg` and the like.
    ///
    /// # Errors
    ///
    /// Those of `operation`, and as for [`readable`](Self::readable).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: every effect of `operation` was in a result. *Scope cancelled*:
    /// returns the result of `operation`, or an error if it has done nothing.
    pub async fn read_with<R>(
        &self,
        operation: impl FnMut(&std::net::UdpSocket) -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.io(Direction::Read, operation).await
    }

    /// As [`read_with`](Self::read_with), for an operation that sends.
    ///
    /// # Errors
    ///
    /// Those of `operation`, and as for [`writable`](Self::writable).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: every effect of `operation` was in a result. *Scope cancelled*:
    /// returns the result of `operation`, or an error if it has done nothing.
    pub async fn write_with<R>(
        &self,
        operation: impl FnMut(&std::net::UdpSocket) -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.io(Direction::Write, operation).await
    }
}

/// Options.
impl UdpSocket {
    /// Takes the pending socket error (`SO_ERROR`), if there is one.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.get().take_error()
    }

    /// Whether datagrams may be sent to broadcast addresses.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.0.get().broadcast()
    }

    /// Sets [`broadcast`](Self::broadcast), which is off at first.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_broadcast(&self, on: bool) -> io::Result<()> {
        self.0.get().set_broadcast(on)
    }

    /// The most routers that a datagram may pass.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get().ttl()
    }

    /// Sets [`ttl`](Self::ttl).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.get().set_ttl(ttl)
    }

    /// Joins a multicast group: receives its datagrams, on the interface that has this address (`0.0.0.0`: any).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn join_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.0.get().join_multicast_v4(&group, &interface)
    }

    /// Leaves a multicast group that was joined by [`join_multicast_v4`](Self::join_multicast_v4).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn leave_multicast_v4(&self, group: Ipv4Addr, interface: Ipv4Addr) -> io::Result<()> {
        self.0.get().leave_multicast_v4(&group, &interface)
    }

    /// Joins a multicast group: receives its datagrams, on the interface of this index (0: any).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.get().join_multicast_v6(group, interface)
    }

    /// Leaves a multicast group that was joined by [`join_multicast_v6`](Self::join_multicast_v6).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.get().leave_multicast_v6(group, interface)
    }

    /// Whether multicast datagrams that this socket sends come back to this machine.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.0.get().multicast_loop_v4()
    }

    /// Sets [`multicast_loop_v4`](Self::multicast_loop_v4), which is on at first.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_multicast_loop_v4(&self, on: bool) -> io::Result<()> {
        self.0.get().set_multicast_loop_v4(on)
    }

    /// Time to live of multicast datagrams: the largest number of routers that they may pass.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.0.get().multicast_ttl_v4()
    }

    /// Sets [`multicast_ttl_v4`](Self::multicast_ttl_v4), which is 1 at first.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.0.get().set_multicast_ttl_v4(ttl)
    }

    /// Whether multicast datagrams that this socket sends come back to this machine.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.0.get().multicast_loop_v6()
    }

    /// Sets [`multicast_loop_v6`](Self::multicast_loop_v6), which is on at first.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_multicast_loop_v6(&self, on: bool) -> io::Result<()> {
        self.0.get().set_multicast_loop_v6(on)
    }

    /// The type of service of IPv4 datagrams.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn tos(&self) -> io::Result<u8> {
        Ok(rustix::net::sockopt::ip_tos(self.0.get())?)
    }

    /// Sets [`tos`](Self::tos).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_tos(&self, tos: u8) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_ip_tos(self.0.get(), tos)?)
    }
}

/// The result for the first address that works, or the error of the last.
async fn first_that_works<R>(
    addrs: impl ToAddrs,
    mut operation: impl FnMut(SocketAddr) -> io::Result<R>,
) -> io::Result<R> {
    let addrs = resolve(addrs.target()).await?;
    let (last, others) = addrs.as_slice().split_last().expect("`resolve` returns at least one address");
    for addr in others {
        if let Ok(result) = operation(*addr) {
            return Ok(result);
        }
    }
    operation(*last)
}

impl_socket!(UdpSocket of std::net::UdpSocket, 0);
