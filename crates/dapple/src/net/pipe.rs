//! Pipes, anonymous and named.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::task::{Context, Poll};

use rustix::fs::OFlags;

use crate::cancel::wait::Wait;
use crate::io::foreign::{impl_read, impl_write};
use crate::source::stream::{ByteStream, poll_nothing};
use crate::source::{Direction, PollStrategy, Source};
use crate::world;

/// Makes a pipe: bytes written to one end are read from the other.
///
/// It carries a byte stream: do not set `O_DIRECT` on the sender. For a pipe of packets, make
/// it elsewhere and pass its ends to [`Sender::from_fd`] and [`Receiver::from_fd`].
///
/// # Errors
///
/// If file descriptors have run out.
///
/// # Examples
///
/// ```
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let (mut sender, mut receiver) = dapple::net::pipe()?;
///     sender.write_all(b"hello").await?;
///     drop(sender);
///     let mut text = String::new();
///     receiver.read_to_string(&mut text).await?; // until all senders are gone
///     assert_eq!(text, "hello");
///     Ok(())
/// })
/// # }
/// ```
pub fn pipe() -> io::Result<(Sender, Receiver)> {
    world::outside("net::pipe")?;
    let (reader, writer) = std::io::pipe()?;
    Ok((Sender(Pipe::ours(writer.into())?), Receiver(Pipe::ours(reader.into())?)))
}

/// The write end of a pipe.
///
/// Use it through `futures_io::AsyncWrite`; with the feature `tokio-io` also through tokio's
/// trait, and with `hyper` through hyper's. Closing it through them does nothing: the receiver sees the
/// end when the last sender, duplicates in other processes included, is **dropped**.
///
/// Up to 4096 bytes, written in one call, are not mixed with the bytes of other writers.
///
/// When there is no receiver left, writing fails with
/// [`BrokenPipe`](ErrorKind::BrokenPipe). (The system also sends a signal, which Rust programs ignore.)
///
/// # Cancellation
///
/// Writing: *Dropped early*: **clean**: all bytes that were written were counted in a result. *Scope cancelled*:
/// returns an error for which [`is_cancelled`](crate::is_cancelled) holds and has done nothing, or the
/// result if it was ready.
pub struct Sender(Pipe);

/// The read end of a pipe.
///
/// Use it through `futures_io::AsyncRead`; with the feature `tokio-io` also through tokio's
/// trait, and with `hyper` through hyper's. The stream ends when there is no sender left, and
/// all bytes were read. The end of a named pipe is not final: a new sender may open it.
///
/// # Cancellation
///
/// Reading: *Dropped early*: **clean**: bytes that were not read stay. *Scope cancelled*: returns an
/// error for which [`is_cancelled`](crate::is_cancelled) holds and has done nothing, or the bytes if some
/// were there.
pub struct Receiver(Pipe);

/// The kind of an end of a pipe.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PipeEnd {
    Read,
    Write,
}

/// One end of a pipe.
struct Pipe {
    source: Source<File>,
    wait: Wait,
    flow: PollStrategy,
    /// The sender may write packets (`O_DIRECT`). Each read then takes one packet, though there are more. Only the
    /// sender's descriptor shows that mode.
    packets: bool,
}

impl Pipe {
    /// An end of a pipe that this module has made.
    fn ours(fd: OwnedFd) -> io::Result<Pipe> {
        Pipe::new(fd.into(), false)
    }

    /// An end of a pipe that was made elsewhere. Checks that it is one.
    fn adopt(fd: OwnedFd, end: PipeEnd) -> io::Result<Pipe> {
        let refuse = |what: &str| Err(io::Error::new(ErrorKind::InvalidInput, what));
        let file = File::from(fd);
        if !file.metadata()?.file_type().is_fifo() {
            return refuse("not a pipe: for other file descriptors, use dapple::net::AsyncFd");
        }
        match rustix::fs::fcntl_getfl(&file)? & OFlags::ACCMODE {
            OFlags::WRONLY if end == PipeEnd::Read => {
                return refuse("this end of the pipe cannot be read from");
            }
            OFlags::RDONLY if end == PipeEnd::Write => {
                return refuse("this end of the pipe cannot be written to");
            }
            _ => {}
        }
        Pipe::new(file, true)
    }

