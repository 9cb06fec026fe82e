//! A TCP connection.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

use super::connect::connect_to_any;
use super::socket::{keepalive, set_keepalive};
use super::split::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use crate::io::foreign::{impl_read, impl_write};
use crate::net::lookup::ToAddrs;
use crate::net::socket_traits::impl_socket;
use crate::source::stream::{Shares, Stream, begin};
use crate::source::{Direction, Source};
use crate::world;

/// The default time limit for each address.
const EACH: Duration = Duration::from_secs(10);

/// A TCP connection.
///
/// Use it through `futures_io::{AsyncRead, AsyncWrite}`; with the feature `tokio-io`
/// also through tokio's traits, and with `hyper` through hyper's. Closing it
/// (`AsyncWrite::poll_close`) ends the stream to the peer, and leaves it open for
/// reading; dropping it closes both directions.
///
/// One task reads and one writes at a time. For two tasks, [split](Self::into_split) it.
///
/// # Cancellation
///
/// Reading, writing: *Dropped early*: **clean**: bytes that were not read stay, and all bytes that were written
/// were counted in a result. *Scope cancelled*: returns an error for which
/// [`is_cancelled`](crate::is_cancelled) holds and has done nothing, or the result if it was
/// ready.
///
/// This holds for the methods of [`dapple::io`](crate::io). If other code polls a read through the traits, and
/// drops it while it is pending, the stream cannot notice: the next read, in a task that was cancelled
/// meanwhile, counts as its continuation, and may still take bytes.
///
/// # Examples
///
/// ```
/// use dapple::net::{TcpListener, TcpStream};
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let listener = TcpListener::bind("localhost:0").await?;
///     let addr = listener.local_addr()?;
///     let echo = dapple::spawn(async move {
///         let (mut stream, _) = listener.accept().await?;
///         let mut line = [0; 5];
///         stream.read_exact(&mut line).await?;
///         stream.write_all(&line).await
///     });
///     let mut stream = TcpStream::connect(addr).await?;
///     stream.write_all(b"hello").await?;
///     let mut answer = String::new();
///     stream.read_to_string(&mut answer).await?;
///     assert_eq!(answer, "hello");
///     echo.await.unwrap()
/// })
/// # }
/// ```
pub struct TcpStream(pub(crate) Stream<std::net::TcpStream>);

