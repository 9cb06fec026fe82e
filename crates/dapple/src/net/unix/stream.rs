//! A connection between processes of one machine.

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
/// It is read and written through `futures_io::{AsyncRead, AsyncWrite}`; with the feature `tokio-io` also
/// through tokio's traits, and with `hyper` through hyper's. Closing it (`AsyncWrite::poll_close`) tells
/// the other side that no more will be sent, and leaves it open for reading; dropping it closes both.
///
/// One task reads and one writes at a time; to have two tasks do so, [split](Self::into_split) it.
///
/// File descriptors can be passed along with [`read_with`](Self::read_with) and
/// [`write_with`](Self::write_with), by `recvmsg` and `sendmsg`.
///
/// # Cancellation
///
/// Reading, writing: *Dropped early*: **clean**: bytes that were not read stay, and what was written
/// was returned as written. *Scope cancelled*: returns an error for which
/// [`is_cancelled`](crate::is_cancelled) holds and has done nothing, or the result if it could be had
/// then.
///
/// That is so for what [`dapple::io`](crate::io) does. A read that was begun through the polled traits by
/// somebody else, and given up, leaves no trace to tell it by: the next one, in a task that was cancelled
/// meanwhile, passes for its continuation, and may still take bytes.
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
    /// While the listener has as many connections to accept as it may have, this waits. The kernel does
    /// not tell when there is room again: that is tried after pauses of 1 to 32 milliseconds. Those who
    /// wait are not in line.
    ///
    /// # Errors
    ///
    /// `NotFound` if there is nothing at the path, `ConnectionRefused` if nobody listens there (the path
    /// may be left over), those of opening a file. If the wait was cancelled
    /// ([`is_cancelled`](crate::is_cancelled)); outside of a runtime, if it has to wait.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: nobody was connected to. *Scope cancelled*: returns an error, and
    /// nobody was connected to.
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
    /// *Dropped early*: **clean**: nobody was connected to. *Scope cancelled*: returns an error, and
    /// nobody was connected to.
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

    /// Takes over a connection of the standard library's, and puts it in non-blocking mode.
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

    /// Gives the connection to the standard library. It stays in non-blocking mode.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn into_std(self) -> io::Result<std_net::UnixStream> {
        Ok(self.0.source.into_inner())
    }

    /// Two halves that borrow it: one to read, one to write, for two futures in one task.
    pub fn split(&mut self) -> (ReadHalf<'_>, WriteHalf<'_>) {
        split::borrowed(self)
    }

    /// Two halves that own it together, for two tasks. [`OwnedReadHalf::reunite`] puts them together
    /// again. Dropping the half that writes tells the other side that no more will be sent.
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        split::owned(self)
    }

    /// Waits until there is something to read, the end of the stream and errors included.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)); if the runtime has ended.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready then.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.source.ready(Direction::Read).await
    }

    /// Waits until there is room to write to, errors included.
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready then.
    pub async fn writable(&self) -> io::Result<()> {
        self.0.source.ready(Direction::Write).await
    }

    /// Waits until the connection is closed in both directions: the other side has reset it, or both sides have ended
    /// theirs. A peer that has ended its own side (`Shutdown::Write`) and still reads does not end the wait.
    ///
    /// To be used for a peer whose stream was read to its end: a read returns that end for ever, also after a reset.
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was closed then.
    pub async fn closed(&self) -> io::Result<()> {
        self.0.source.ready(Direction::Closed).await
    }

    /// As [`readable`](Self::readable), for futures written by hand: for the one task that reads, which is
    /// woken.
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    pub fn poll_read_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.source.poll_ready(cx, Direction::Read, &mut self.0.reading)
    }

    /// As [`writable`](Self::writable), for futures written by hand: for the one task that writes, which is
    /// woken.
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    pub fn poll_write_ready(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.source.poll_ready(cx, Direction::Write, &mut self.0.writing)
    }

    /// As [`closed`](Self::closed), for futures written by hand: for the one task that reads, which is woken.
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    pub fn poll_closed(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.source.poll_ready(cx, Direction::Closed, &mut self.0.reading)
    }

    /// Reads what is there; see [`readable`](Self::readable).
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) if nothing is; those of reading.
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

    /// Writes what there is room for; see [`writable`](Self::writable).
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) if there is none; those of writing.
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

    /// Calls `operation` until it returns anything but `WouldBlock` (or `Interrupted`), waiting until
    /// there is something to read before each call but the first: for `recvmsg`, which gets file
    /// descriptors.
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
    /// *Dropped early*: **clean**: what `operation` has done it has returned. *Scope cancelled*:
    /// returns the result of `operation`, or an error, and then it has done nothing.
    pub async fn write_with<R>(
        &self,
        operation: impl FnMut(&std_net::UnixStream) -> io::Result<R>,
    ) -> io::Result<R> {
        self.0.source.io(Direction::Write, operation).await
    }

    /// Ends the stream in one direction or both. After `Shutdown::Write` the other side reads to the
    /// end, and can still send.
    ///
    /// # Errors
    ///
    /// If it is not connected any more.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.get().shutdown(how)
    }

    pub(super) fn poll_shutdown(&self) -> Poll<io::Result<()>> {
        match self.shutdown(Shutdown::Write) {
            Err(error) if error.kind() == ErrorKind::NotConnected => Poll::Ready(Ok(())),
            result => Poll::Ready(result),
        }
    }

    /// This side's address, if it has one.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// The other side's address, if it has one.
    ///
    /// # Errors
    ///
    /// If it is not connected any more.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }

    /// Who is at the other side: the process that connected, or listened, or made the pair.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn peer_cred(&self) -> io::Result<UCred> {
        UCred::of_peer(self)
    }

    /// The error that waits to be told, if there is one.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.get().take_error()
    }
}

/// What the traits come down to.
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
        Poll::Ready(Ok(())) // nothing is kept back here
    }

    pub(crate) fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_shutdown()
    }
}

impl_read!(UnixStream);
impl_write!(UnixStream);

impl ByteStream for std_net::UnixStream {
    /// A read stops behind bytes that came with file descriptors.
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
