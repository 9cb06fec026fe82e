//! Pipes, with and without a name.

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

/// Makes a pipe: what is written to the one end is read from the other.
///
/// It is one of bytes and must stay one: `O_DIRECT` must not be set on the sender. For a pipe of packets, make
/// it elsewhere and give its ends to [`Sender::from_fd`] and [`Receiver::from_fd`].
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

/// The end of a pipe that is written to.
///
/// It is written to through `futures_io::AsyncWrite`; with the feature `tokio-io` also through tokio's
/// trait, and with `hyper` through hyper's. Closing it through them does nothing: the other side sees the
/// end when the last sender, duplicates in other processes included, is **dropped**.
///
/// Up to 4096 bytes, written in one call, are not mixed with what others write.
///
/// When there is no receiver any more, writing fails with
/// [`BrokenPipe`](ErrorKind::BrokenPipe). (There is a signal for this, too, which Rust programs ignore.)
///
/// # Cancellation
///
/// Writing: *Dropped early*: **clean**: what was written was returned as written. *Scope cancelled*:
/// returns an error for which [`is_cancelled`](crate::is_cancelled) holds and has done nothing, or the
/// result if it could be had then.
pub struct Sender(Pipe);

/// The end of a pipe that is read from.
///
/// It is read from through `futures_io::AsyncRead`; with the feature `tokio-io` also through tokio's
/// trait, and with `hyper` through hyper's. The stream is at its end when there is no sender any more, and
/// everything was read. The end of a pipe with a name is not for good: there can be a new sender.
///
/// # Cancellation
///
/// Reading: *Dropped early*: **clean**: bytes that were not read stay. *Scope cancelled*: returns an
/// error for which [`is_cancelled`](crate::is_cancelled) holds and has done nothing, or the bytes if there
/// were some then.
pub struct Receiver(Pipe);

/// Which end of a pipe.
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
    /// Whoever writes may do so in packets (`O_DIRECT`), of which each read takes one, though there are more.
    /// Only his end would tell.
    packets: bool,
}

impl Pipe {
    /// One that we have made.
    fn ours(fd: OwnedFd) -> io::Result<Pipe> {
        Pipe::new(fd.into(), false)
    }

    /// One that was made elsewhere. Looks whether it is what it should be.
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

    /// Reads up to so many bytes.
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

    /// Writes up to so many bytes.
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

/// The pipes of children, who may write packets.
impl ByteStream for File {
    const SHORT_READ_IS_ALL: bool = false;
}

impl Sender {
    /// Takes the end of a pipe that was made elsewhere: a `PipeWriter`, the `ChildStdin` of the standard
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

    /// Gives the file descriptor back, in blocking mode, as other programs expect it.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn into_blocking_fd(self) -> io::Result<OwnedFd> {
        into_blocking(self.into())
    }

    /// Waits until there is room to write to, or there is no receiver any more. Another may be faster; so
    /// be prepared for `WouldBlock` from a `try_` form.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)); if the runtime has ended.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready then.
    pub async fn writable(&self) -> io::Result<()> {
        self.0.source.ready(Direction::Write).await
    }

    /// Writes what there is room for.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) if there is none, [`BrokenPipe`](ErrorKind::BrokenPipe) if
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
        Poll::Ready(Ok(())) // nothing is kept back here
    }

    pub(crate) fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Receiver {
    /// Takes the end of a pipe that was made elsewhere: a `PipeReader`, the `ChildStdout` of the standard
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

    /// Gives the file descriptor back, in blocking mode, as other programs expect it.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn into_blocking_fd(self) -> io::Result<OwnedFd> {
        into_blocking(self.into())
    }

    /// Waits until there is something to read, the end included. Another may be faster; so be prepared
    /// for `WouldBlock` from a `try_` form.
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

    /// Reads what is there; 0 bytes are the end, or an empty buffer.
    ///
    /// # Errors
    ///
    /// [`WouldBlock`](ErrorKind::WouldBlock) if nothing is.
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

/// How to open a pipe that has a name (a FIFO, made with `mkfifo`).
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
    /// Each end for what it is.
    #[must_use]
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Opens both ends, of which one is used. So there is always a sender, and the receiver is never at its
    /// end; and always a receiver, so that a sender can be opened before anybody receives.
    #[must_use]
    pub fn read_write(mut self, both: bool) -> OpenOptions {
        self.read_write = both;
        self
    }

    /// Opens the end that is read from. If there is no sender, it is at its end for now.
    ///
    /// # Errors
    ///
    /// Those of opening a file; [`InvalidInput`](ErrorKind::InvalidInput) if it is not a pipe.
    pub fn open_receiver(&self, path: impl AsRef<Path>) -> io::Result<Receiver> {
        world::outside("pipe::OpenOptions::open_receiver")?;
        Receiver::from_fd(self.open(path.as_ref(), PipeEnd::Read)?)
    }

    /// Opens the end that is written to.
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
        // Or it would wait until there is somebody at the other end.
        options.custom_flags(libc::O_NONBLOCK).open(path)
    }
}

/// What both ends can do.
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