impl TcpStream {
    /// Connects to an address, by number or by name.
    ///
    /// If there are several, they are tried in turn, for ten seconds each, until one answers.
    ///
    /// # Errors
    ///
    /// If none can be connected to: the message lists the addresses with their errors, and the
    /// kind is that of the last. Those of [`lookup`](crate::net::lookup). If the wait was cancelled
    /// ([`is_cancelled`](crate::is_cancelled)); outside of a runtime, if it has to wait.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: an attempt under way is closed. *Scope cancelled*: returns an
    /// error, or the connection if it was ready.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use dapple::net::TcpStream;
    ///
    /// # async fn example() -> std::io::Result<()> {
    /// let by_name = TcpStream::connect("www.example.com:80").await?;
    /// let by_name_and_port = TcpStream::connect(("www.example.com", 80)).await?;
    /// let by_address = TcpStream::connect((std::net::Ipv4Addr::LOCALHOST, 80)).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn connect(addrs: impl ToAddrs) -> io::Result<TcpStream> {
        world::outside("TcpStream::connect")?;
        connect_to_any(addrs.target(), EACH).await
    }

    /// As [`connect`](Self::connect), with a time limit for each address.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: an attempt under way is closed. *Scope cancelled*: returns an
    /// error, or the connection if it was ready.
    pub async fn connect_timeout(addrs: impl ToAddrs, each: Duration) -> io::Result<TcpStream> {
        world::outside("TcpStream::connect_timeout")?;
        connect_to_any(addrs.target(), each).await
    }

    /// Wraps a connection of the standard library, and puts it in non-blocking mode.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<TcpStream> {
        world::outside("TcpStream::from_std")?;
        stream.set_nonblocking(true)?;
        Ok(TcpStream::from_nonblocking(stream))
    }

    pub(super) fn from_nonblocking(stream: std::net::TcpStream) -> TcpStream {
        TcpStream(Stream::new(stream))
    }

    /// Converts it to a connection of the standard library. It stays in non-blocking mode.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn into_std(self) -> io::Result<std::net::TcpStream> {
        Ok(self.0.source.into_inner())
    }

    /// Borrows the stream as two halves: one to read, one to write, for two futures in one task.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncReadExt, AsyncWriteExt};
    /// use dapple::net::{TcpListener, TcpStream};
    ///
    /// # dapple::run(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let mut stream = TcpStream::connect(listener.local_addr()?).await?;
    /// let (mut peer, _) = listener.accept().await?;
    /// peer.write_all(b"hello").await?;
    /// let (mut read, mut write) = stream.split(); // both borrow the stream
    /// let mut word = [0; 5];
    /// read.read_exact(&mut word).await?;
    /// write.write_all(&word).await?;
    /// peer.read_exact(&mut word).await?;
    /// assert_eq!(&word, b"hello");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        split::borrowed(self)
    }

    /// Splits the stream into two halves that own it together, for two tasks. [`OwnedReadHalf::reunite`] puts them
    /// together again. Dropping the write half ends the stream to the peer.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::net::{TcpListener, TcpStream};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// dapple::run(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let (read, write) = TcpStream::connect(listener.local_addr()?).await?.into_split();
    ///     let stream = read.reunite(write).expect("they belong together");
    ///     assert_eq!(stream.peer_addr()?, listener.local_addr()?);
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        split::owned(self)
    }

    /// Waits for bytes and copies them, without taking them: they can be read afterwards. Returns 0 at
    /// the end of the stream, or for an empty buffer.
    ///
    /// # Errors
    ///
    /// As those of reading; if the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or the bytes if some were
    /// there.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return begin().await.map(|()| 0);
        }
        self.0.source.io(Direction::Read, |stream| stream.peek(buffer)).await
    }

    /// Waits until the stream is readable, at its end, or has an error. Use it before [`try_read`](Self::try_read), or
    /// to hold no buffer while there is nothing to read. To read in any case, use the methods of
    /// [`AsyncReadExt`](crate::io::AsyncReadExt).
    ///
    /// Readiness may be gone by the time of the read, so `try_read` may still return `WouldBlock`.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)); if the runtime has ended.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.source.ready(Direction::Read).await
    }

    /// Waits until the stream is writable, or has an error. Use it before [`try_write`](Self::try_write), or to make
    /// the bytes only when they can be sent.
    ///
    /// Readiness may be gone by the time of the write, so `try_write` may still return `WouldBlock`.
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready.
    pub async fn writable(&self) -> io::Result<()> {
        self.0.source.ready(Direction::Write).await
    }

    /// Waits until the connection is closed in both directions: the peer has reset it, or both sides have shut
    /// down writing. A peer that has shut down writing (`Shutdown::Write`) and still reads does not end the wait.
    ///
    /// Use it for a peer whose stream was read to its end: a read returns that end for ever, also after a reset.
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was closed.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::net::{TcpListener, TcpStream};
    ///
    /// # dapple::run(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// let (stream, _) = listener.accept().await?;
    /// drop(client);
    /// drop(stream.shutdown(std::net::Shutdown::Write));
    /// stream.closed().await?; // both sides have ended: work for this client can stop
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn closed(&self) -> io::Result<()> {
        self.0.source.ready(Direction::Closed).await
    }

    /// Calls `operation` until it returns anything but `WouldBlock` (or `Interrupted`). Before each call but the first
    /// it waits until the stream is readable. For system calls that have no
    /// method here.
    ///
    /// # Errors
    ///
    /// Those of `operation`; and as for [`readable`](Self::readable).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: every effect of `operation` was in a result. *Scope cancelled*:
    /// returns the result of `operation`, or an error if it has done nothing.
    pub async fn read_with<R>(
        &self,
        operation: impl FnMut(&std::net::TcpStream) -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.source.io(Direction::Read, operation).await
    }

    /// As [`read_with`](Self::read_with), for an operation that writes.
    ///
    /// # Errors
    ///
    /// As for [`read_with`](Self::read_with).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: every effect of `operation` was in a result. *Scope cancelled*:
    /// returns the result of `operation`, or an error if it has done nothing.
    pub async fn write_with<R>(
        &self,
        operation: impl FnMut(&std::net::TcpStream) -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.source.io(Direction::Write, operation).await
    }

    /// As [`readable`](Self::readable), for futures written by hand. For the task that reads: a stream wakes one
    /// task per direction.
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    pub fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.source.poll_ready(cx, Direction::Read, &mut self.0.reading)
    }

    /// As [`writable`](Self::writable), for futures written by hand. For the task that writes: a stream wakes one
    /// task per direction.
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    pub fn poll_write_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.source.poll_ready(cx, Direction::Write, &mut self.0.writing)
    }

    /// As [`closed`](Self::closed), for futures written by hand. For the task that reads: a stream wakes one task
    /// per direction.
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.source.poll_ready(cx, Direction::Closed, &mut self.0.reading)
    }

    /// Reads the bytes that are there, without waiting; see [`readable`](Self::readable).
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) if there are none; those of reading.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() { Ok(0) } else { self.0.get().read(buffer) }
    }

    /// As [`try_read`](Self::try_read), into several buffers.
    ///
    /// # Errors
    ///
    /// As for [`try_read`](Self::try_read).
    pub fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            Ok(0)
        } else {
            self.0.get().read_vectored(buffers)
        }
    }

    /// Writes as many bytes as there is room for, without waiting; see [`writable`](Self::writable).
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) if there is no room; those of writing.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.get().write(bytes)
    }

    /// As [`try_write`](Self::try_write), from several slices.
    ///
    /// # Errors
    ///
    /// As for [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.get().write_vectored(slices)
    }

    /// Shuts down one direction or both. After `Shutdown::Write` the peer reads to the
    /// end, and can still send.
    ///
    /// # Errors
    ///
    /// If it is no longer connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.get().shutdown(how)
    }

    pub(super) fn poll_shutdown(&self) -> Poll<io::Result<()>> {
        match self.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_read(cx, buffer)
    }

    pub(crate) fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_read_vectored(cx, buffers)
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes)
    }

    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write_vectored(cx, slices)
    }

    pub(crate) fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // there is no buffer to flush
    }

    pub(crate) fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_shutdown()
    }
}