    fn new(file: File, packets: bool) -> io::Result<Pipe> {
        rustix::io::ioctl_fionbio(&file, true)?;
        Ok(Pipe { source: Source::new(file), wait: Wait::default(), flow: PollStrategy::new(), packets })
    }

    /// Reads up to `wanted` bytes.
    #[inline]
    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        wanted: usize,
        mut read: impl FnMut(&mut &File) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if wanted == 0 {
            return poll_nothing(&mut self.wait, cx);
        }
        let Pipe { source, wait, flow, packets } = self;
        if *packets {
            return source.poll_io(cx, Direction::Read, wait, |mut file| read(&mut file));
        }
        source.poll_flow(cx, Direction::Read, wait, flow, wanted, |mut file| read(&mut file))
    }

    /// Writes up to `wanted` bytes.
    #[inline]
    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        wanted: usize,
        mut write: impl FnMut(&mut &File) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if wanted == 0 {
            return poll_nothing(&mut self.wait, cx);
        }
        let Pipe { source, wait, flow, .. } = self;
        source.poll_flow(cx, Direction::Write, wait, flow, wanted, |mut file| write(&mut file))
    }
}

fn into_blocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    rustix::io::ioctl_fionbio(&fd, false)?;
    Ok(fd)
}

/// The pipes of child processes, which may write packets.
impl ByteStream for File {
    const SHORT_READ_IS_ALL: bool = false;
}

impl Sender {
    /// Wraps the end of a pipe that was made elsewhere: a `PipeWriter`, the `ChildStdin` of the standard
    /// library, a file, or any file descriptor. It is put in non-blocking mode, which all its
    /// duplicates share.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) if it is not a pipe, or cannot be written to.
    pub fn from_fd(pipe: impl Into<OwnedFd>) -> io::Result<Sender> {
        world::outside("pipe::Sender::from_fd")?;
        Pipe::adopt(pipe.into(), PipeEnd::Write).map(Sender)
    }

    /// Returns the file descriptor, in blocking mode, as other programs expect it.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn into_blocking_fd(self) -> io::Result<OwnedFd> {
        into_blocking(self.into())
    }

    /// Waits until the pipe is writable, or no receiver is left. Another task may write first, so
    /// a `try_` form may still return `WouldBlock`.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)); if the runtime has ended.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready.
    pub async fn writable(&self) -> io::Result<()> {
        self.0.source.ready(Direction::Write).await
    }

    /// Writes as many bytes as there is room for, without waiting.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) if there is no room, [`BrokenPipe`](ErrorKind::BrokenPipe) if
    /// there is no receiver.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.0.source.get().write(bytes)
    }

    /// As [`try_write`](Self::try_write), from several slices.
    ///
    /// # Errors
    ///
    /// As for [`try_write`](Self::try_write).
    pub fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.source.get().write_vectored(slices)
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, bytes.len(), |file| file.write(bytes))
    }

    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted = slices.iter().map(|slice| slice.len()).sum();
        self.0.poll_write(cx, wanted, |file| file.write_vectored(slices))
    }

    pub(crate) fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(())) // there is no buffer to flush
    }

    pub(crate) fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Receiver {
    /// Wraps the end of a pipe that was made elsewhere: a `PipeReader`, the `ChildStdout` of the standard
    /// library, a file, or any file descriptor. It is put in non-blocking mode, which all its
    /// duplicates share.
    ///
    /// # Errors
    ///
    /// [`InvalidInput`](ErrorKind::InvalidInput) if it is not a pipe, or cannot be read from.
    pub fn from_fd(pipe: impl Into<OwnedFd>) -> io::Result<Receiver> {
        world::outside("pipe::Receiver::from_fd")?;
        Pipe::adopt(pipe.into(), PipeEnd::Read).map(Receiver)
    }

    /// Returns the file descriptor, in blocking mode, as other programs expect it.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn into_blocking_fd(self) -> io::Result<OwnedFd> {
        into_blocking(self.into())
    }

    /// Waits until the pipe is readable, or at its end. Another task may read first, so
    /// a `try_` form may still return `WouldBlock`.
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

    /// Reads the bytes that are there, without waiting. 0 means the end, or an empty buffer.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) if there are none.
    pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.source.get().read(buffer)
    }

    /// As [`try_read`](Self::try_read), into several buffers.
    ///
    /// # Errors
    ///
    /// As for [`try_read`](Self::try_read).
    pub fn try_read_vectored(&self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.source.get().read_vectored(buffers)
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_read(cx, buffer.len(), |file| file.read(buffer))
    }

    pub(crate) fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
        self.0.poll_read(cx, wanted, |file| file.read_vectored(buffers))
    }
}

