//! A simulated connection with the methods of `dapple::net::TcpStream`.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::task::{Context, Poll};
use std::time::Duration;

use super::arrivals::{ArrivalWait, Tried};
use super::connect::connect_to_any;
use super::connection::SimSocket;
use super::network::system_error;
use super::options::{check_keepalive, check_ttl};
use super::split::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use crate::io::foreign::{impl_read, impl_write};
use crate::net::ToAddrs;
use crate::prim::lock;

/// The default time limit for each address.
const EACH: Duration = Duration::from_secs(10);

/// Wait descriptions shown in dumps.
const BYTES: &&str = &"bytes to read";
const ROOM: &&str = &"room to write to";
const CLOSED: &&str = &"a connection to be closed by both sides, or reset";

/// A TCP connection in a simulation; as [`dapple::net::TcpStream`](crate::net::TcpStream).
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
/// # Examples
///
/// ```
/// use dapple::io::{AsyncReadExt, AsyncWriteExt};
/// use dapple::sim::Sim;
/// use dapple::sim::net::{TcpListener, TcpStream};
///
/// # fn main() -> std::io::Result<()> {
/// Sim::new(1).run(async {
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
pub struct TcpStream {
    pub(super) socket: SimSocket,
    reading: ArrivalWait,
    writing: ArrivalWait,
    closing: ArrivalWait,
}

impl SimSocket {
    pub(super) fn poll_read(
        &self,
        wait: &mut ArrivalWait,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        wait.poll(cx, self.readers(), BYTES, || self.read(buffers, false))
    }

    pub(super) fn poll_write(
        &self,
        wait: &mut ArrivalWait,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        wait.poll(cx, self.writers(), ROOM, || self.write(slices))
    }
}

/// The result of an attempt that must not wait.
fn at_once<T>(tried: io::Result<Tried<T>>) -> io::Result<T> {
    match tried? {
        Tried::Done(done) => Ok(done),
        Tried::NotYet(_) => Err(ErrorKind::WouldBlock.into()),
    }
}

impl TcpStream {
    pub(super) fn new(socket: SimSocket) -> TcpStream {
        TcpStream {
            socket,
            reading: ArrivalWait::default(),
            writing: ArrivalWait::default(),
            closing: ArrivalWait::default(),
        }
    }

    /// Connects to an address, which takes a round trip.
    ///
    /// If there are several, they are tried in turn, for ten seconds each, until one answers. If too many
    /// connections wait to be accepted, the client tries again after a second, and after two more, and so on.
    ///
    /// # Errors
    ///
    /// If none can be connected to: the message lists the addresses with their errors, and the
    /// kind is that of the last. If there is a name among them, other than `localhost`. If the wait was
    /// cancelled ([`is_cancelled`](crate::is_cancelled)). Outside of a simulation.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: an attempt under way is closed. *Scope cancelled*: returns an
    /// error, or the connection if it was ready.
    pub async fn connect(addrs: impl ToAddrs) -> io::Result<TcpStream> {
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
        connect_to_any(addrs.target(), each).await
    }