impl_read!(TcpStream, but hyper);
impl_write!(TcpStream);

/// Options. Those that have no method here can be set through `socket2::SockRef::from(&stream)`.
impl TcpStream {
    /// The local address.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// The address of the peer.
    ///
    /// # Errors
    ///
    /// If it is no longer connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }

    /// Sets whether bytes are sent at once, rather than delayed for a moment in case more follow.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        self.0.get().set_nodelay(on)
    }

    /// Whether bytes are sent at once (`TCP_NODELAY`); see [`set_nodelay`](Self::set_nodelay).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.get().nodelay()
    }

    /// Sets whether received bytes are acknowledged at once. The system may change this mode later.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_quickack(&self, on: bool) -> io::Result<()> {
        SockRef::from(self).set_tcp_quickack(on)
    }

    /// The number of bytes that were written and not acknowledged by the peer: those that the system has not sent, and
    /// those that are in flight. It falls while the peer receives.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn unacknowledged(&self) -> io::Result<usize> {
        super::queue::unacknowledged(self)
    }

    /// Whether received bytes are acknowledged at once (`TCP_QUICKACK`); see [`set_quickack`](Self::set_quickack).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn quickack(&self) -> io::Result<bool> {
        SockRef::from(self).tcp_quickack()
    }

    /// Sets the idle time after which the peer is probed; `None`: never.
    ///
    /// # Errors
    ///
    /// If it is too long for the system, or less than a second.
    pub fn set_keepalive(&self, after: Option<Duration>) -> io::Result<()> {
        set_keepalive(SockRef::from(self), after)
    }

    /// The idle time after which the peer is probed (`SO_KEEPALIVE`); see [`set_keepalive`](Self::set_keepalive).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn keepalive(&self) -> io::Result<Option<Duration>> {
        keepalive(SockRef::from(self))
    }

    /// Sets the interval between probes, and the number of unanswered probes after which the
    /// connection counts as broken. [`set_keepalive`](Self::set_keepalive) sets the time before the first
    /// probe.
    ///
    /// # Errors
    ///
    /// If either is too large for the system, or zero.
    pub fn set_keepalive_probes(&self, every: Duration, times: u32) -> io::Result<()> {
        let socket = SockRef::from(self);
        let is_on = socket.keepalive()?;
        socket.set_tcp_keepalive(&TcpKeepalive::new().with_interval(every).with_retries(times))?;
        socket.set_keepalive(is_on)
    }

    /// Sets what a drop does with bytes that are not sent yet. `None`: the system goes on
    /// sending them. Zero: they are discarded, and the peer sees a
    /// reset. Any other time would block the thread that drops the stream for up to that time, so do not use it
    /// in a task.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        SockRef::from(self).set_linger(linger)
    }

    /// The time that a drop waits for bytes that are not sent yet (`SO_LINGER`); see [`set_linger`](Self::set_linger).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        SockRef::from(self).linger()
    }

    /// The most routers that a packet may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get().ttl()
    }

    /// Sets the most routers that a packet may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// If it is 0 or more than 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.get().set_ttl(ttl)
    }

    /// Takes the pending socket error (`SO_ERROR`), if there is one.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.get().take_error()
    }
}

impl Shares<std::net::TcpStream> for &TcpStream {
    fn share(&self) -> &Source<std::net::TcpStream> {
        &self.0.source
    }
}

impl Shares<std::net::TcpStream> for std::sync::Arc<TcpStream> {
    fn share(&self) -> &Source<std::net::TcpStream> {
        &self.0.source
    }
}

impl_socket!(TcpStream of std::net::TcpStream, 0.source);
