//! Datagrams between processes of one machine.

use std::io::{self, ErrorKind};
use std::net::Shutdown;
use std::os::unix::net::{self as std_net, SocketAddr};
use std::path::Path;
use std::task::{Context, Poll};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::attempt::Pauses;
use crate::net::datagram::DatagramSocket;
use crate::net::error::failed;
use crate::net::socket_traits::impl_socket;
use crate::prim::{AtomicBool, Ordering};
use crate::source::Direction;
use crate::world;

/// A Unix socket for datagrams.
///
/// All operations take a shared reference: any number of tasks may send and receive at the same time,
/// for example through an `Arc`. Each datagram goes to one of the receivers.
///
/// Datagrams between sockets of one machine are neither lost nor reordered. If the receiver is
/// slow, senders wait.
///
/// # Lengths
///
/// The part of a datagram that does not fit into the receiver's buffer is **lost**, and nothing shows that
/// there was more. A datagram may be empty, so a length of 0 does not mean an end.
///
/// # Names
///
/// A path that a socket is bound to stays in the file system when the socket is gone, and cannot be
/// bound again until it is removed. An abstract name
/// ([`bind_addr`](Self::bind_addr)) ends with its socket.
///
/// # Examples
///
/// ```
/// use dapple::net::UnixDatagram;
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let (near, far) = UnixDatagram::pair()?;
///     near.send(b"hello").await?;
///     let mut buffer = [0; 64];
///     let n = far.recv(&mut buffer).await?;
///     assert_eq!(&buffer[..n], b"hello");
///     Ok(())
/// })
/// # }
/// ```
pub struct UnixDatagram {
    shared: DatagramSocket<std_net::UnixDatagram>,
    /// Whether reading was shut down. The kernel does not report it for a non-blocking socket.
    at_end: AtomicBool,
}

/// Creation.
impl UnixDatagram {
    /// Makes a socket with a path, where others can send to it.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if the path exists, also if it is left over from an earlier socket; those of creating a file.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixDatagram> {
        world::outside("UnixDatagram::bind")?;
        let path = path.as_ref();
        let bound = std_net::UnixDatagram::bind(path);
        let bound = bound.map_err(|why| failed(format!("cannot bind to {}", path.display()), why))?;
        UnixDatagram::from_std(bound)
    }

    /// Makes a socket with an address, which may be an abstract name:
    ///
    /// ```
    /// use std::os::linux::net::SocketAddrExt;
    /// use std::os::unix::net::SocketAddr;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let name = format!("dapple-doc-{}", std::process::id());
    /// let addr = SocketAddr::from_abstract_name(name)?;
    /// let socket = dapple::net::UnixDatagram::bind_addr(&addr)?;
    /// # drop(socket);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `AddrInUse` if it is in use; those of creating a file.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixDatagram> {
        world::outside("UnixDatagram::bind_addr")?;
        let bound = std_net::UnixDatagram::bind_addr(addr);
        UnixDatagram::from_std(bound.map_err(|why| failed(format!("cannot bind to {addr:?}"), why))?)
    }

    /// Makes a socket without a name. A receiver of its datagrams cannot answer.
    ///
    /// # Errors
    ///
    /// If file descriptors have run out.
    pub fn unbound() -> io::Result<UnixDatagram> {
        world::outside("UnixDatagram::unbound")?;
        std_net::UnixDatagram::unbound().and_then(UnixDatagram::from_std)
    }

    /// Makes two sockets that are connected to each other, without names.
    ///
    /// # Errors
    ///
    /// If file descriptors have run out.
    pub fn pair() -> io::Result<(UnixDatagram, UnixDatagram)> {
        world::outside("UnixDatagram::pair")?;
        let (near, far) = std_net::UnixDatagram::pair()?;
        Ok((UnixDatagram::from_std(near)?, UnixDatagram::from_std(far)?))
    }

    /// Wraps a socket that was made elsewhere, and puts it in non-blocking mode (which all its
    /// duplicates share).
    ///
    /// # Errors
    ///
    /// If it cannot be put in non-blocking mode.
    pub fn from_std(socket: std_net::UnixDatagram) -> io::Result<UnixDatagram> {
        world::outside("UnixDatagram::from_std")?;
        socket.set_nonblocking(true)?;
        Ok(UnixDatagram { shared: DatagramSocket::new(socket), at_end: AtomicBool::new(false) })
    }

    /// Returns the socket. It stays in non-blocking mode.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn into_std(self) -> io::Result<std_net::UnixDatagram> {
        Ok(self.shared.into_inner())
    }

    /// Connects the socket to the one at a path: it then sends to that socket, and receives from it alone.
    ///
    /// # Errors
    ///
    /// If there is no socket, or it is connected to another.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.shared.get().connect(path)
    }

    /// As [`connect`](Self::connect), to an address, which may be an abstract name.
    ///
    /// # Errors
    ///
    /// If there is no socket, or it is connected to another.
    pub fn connect_addr(&self, addr: &SocketAddr) -> io::Result<()> {
        self.shared.get().connect_addr(addr)
    }

    /// The address of this socket, if it has one.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.shared.get().local_addr()
    }

    /// The address of the socket that this one is connected to.
    ///
    /// # Errors
    ///
    /// `NotConnected` if it is not.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.shared.get().peer_addr()
    }

    /// Takes the pending socket error (`SO_ERROR`), if there is one.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.shared.get().take_error()
    }

    /// Shuts down one direction of a connected socket, or both. Receivers then get the datagrams that have
    /// come before, and after those 0 bytes.
    ///
    /// # Errors
    ///
    /// `NotConnected` if it is not.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let ends = matches!(how, Shutdown::Read | Shutdown::Both);
        // Stored first, because waiters read it when they are woken.
        let before = ends.then(|| self.at_end.swap(true, Ordering::Release));
        let result = self.shared.get().shutdown(how);
        if result.is_err() && before == Some(false) {
            self.at_end.store(false, Ordering::Release);
        }
        result
    }
}