    /// Borrows the stream as two halves: one to read, one to write, for two futures in one task.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncReadExt, AsyncWriteExt};
    /// use dapple::sim::Sim;
    /// use dapple::sim::net::{TcpListener, TcpStream};
    ///
    /// # Sim::new(1).run(async {
    /// let listener = TcpListener::bind("10.0.0.1:80").await?;
    /// let mut stream = TcpStream::connect("10.0.0.1:80").await?;
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
    /// use dapple::io::{AsyncReadExt, AsyncWriteExt};
    /// use dapple::sim::Sim;
    /// use dapple::sim::net::{TcpListener, TcpStream};
    ///
    /// # Sim::new(1).run(async {
    /// let listener = TcpListener::bind("10.0.0.1:80").await?;
    /// let (read, mut write) = TcpStream::connect("10.0.0.1:80").await?.into_split(); // two tasks can have them
    /// let (mut peer, _) = listener.accept().await?;
    /// dapple::spawn(async move { write.write_all(b"hello").await }).await.unwrap()?; // the drop ends the stream
    /// let mut text = String::new();
    /// peer.read_to_string(&mut text).await?;
    /// assert_eq!(text, "hello");
    /// # drop(read);
    /// # std::io::Result::Ok(()) }).unwrap();
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
        let (mut wait, mut buffers) = (ArrivalWait::default(), [IoSliceMut::new(buffer)]);
        let socket = &self.socket;
        poll_fn(|cx| wait.poll(cx, socket.readers(), BYTES, || socket.read(&mut buffers, true))).await
    }

    /// Waits until the stream is readable, at its end, or has an error. Use it before [`try_read`](Self::try_read), or
    /// to hold no buffer while there is nothing to read. To read in any case, use the methods of
    /// [`AsyncReadExt`](crate::io::AsyncReadExt).
    ///
    /// Readiness may be gone by the time of the read, so `try_read` may still return `WouldBlock`.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)); outside of its simulation.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready.
    pub async fn readable(&self) -> io::Result<()> {
        let (mut wait, socket) = (ArrivalWait::default(), &self.socket);
        poll_fn(|cx| wait.poll(cx, socket.readers(), BYTES, || socket.readable())).await
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
        let (mut wait, socket) = (ArrivalWait::default(), &self.socket);
        poll_fn(|cx| wait.poll(cx, socket.writers(), ROOM, || socket.writable())).await
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
    pub async fn closed(&self) -> io::Result<()> {
        let (mut wait, socket) = (ArrivalWait::default(), &self.socket);
        poll_fn(|cx| wait.poll(cx, socket.writers(), CLOSED, || socket.closed())).await
    }

    /// As [`readable`](Self::readable), for futures written by hand. For the task that reads: a stream wakes one
    /// task per direction.
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    pub fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = &self.socket;
        self.reading.poll(cx, socket.readers(), BYTES, || socket.readable())
    }

    /// As [`writable`](Self::writable), for futures written by hand. For the task that writes: a stream wakes one
    /// task per direction.
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    pub fn poll_write_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = &self.socket;
        self.writing.poll(cx, socket.writers(), ROOM, || socket.writable())
    }

    /// As [`closed`](Self::closed), for futures written by hand. For the task that reads: a stream wakes one task
    /// per direction.
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let socket = &self.socket;
        self.closing.poll(cx, socket.writers(), CLOSED, || socket.closed())
    }

    /// Reads the bytes that are there, without waiting; see [`readable`](Self::readable).
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) if there are none; those of reading.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.try_read_vectored(&mut [IoSliceMut::new(buffer)])
    }

    /// As [`try_read`](Self::try_read), into several buffers.
    ///
    /// # Errors
    ///
    /// As for [`try_read`](Self::try_read).
    pub fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        at_once(self.socket.read(buffers, false))
    }

    /// Writes as many bytes as there is room for, without waiting; see [`writable`](Self::writable).
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) if there is no room; those of writing.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.try_write_vectored(&[IoSlice::new(bytes)])
    }

    /// As [`try_write`](Self::try_write), from several slices.
    ///
    /// # Errors
    ///
    /// As for [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        at_once(self.socket.write(slices))
    }

    /// Shuts down one direction or both. After `Shutdown::Write` the peer reads to the
    /// end, and can still send.
    ///
    /// # Errors
    ///
    /// If it is no longer connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.socket.shutdown(how)
    }

    pub(super) fn poll_shutdown(&self) -> Poll<io::Result<()>> {
        match self.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read_vectored(cx, &mut [IoSliceMut::new(buffer)])
    }

    pub(crate) fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_read(&mut self.reading, cx, buffers)
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.socket.poll_write(&mut self.writing, cx, slices)
    }

    pub(crate) fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // there is no buffer to flush
    }

    pub(crate) fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_shutdown()
    }
}

