//! A reader with a buffer.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};

/// The default size of a buffer.
pub(super) const BUFFER: usize = 8 << 10;

/// A reader with a buffer: it makes few large reads, so that the caller can make many small ones, or read lines.
///
/// If the underlying stream can be written to, so can this; writing has no buffer.
///
/// # Cancellation
///
/// Bytes that were read and not consumed stay in the buffer when a wait is dropped or
/// cancelled. Dropping the reader, or [`into_inner`](Self::into_inner), loses them.
///
/// # Examples
///
/// ```
/// use dapple::io::{AsyncBufReadExt, BufReader};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let reader = &b"one\ntwo\n"[..]; // or a TcpStream
///     let mut lines = BufReader::new(reader).lines();
///     while let Some(line) = lines.next_line().await? {
///         println!("{line}");
///     }
///     Ok(())
/// })
/// # }
/// ```
pub struct BufReader<R> {
    reader: R,
    buffer: Box<[u8]>,
    /// The bytes that were read and not consumed: `buffer[start..end]`.
    start: usize,
    end: usize,
}

impl<R> BufReader<R> {
    /// Makes a reader with a buffer of 8 KiB.
    pub fn new(reader: R) -> BufReader<R> {
        BufReader::with_capacity(BUFFER, reader)
    }

    /// Makes a reader with a buffer of `capacity` bytes, at least one.
    pub fn with_capacity(capacity: usize, reader: R) -> BufReader<R> {
        BufReader { reader, buffer: vec![0; capacity.max(1)].into(), start: 0, end: 0 }
    }

    /// The bytes that were read and not consumed.
    pub fn buffer(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// The underlying reader.
    pub fn get_ref(&self) -> &R {
        &self.reader
    }

    /// The underlying reader. Bytes that are read from it directly come after those in the buffer.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.reader
    }

    /// Returns the underlying reader. The bytes in the [`buffer`](Self::buffer) are lost.
    pub fn into_inner(self) -> R {
        self.reader
    }

    fn take(&mut self, amount: usize) {
        self.start = (self.start + amount).min(self.end);
    }
}

impl<R: AsyncRead + Unpin> BufReader<R> {
    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.start == self.end {
            let n = ready!(Pin::new(&mut self.reader).poll_read(cx, &mut self.buffer))?;
            (self.start, self.end) = (0, n);
        }
        Poll::Ready(Ok(()))
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BufReader<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.start == this.end && buffer.len() >= this.buffer.len() {
            return Pin::new(&mut this.reader).poll_read(cx, buffer); // no need to copy
        }
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(this.fill(cx))?;
        let n = buffer.len().min(this.end - this.start);
        buffer[..n].copy_from_slice(&this.buffer()[..n]);
        this.take(n);
        Poll::Ready(Ok(n))
    }

    fn poll_read_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let wanted: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        if this.start == this.end && wanted >= this.buffer.len() {
            return Pin::new(&mut this.reader).poll_read_vectored(cx, buffers);
        }
        if wanted == 0 {
            return Poll::Ready(Ok(0));
        }
        ready!(this.fill(cx))?;
        let n = io::Read::read_vectored(&mut this.buffer(), buffers)?;
        this.take(n);
        Poll::Ready(Ok(n))
    }
}

impl<R: AsyncRead + Unpin> AsyncBufRead for BufReader<R> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.fill(cx))?;
        Poll::Ready(Ok(this.buffer()))
    }

    fn consume(mut self: Pin<&mut Self>, amount: usize) {
        self.take(amount);
    }
}

impl<R: AsyncWrite + Unpin> AsyncWrite for BufReader<R> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.reader).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.reader).poll_write_vectored(cx, slices)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_close(cx)
    }
}

impl<R: fmt::Debug> fmt::Debug for BufReader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buffer = format_args!("{}/{}", self.end - self.start, self.buffer.len());
        f.debug_struct("BufReader").field("reader", &self.reader).field("buffer", &buffer).finish()
    }
}