/// Operations of connected sockets.
impl UnixDatagram {
    /// Sends a datagram to the socket that this one is connected to. Waits while the receiver has no room for it.
    /// Returns the number of bytes sent, which is all of them.
    ///
    /// # Errors
    ///
    /// If the socket is not connected; if the peer is gone; if the datagram is too long. If the
    /// wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: nothing was sent. *Scope cancelled*: returns an error, and nothing was
    /// sent.
    pub async fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.shared.io(Direction::Write, |io| io.send(bytes)).await
    }

    /// Receives the next datagram. Returns its length; see [Lengths](Self#lengths).
    ///
    /// # Errors
    ///
    /// If the connected peer is gone. If the wait was cancelled
    /// ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no datagram is lost. *Scope cancelled*: returns an error, and the
    /// datagrams stay; or a datagram, if there was one at the next poll.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.shared.io(Direction::Read, |io| self.recv_now(io, buffer)).await
    }

    /// As [`send`](Self::send), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room; otherwise as for [`send`](Self::send).
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.shared.get().send(bytes)
    }

    /// As [`recv`](Self::recv), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none; otherwise as for [`recv`](Self::recv).
    pub fn try_recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_now(self.shared.get(), buffer)
    }

    /// As [`send`](Self::send), for futures written by hand. Of all tasks that poll to send, in any
    /// form, only the last one is woken.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.shared.poll_io(cx, Direction::Write, |io| io.send(bytes))
    }

    /// As [`recv`](Self::recv), for futures written by hand. Of all tasks that poll to receive, in
    /// any form, only the last one is woken.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.shared.poll_io(cx, Direction::Read, |io| self.recv_now(io, buffer))
    }
}