impl_read!(TcpStream);
impl_write!(TcpStream);

/// Options. They are stored; only [`set_linger`](Self::set_linger) has an effect.
impl TcpStream {
    /// The local address.
    ///
    /// # Errors
    ///
    /// None.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.socket.local_addr())
    }

    /// The address of the peer.
    ///
    /// # Errors
    ///
    /// None.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.socket.peer_addr())
    }

    /// Sets whether bytes are sent at once, which they always are here.
    ///
    /// # Errors
    ///
    /// None.
    pub fn set_nodelay(&self, on: bool) -> io::Result<()> {
        lock(&self.socket.options).nodelay = on;
        Ok(())
    }

    /// Whether bytes are sent at once (`TCP_NODELAY`); see [`set_nodelay`](Self::set_nodelay).
    ///
    /// # Errors
    ///
    /// None.
    pub fn nodelay(&self) -> io::Result<bool> {
        Ok(lock(&self.socket.options).nodelay)
    }

    /// Sets whether received bytes are acknowledged at once.
    ///
    /// # Errors
    ///
    /// None.
    pub fn set_quickack(&self, on: bool) -> io::Result<()> {
        lock(&self.socket.options).quickack = on;
        Ok(())
    }

    /// Whether received bytes are acknowledged at once (`TCP_QUICKACK`); see [`set_quickack`](Self::set_quickack).
    ///
    /// # Errors
    ///
    /// None.
    pub fn quickack(&self) -> io::Result<bool> {
        Ok(lock(&self.socket.options).quickack)
    }

    /// Sets the idle time after which the peer is probed; `None`: never.
    ///
    /// # Errors
    ///
    /// If it is too long for the system, or less than a second.
    pub fn set_keepalive(&self, after: Option<Duration>) -> io::Result<()> {
        lock(&self.socket.options).keepalive = check_keepalive(after)?;
        Ok(())
    }

    /// The idle time after which the peer is probed (`SO_KEEPALIVE`); see [`set_keepalive`](Self::set_keepalive).
    ///
    /// # Errors
    ///
    /// None.
    pub fn keepalive(&self) -> io::Result<Option<Duration>> {
        Ok(lock(&self.socket.options).keepalive)
    }

    /// Sets the interval between probes, and the number of unanswered probes after which the
    /// connection counts as broken.
    ///
    /// # Errors
    ///
    /// If either is too large for the system, or zero.
    pub fn set_keepalive_probes(&self, every: Duration, times: u32) -> io::Result<()> {
        check_keepalive(Some(every))?;
        if (1..=127).contains(&times) { Ok(()) } else { Err(system_error(libc::EINVAL)) }
    }

    /// Sets what a drop does. `None`: the bytes that were sent arrive, and then the end.
    /// Zero: the peer sees a reset.
    ///
    /// # Errors
    ///
    /// None.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        lock(&self.socket.options).linger = linger;
        Ok(())
    }

    /// The time that a drop waits for bytes that are not sent yet (`SO_LINGER`); see [`set_linger`](Self::set_linger).
    ///
    /// # Errors
    ///
    /// None.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        Ok(lock(&self.socket.options).linger)
    }

    /// The most routers that a packet may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// None.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(lock(&self.socket.options).ttl)
    }

    /// Sets the most routers that a packet may pass (`IP_TTL`).
    ///
    /// # Errors
    ///
    /// If it is 0 or more than 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        lock(&self.socket.options).ttl = check_ttl(ttl)?;
        Ok(())
    }

    /// The pending socket error (`SO_ERROR`), if there is one.
    ///
    /// # Errors
    ///
    /// Outside of its simulation.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.take_error()
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (addr, peer) = (self.socket.local_addr(), self.socket.peer_addr());
        f.debug_struct("TcpStream").field("addr", &addr).field("peer", &peer).finish()
    }
}