impl_write!(Sender);
impl_read!(Receiver);

/// Options for opening a named pipe (a FIFO, made with `mkfifo`).
///
/// # Examples
///
/// ```no_run
/// use dapple::net::pipe::OpenOptions;
///
/// # fn main() -> std::io::Result<()> {
/// // It is never at its end, and others may come and go.
/// let requests = OpenOptions::new().read_write(true).open_receiver("/run/my-service/requests")?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    read_write: bool,
}

impl OpenOptions {
    /// Makes options that open each end for its own direction only.
    #[must_use]
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Opens each end for both directions. So there is always a sender, and the receiver never reads
    /// an end; and always a receiver, so that a sender can be opened before a receiver.
    #[must_use]
    pub fn read_write(mut self, both: bool) -> OpenOptions {
        self.read_write = both;
        self
    }

    /// Opens the read end. If there is no sender, it is at its end for now.
    ///
    /// # Errors
    ///
    /// Those of opening a file; [`InvalidInput`](ErrorKind::InvalidInput) if it is not a pipe.
    pub fn open_receiver(&self, path: impl AsRef<Path>) -> io::Result<Receiver> {
        world::outside("pipe::OpenOptions::open_receiver")?;
        Receiver::from_fd(self.open(path.as_ref(), PipeEnd::Read)?)
    }

    /// Opens the write end.
    ///
    /// # Errors
    ///
    /// `ENXIO` if there is no receiver: try again later, or open it for
    /// [reading, too](Self::read_write). Those of opening a file;
    /// [`InvalidInput`](ErrorKind::InvalidInput) if it is not a pipe.
    pub fn open_sender(&self, path: impl AsRef<Path>) -> io::Result<Sender> {
        world::outside("pipe::OpenOptions::open_sender")?;
        Sender::from_fd(self.open(path.as_ref(), PipeEnd::Write)?)
    }

    fn open(&self, path: &Path, end: PipeEnd) -> io::Result<File> {
        let mut options = File::options();
        options.read(self.read_write || end == PipeEnd::Read).write(self.read_write || end == PipeEnd::Write);
        // Without this flag opening would wait for the other end.
        options.custom_flags(libc::O_NONBLOCK).open(path)
    }
}

/// Methods of both ends.
macro_rules! both {
    ($end:ident) => {
        impl From<$end> for OwnedFd {
            /// It stays in non-blocking mode.
            fn from(end: $end) -> OwnedFd {
                end.0.source.into_inner().into()
            }
        }

        impl AsFd for $end {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.source.as_fd()
            }
        }

        impl AsRawFd for $end {
            fn as_raw_fd(&self) -> RawFd {
                self.as_fd().as_raw_fd()
            }
        }

        impl fmt::Debug for $end {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($end)).field("fd", &self.as_raw_fd()).finish()
            }
        }
    };
}

both!(Sender);
both!(Receiver);