/// Operations with any address.
impl UnixDatagram {
    /// Sends a datagram to the socket at a path. Waits while the receiver has no room for it. Returns the number
    /// of bytes sent, which is all of them.
    ///
    /// The kernel reports no event when a receiver that this socket is not connected to has room again, so the
    /// call tries after pauses of 1 to 32 milliseconds. Waiting senders are not in order.
    ///
    /// # Errors
    ///
    /// If there is no socket at the path; if the datagram is too long. If the wait was
    /// cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: nothing was sent. *Scope cancelled*: returns an error, and nothing was
    /// sent.
    pub async fn send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.send_to_addr(bytes, &SocketAddr::from_pathname(path)?).await
    }

    /// As [`send_to`](Self::send_to), to an address, which may be an abstract name.
    ///
    /// # Errors
    ///
    /// As for [`send_to`](Self::send_to).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: nothing was sent. *Scope cancelled*: returns an error, and nothing was
    /// sent.
    pub async fn send_to_addr(&self, bytes: &[u8], to: &SocketAddr) -> io::Result<usize> {
        let mut pauses = Pauses::default();
        loop {
            let sent = self.shared.io(Direction::Write, |io| match io.send_to_addr(bytes, to) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && is_for_receiver(io)? => Ok(None),
                sent => sent.map(Some),
            });
            match sent.await? {
                Some(sent) => return Ok(sent),
                None => pauses.pause().await?,
            }
        }
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
        self.shared.io(Direction::Read, |io| self.recv_from_now(io, buffer)).await
    }

    /// As [`send_to`](Self::send_to), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room; otherwise as for [`send_to`](Self::send_to).
    pub fn try_send_to(&self, bytes: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.shared.get().send_to(bytes, path)
    }

    /// As [`send_to_addr`](Self::send_to_addr), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room; otherwise as for [`send_to`](Self::send_to).
    pub fn try_send_to_addr(&self, bytes: &[u8], to: &SocketAddr) -> io::Result<usize> {
        self.shared.get().send_to_addr(bytes, to)
    }

    /// As [`recv_from`](Self::recv_from), without waiting.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is none; otherwise as for [`recv`](Self::recv).
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.recv_from_now(self.shared.get(), buffer)
    }

    /// As [`recv_from`](Self::recv_from), for futures written by hand; see
    /// [`poll_recv`](Self::poll_recv). There is no such form of [`send_to`](Self::send_to), which may
    /// have to wait for a timer.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.shared.poll_io(cx, Direction::Read, |io| self.recv_from_now(io, buffer))
    }
}

impl UnixDatagram {
    fn recv_now(&self, io: &std_net::UnixDatagram, buffer: &mut [u8]) -> io::Result<usize> {
        match io.recv(buffer) {
            Err(error) if self.is_end(&error) => Ok(0),
            result => result,
        }
    }

    fn recv_from_now(
        &self,
        io: &std_net::UnixDatagram,
        buffer: &mut [u8],
    ) -> io::Result<(usize, SocketAddr)> {
        match io.recv_from(buffer) {
            Err(error) if self.is_end(&error) => Ok((0, SocketAddr::from_pathname("")?)),
            result => result,
        }
    }

    fn is_end(&self, error: &io::Error) -> bool {
        error.kind() == ErrorKind::WouldBlock && self.at_end.load(Ordering::Acquire)
    }
}

/// Waiting without receiving, and the caller's own system calls.
impl UnixDatagram {
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
        self.shared.ready(Direction::Read).await
    }

    /// Waits until there is room to send, here and in the socket that this one is connected to;
    /// otherwise as [`readable`](Self::readable).
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready.
    pub async fn writable(&self) -> io::Result<()> {
        self.shared.ready(Direction::Write).await
    }

    /// As [`readable`](Self::readable), for futures written by hand; see [`poll_recv`](Self::poll_recv).
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    pub fn poll_recv_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.poll_ready(cx, Direction::Read)
    }

    /// As [`writable`](Self::writable), for futures written by hand; see [`poll_send`](Self::poll_send).
    ///
    /// # Errors
    ///
    /// As for [`writable`](Self::writable).
    pub fn poll_send_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.shared.poll_ready(cx, Direction::Write)
    }

    /// Calls `operation` until it returns anything but `WouldBlock` (or `Interrupted`). Before each call but the first
    /// it waits for datagrams. For `recvmsg` and the like.
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
        operation: impl FnMut(&std_net::UnixDatagram) -> io::Result<R>,
    ) -> io::Result<R> {
        self.shared.io(Direction::Read, operation).await
    }

    /// As [`read_with`](Self::read_with), for an operation that sends to the socket that this one is
    /// connected to.
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
        operation: impl FnMut(&std_net::UnixDatagram) -> io::Result<R>,
    ) -> io::Result<R> {
        self.shared.io(Direction::Write, operation).await
    }
}

/// Whether it is the receiver that has no room, for which there is no event. If this socket is connected
/// to another one, its own readiness includes the room of that one.
fn is_for_receiver(socket: &std_net::UnixDatagram) -> io::Result<bool> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let has_room = poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&now))? > 0;
    Ok(has_room || socket.peer_addr().is_ok())
}

impl_socket!(UnixDatagram of std_net::UnixDatagram, shared);
