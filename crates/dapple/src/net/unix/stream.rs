//! A Unix stream.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{self as std_net, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::attempt;
use super::cred::UCred;
use super::split::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use crate::io::foreign::{impl_read, impl_write};
use crate::net::error::failed;
use crate::net::socket_traits::impl_socket;
use crate::source::stream::{ByteStream, Shares, Stream};
use crate::source::{Direction, Source};
use crate::world;

/// A Unix stream: a connection between processes of one machine, or within one.
///
/// Use it through `futures_io::{AsyncRead, AsyncWrite}`; with the feature `tokio-io` also
/// through tokio's traits, and with `hyper` through hyper's. Closing it (`AsyncWrite::poll_close`) ends
/// the stream to the peer, and leaves it open for reading; dropping it closes both directions.
///
/// One task reads and one writes at a time. For two tasks, [split](Self::into_split) it.
///
/// Pass file descriptors with [`read_with`](Self::read_with) and
/// [`write_with`](Self::write_with), by `recvmsg` and `sendmsg`.
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
/// use dapple::net::UnixStream;
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let (mut near, mut far) = UnixStream::pair()?;
///     near.write_all(b"hello").await?;
///     near.close().await?;
///     let mut text = String::new();
///     far.read_to_string(&mut text).await?;
///     assert_eq!(text, "hello");
///     Ok(())
/// })
/// # }
/// ```
pub struct UnixStream(pub(super) Stream<std_net::UnixStream>);

impl UnixStream {
    /// Connects to a listener at a path.
    ///
    /// While the listener's queue is full, this waits. The kernel reports no event
    /// when there is room again, so the call tries after pauses of 1 to 32 milliseconds. Waiting
    /// clients are not in order.
    ///
    /// # Errors
    ///
    /// `NotFound` if the path does not exist, `ConnectionRefused` if no listener is there (the path
    /// may be left over), those of opening a file. If the wait was cancelled
    /// ([`is_cancelled`](crate::is_cancelled)); outside of a runtime, if it has to wait.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: no connection was made. *Scope cancelled*: returns an error, and
    /// no connection was made.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<UnixStream> {
        world::outside("UnixStream::connect")?;
        let path = path.as_ref();
        let connected = UnixStream::connect_addr(&SocketAddr::from_pathname(path)?).await;
        connected.map_err(|error| {
            if crate::is_cancelled(&error) {
                return error;
            }
            failed(format!("cannot connect to {}", path.display()), error)
        })
    }

    /// As [`connect`](Self::connect), to an address, which may be an abstract name.
    ///
    /// # Errors
    ///
    /// As for [`connect`](Self::connect).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: no connection was made. *Scope cancelled*: returns an error, and
    /// no connection was made.
    pub async fn connect_addr(addr: &SocketAddr) -> io::Result<UnixStream> {
        world::outside("UnixStream::connect_addr")?;
        Ok(UnixStream::from_nonblocking(attempt::connect(addr).await?.into()))
    }

    /// Makes two streams that are connected to each other.
    ///
    /// # Errors
    ///
    /// If file descriptors have run out.
    pub fn pair() -> io::Result<(UnixStream, UnixStream)> {
        world::outside("UnixStream::pair")?;
        let (near, far) = std_net::UnixStream::pair()?;
        Ok((UnixStream::from_std(near)?, UnixStream::from_std(far)?))
    }

    /// Wraps a connection of the standard library, and puts it in non-blocking mode.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn from_std(stream: std_net::UnixStream) -> io::Result<UnixStream> {
        world::outside("UnixStream::from_std")?;
        stream.set_nonblocking(true)?;
        Ok(UnixStream::from_nonblocking(stream))
    }

    pub(super) fn from_nonblocking(stream: std_net::UnixStream) -> UnixStream {
        UnixStream(Stream::new(stream))
    }

    /// Converts it to a connection of the standard library. It stays in non-blocking mode.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn into_std(self) -> io::Result<std_net::UnixStream> {
        Ok(self.0.source.into_inner())
    }

    /// Borrows the stream as two halves: one to read, one to write, for two futures in one task.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncReadExt, AsyncWriteExt};
    /// use dapple::net::UnixStream;
    ///
    /// # dapple::run(async {
    /// let (mut stream, mut peer) = UnixStream::pair()?;
    /// let (mut read, mut write) = stream.split(); // both borrow the stream
    /// write.write_all(b"hello").await?;
    /// peer.write_all(b"world").await?;
    /// let mut word = [0; 5];
    /// read.read_exact(&mut word).await?;
    /// assert_eq!(&word, b"world");
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
    /// use dapple::net::UnixStream;
    ///
    /// # dapple::run(async {
    /// let (stream, mut peer) = UnixStream::pair()?;
    /// let (read, mut write) = stream.into_split(); // two tasks can have them
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
    pub async fn closed(&self) -> io::Result<()> {
        self.0.source.ready(Direction::Closed).await
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

    /// Calls `operation` until it returns anything but `WouldBlock` (or `Interrupted`). Before each call but the first
    /// it waits until the stream is readable. For `recvmsg`, which receives file
    /// descriptors.
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
        operation: impl FnMut(&std_net::UnixStream) -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.source.io(Direction::Read, operation).await
    }

    /// As [`read_with`](Self::read_with), for an operation that writes, such as `sendmsg`.
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
        operation: impl FnMut(&std_net::UnixStream) -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.source.io(Direction::Write, operation).await
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

    /// The local address, if it has one.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// The address of the peer, if it has one.
    ///
    /// # Errors
    ///
    /// If it is no longer connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }

    /// The credentials of the peer: the process that connected, or listened, or made the pair.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn peer_cred(&self) -> io::Result<UCred> {
        UCred::of_peer(self)
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

/// The methods behind the I/O traits.
impl UnixStream {
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

impl_read!(UnixStream);
impl_write!(UnixStream);

impl ByteStream for std_net::UnixStream {
    /// A read stops after bytes that came with file descriptors.
    const SHORT_READ_IS_ALL: bool = false;
}

impl Shares<std_net::UnixStream> for &UnixStream {
    fn share(&self) -> &Source<std_net::UnixStream> {
        &self.0.source
    }
}

impl Shares<std_net::UnixStream> for Arc<UnixStream> {
    fn share(&self) -> &Source<std_net::UnixStream> {
        &self.0.source
    }
}

impl_socket!(UnixStream of std_net::UnixStream, 0.source);
