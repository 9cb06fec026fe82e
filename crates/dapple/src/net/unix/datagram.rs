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
/// for example through an `Arc`. Each datagram goes to one of those who receive.
///
/// Datagrams between sockets of one machine are neither lost nor reordered. A receiver that does not
/// get on makes those who send wait.
///
/// # Lengths
///
/// What does not fit into the buffer that a datagram is received into is **lost**, and nothing tells that
/// there was more. A datagram may have no bytes: 0 is not an end.
///
/// # Names
///
/// A path that a socket is bound to stays in the file system when the socket is gone, and cannot be
/// bound to again until it is removed. An abstract name
/// ([`bind_addr`](Self::bind_addr)) goes with its socket.
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
    /// Whether reading was shut down. A socket that does not block never says so itself.
    at_end: AtomicBool,
}

/// Making one.
impl UnixDatagram {
    /// Makes a socket with a path, where others can send to it.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if there is something at the path, be it only left over; those of making a file.
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
    /// `AddrInUse` if it is in use; those of making a file.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixDatagram> {
        world::outside("UnixDatagram::bind_addr")?;
        let bound = std_net::UnixDatagram::bind_addr(addr);
        UnixDatagram::from_std(bound.map_err(|why| failed(format!("cannot bind to {addr:?}"), why))?)
    }

    /// Makes a socket without a name, which nobody can answer to.
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

    /// Takes a socket that was made elsewhere, and puts it in non-blocking mode (which all its
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

    /// Gives the socket back. It stays in non-blocking mode.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn into_std(self) -> io::Result<std_net::UnixDatagram> {
        Ok(self.shared.into_inner())
    }

    /// Lets the socket send to the one at a path, and receive from it alone.
    ///
    /// # Errors
    ///
    /// If there is none, or it is connected to another.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.shared.get().connect(path)
    }

    /// As [`connect`](Self::connect), to an address, which may be an abstract name.
    ///
    /// # Errors
    ///
    /// If there is none, or it is connected to another.
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

    /// An error that has come in and that no operation has returned yet. It is taken by this.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.shared.get().take_error()
    }

    /// Ends one direction of a connected socket, or both. Those who receive from here on get what has
    /// come before, and then 0 bytes.
    ///
    /// # Errors
    ///
    /// `NotConnected` if it is not.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let ends = matches!(how, Shutdown::Read | Shutdown::Both);
        // First, for those who wait look at it when they are woken.
        let before = ends.then(|| self.at_end.swap(true, Ordering::Release));
        let result = self.shared.get().shutdown(how);
        if result.is_err() && before == Some(false) {
            self.at_end.store(false, Ordering::Release);
        }
        result
    }
}

/// Connected sockets.
impl UnixDatagram {
    /// Sends a datagram to the socket that this one is connected to. Waits while that has no room for it.
    /// Returns the number of bytes sent, which is all of them.
    ///
    /// # Errors
    ///
    /// If the socket is not connected; if the other one is gone; if the datagram is too long. If the
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
    /// If the socket that it is connected to is gone. If the wait was cancelled
    /// ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no datagram is lost. *Scope cancelled*: returns an error, and the
    /// datagrams stay; or a datagram, if there was one when the wait was polled again.
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

    /// As [`send`](Self::send), for futures written by hand. Of those who poll to send, in whatever
    /// form, the last one is woken.
    ///
    /// # Errors
    ///
    /// As for [`send`](Self::send).
    pub fn poll_send(&self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.shared.poll_io(cx, Direction::Write, |io| io.send(bytes))
    }

    /// As [`recv`](Self::recv), for futures written by hand. Of those who poll to receive, in
    /// whatever form, the last one is woken.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    pub fn poll_recv(&self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.shared.poll_io(cx, Direction::Read, |io| self.recv_now(io, buffer))
    }
}

/// Anybody.
impl UnixDatagram {
    /// Sends a datagram to the socket at a path. Waits while that has no room for it. Returns the number
    /// of bytes sent, which is all of them.
    ///
    /// The kernel does not tell when a socket that this one is not connected to has room again: that is
    /// tried after pauses of 1 to 32 milliseconds. Those who wait are not in line.
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

    /// Receives the next datagram, and tells where it is from. Returns its length; see
    /// [Lengths](Self#lengths).
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no datagram is lost. *Scope cancelled*: returns an error, and the
    /// datagrams stay; or a datagram, if there was one when the wait was polled again.
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
    /// have to wait for a time.
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

/// Waiting without receiving, and system calls of one's own.
impl UnixDatagram {
    /// Waits until there is a datagram, or an error, to be received. Another may be faster; so be
    /// prepared for `WouldBlock` from a `try_` form.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready then.
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
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready then.
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

    /// Calls `operation` until it returns anything but `WouldBlock` (or `Interrupted`), waiting for
    /// datagrams before each call but the first: for `recvmsg` and the like.
    ///
    /// # Errors
    ///
    /// Those of `operation`, and as for [`readable`](Self::readable).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: what `operation` has done it has returned. *Scope cancelled*:
    /// returns the result of `operation`, or an error, and then it has done nothing.
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
    /// *Dropped early*: **clean**: what `operation` has done it has returned. *Scope cancelled*:
    /// returns the result of `operation`, or an error, and then it has done nothing.
    pub async fn write_with<R>(
        &self,
        operation: impl FnMut(&std_net::UnixDatagram) -> io::Result<R>,
    ) -> io::Result<R> {
        self.shared.io(Direction::Write, operation).await
    }
}

/// Whether it is the receiver who has no room, of which no event will tell. If this socket is connected
/// to another one, its own readiness tells of that one, too.
fn is_for_receiver(socket: &std_net::UnixDatagram) -> io::Result<bool> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let has_room = poll(&mut [PollFd::new(socket, PollFlags::OUT)], Some(&now))? > 0;
    Ok(has_room || socket.peer_addr().is_ok())
}

impl_socket!(UnixDatagram of std_net::UnixDatagram, shared);
