//! Byte streams over a file descriptor, and their halves: the common part of `TcpStream`, `UnixStream` and
//! pipes.
//!
//! A stream has one reader and one writer at a time, each with a wait of its own (`cancel::wait`), so
//! that a cancellation is known from the first poll of an operation to its result.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use super::{Direction, Source};
use crate::cancel::wait::Wait;

/// One direction of a stream: the file descriptor, owned, shared or borrowed, and the wait.
#[derive(Debug, Default)]
pub(crate) struct StreamHalf<S> {
    pub(crate) source: S,
    wait: Wait,
}

impl<S> StreamHalf<S> {
    pub(crate) fn new(source: S) -> StreamHalf<S> {
        StreamHalf { source, wait: Wait::default() }
    }
}

/// A way to share a source: owned, counted or borrowed.
pub(crate) trait Shares<T> {
    fn share(&self) -> &Source<T>;
}

impl<T> Shares<T> for Source<T> {
    fn share(&self) -> &Source<T> {
        self
    }
}

impl<T> Shares<T> for &Source<T> {
    fn share(&self) -> &Source<T> {
        self
    }
}

impl<T> Shares<T> for Arc<Source<T>> {
    fn share(&self) -> &Source<T> {
        self
    }
}

/// A file descriptor that carries a byte stream.
pub(crate) trait ByteStream: AsFd {
    /// Whether a short read means that it took all bytes. If not, the next read asks the kernel again,
    /// because the kernel would not report the rest.
    const SHORT_READ_IS_ALL: bool;
}

impl ByteStream for std::net::TcpStream {
    const SHORT_READ_IS_ALL: bool = true;
}

/// The size below which a read counts as short.
#[inline]
fn wanted_of<T: ByteStream>(len: usize) -> usize {
    if T::SHORT_READ_IS_ALL { len } else { 0 }
}

/// Reads some bytes. Returns 0 at once for an empty buffer, and at the end of the stream.
#[inline]
pub(crate) fn poll_read<T: ByteStream>(
    source: &Source<T>,
    wait: &mut Wait,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>>
where
    for<'a> &'a T: Read,
{
    if buffer.is_empty() {
        return poll_nothing(wait, cx);
    }
    source.poll_stream(cx, Direction::Read, wait, wanted_of::<T>(buffer.len()), |mut io| io.read(buffer))
}

#[inline]
pub(crate) fn poll_read_vectored<T: ByteStream>(
    source: &Source<T>,
    wait: &mut Wait,
    cx: &mut Context<'_>,
    buffers: &mut [IoSliceMut<'_>],
) -> Poll<io::Result<usize>>
where
    for<'a> &'a T: Read,
{
    let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
    if wanted == 0 {
        return poll_nothing(wait, cx);
    }
    source.poll_stream(cx, Direction::Read, wait, wanted_of::<T>(wanted), |mut io| io.read_vectored(buffers))
}

/// Writes some bytes. Returns 0 at once for no bytes.
#[inline]
pub(crate) fn poll_write<T: AsFd>(
    source: &Source<T>,
    wait: &mut Wait,
    cx: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>>
where
    for<'a> &'a T: Write,
{
    if bytes.is_empty() {
        return poll_nothing(wait, cx);
    }
    source.poll_stream(cx, Direction::Write, wait, bytes.len(), |mut io| io.write(bytes))
}

#[inline]
pub(crate) fn poll_write_vectored<T: AsFd>(
    source: &Source<T>,
    wait: &mut Wait,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>>
where
    for<'a> &'a T: Write,
{
    let wanted = slices.iter().map(|slice| slice.len()).sum();
    if wanted == 0 {
        return poll_nothing(wait, cx);
    }
    source.poll_stream(cx, Direction::Write, wait, wanted, |mut io| io.write_vectored(slices))
}

/// Begins an operation that need not wait: fails if its task was cancelled. It counts as a
/// result, so that a loop of such operations yields.
pub(crate) async fn begin() -> io::Result<()> {
    let mut wait = Wait::default();
    poll_fn(|cx| wait.begin(cx)).await?;
    wait.end();
    Ok(())
}

/// An operation on no bytes. The kernel would make it wait for a byte, or for room for one.
#[cold]
pub(crate) fn poll_nothing(wait: &mut Wait, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
    ready!(wait.begin(cx))?;
    wait.end();
    Poll::Ready(Ok(0))
}

impl<S> StreamHalf<S> {
    pub(crate) fn poll_read<T: ByteStream>(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>>
    where
        S: Shares<T>,
        for<'a> &'a T: Read,
    {
        poll_read(self.source.share(), &mut self.wait, cx, buffer)
    }

    pub(crate) fn poll_read_vectored<T: ByteStream>(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>>
    where
        S: Shares<T>,
        for<'a> &'a T: Read,
    {
        poll_read_vectored(self.source.share(), &mut self.wait, cx, buffers)
    }

    pub(crate) fn poll_write<T: AsFd>(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>>
    where
        S: Shares<T>,
        for<'a> &'a T: Write,
    {
        poll_write(self.source.share(), &mut self.wait, cx, bytes)
    }

    pub(crate) fn poll_write_vectored<T: AsFd>(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>
    where
        S: Shares<T>,
        for<'a> &'a T: Write,
    {
        poll_write_vectored(self.source.share(), &mut self.wait, cx, slices)
    }
}

/// A stream in both directions.
#[derive(Debug)]
pub(crate) struct Stream<T> {
    pub(crate) source: Source<T>,
    pub(crate) reading: Wait,
    pub(crate) writing: Wait,
}

impl<T: AsFd> Stream<T> {
    /// `io` must be in non-blocking mode.
    pub(crate) fn new(io: T) -> Stream<T> {
        Stream::from_source(Source::new(io))
    }

    pub(crate) fn from_source(source: Source<T>) -> Stream<T> {
        Stream { source, reading: Wait::default(), writing: Wait::default() }
    }

    #[inline]
    pub(crate) fn get(&self) -> &T {
        self.source.get()
    }

    #[inline]
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>
    where
        T: ByteStream,
        for<'a> &'a T: Read,
    {
        poll_read(&self.source, &mut self.reading, cx, buffer)
    }

    #[inline]
    pub(crate) fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>>
    where
        T: ByteStream,
        for<'a> &'a T: Read,
    {
        poll_read_vectored(&self.source, &mut self.reading, cx, buffers)
    }

    #[inline]
    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>
    where
        for<'a> &'a T: Write,
    {
        poll_write(&self.source, &mut self.writing, cx, bytes)
    }

    #[inline]
    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>
    where
        for<'a> &'a T: Write,
    {
        poll_write_vectored(&self.source, &mut self.writing, cx, slices)
    }
}
