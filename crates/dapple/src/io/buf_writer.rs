//! A writer with a buffer.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};

use super::buf_reader::BUFFER;
use super::write::takes_no_more;

/// A writer with a buffer: it makes few large writes of many small ones.
///
/// **Flush it** ([`flush`](super::AsyncWriteExt::flush)) when the peer is to see the bytes, and at the
/// end: dropping it cannot wait, so the bytes in the buffer are lost then.
///
/// If the underlying stream can be read, so can this; reading has no buffer.
///
/// # Cancellation
///
/// Bytes in the buffer stay there when a wait is dropped or cancelled, and the
/// next write or flush writes them. No byte is written twice.
///
/// # Examples
///
/// ```
/// use dapple::io::{AsyncWriteExt, BufWriter};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let mut writer = BufWriter::new(Vec::new()); // or of a TcpStream
///     for i in 0..10_u8 {
///         writer.write_u8(i).await?; // no system call
///     }
///     assert!(writer.get_ref().is_empty());
///     writer.flush().await?; // one
///     assert_eq!(writer.get_ref().len(), 10);
///     Ok(())
/// })
/// # }
/// ```
pub struct BufWriter<W> {
    writer: W,
    buffer: Vec<u8>,
    /// The number of bytes of the buffer that have been written.
    written: usize,
}

impl<W> BufWriter<W> {
    /// Makes a writer with a buffer of 8 KiB.
    pub fn new(writer: W) -> BufWriter<W> {
        BufWriter::with_capacity(BUFFER, writer)
    }

    /// Makes a writer with a buffer of `capacity` bytes.
    pub fn with_capacity(capacity: usize, writer: W) -> BufWriter<W> {
        BufWriter { writer, buffer: Vec::with_capacity(capacity), written: 0 }
    }

    /// The bytes that have not been written yet.
    pub fn buffer(&self) -> &[u8] {
        &self.buffer[self.written..]
    }

    /// The underlying writer.
    pub fn get_ref(&self) -> &W {
        &self.writer
    }

    /// The underlying writer. Bytes that are written to it directly come before those in the buffer.
    pub fn get_mut(&mut self) -> &mut W {
        &mut self.writer
    }

    /// Returns the underlying writer. The bytes in the [`buffer`](Self::buffer) are lost: flush before.
    pub fn into_inner(self) -> W {
        self.writer
    }
}

impl<W: AsyncWrite + Unpin> BufWriter<W> {
    /// Writes the buffer out.
    fn poll_empty(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.buffer.len() {
            match ready!(Pin::new(&mut self.writer).poll_write(cx, &self.buffer[self.written..])) {
                Ok(0) => return Poll::Ready(Err(takes_no_more())),
                Ok(n) => self.written += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.buffer.clear();
        self.written = 0;
        Poll::Ready(Ok(()))
    }
}

impl<W: AsyncWrite + Unpin> AsyncWrite for BufWriter<W> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.buffer.len() + bytes.len() > this.buffer.capacity() {
            ready!(this.poll_empty(cx))?;
        }
        if bytes.len() >= this.buffer.capacity() {
            return Pin::new(&mut this.writer).poll_write(cx, bytes); // no need to copy
        }
        this.buffer.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let total = slices.iter().fold(0_usize, |total, slice| total.saturating_add(slice.len()));
        if total > this.buffer.capacity() - this.buffer.len() {
            ready!(this.poll_empty(cx))?;
        }
        if total >= this.buffer.capacity() && is_led_by_large(slices, this.buffer.capacity()) {
            return Pin::new(&mut this.writer).poll_write_vectored(cx, slices); // no need to copy
        }
        let mut taken = 0;
        for slice in slices {
            let n = slice.len().min(this.buffer.capacity() - this.buffer.len());
            this.buffer.extend_from_slice(&slice[..n]);
            taken += n;
        }
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_empty(cx))?;
        Pin::new(&mut self.writer).poll_flush(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_empty(cx))?;
        Pin::new(&mut self.writer).poll_close(cx)
    }
}

/// Whether the first or the second slice is as large as the buffer, such as a body after a head. If not, the slices
/// are copied, so that a writer that takes one slice at a time does not get many small ones.
fn is_led_by_large(slices: &[IoSlice<'_>], capacity: usize) -> bool {
    slices.iter().filter(|slice| !slice.is_empty()).take(2).any(|slice| slice.len() >= capacity)
}

impl<W: AsyncRead + Unpin> AsyncRead for BufWriter<W> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_read(cx, buffer)
    }

    fn poll_read_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.writer).poll_read_vectored(cx, buffers)
    }
}

impl<W: AsyncBufRead + Unpin> AsyncBufRead for BufWriter<W> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        Pin::new(&mut self.get_mut().writer).poll_fill_buf(cx)
    }

    fn consume(mut self: Pin<&mut Self>, amount: usize) {
        Pin::new(&mut self.writer).consume(amount);
    }
}

impl<W: fmt::Debug> fmt::Debug for BufWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let buffer = format_args!("{}/{}", self.buffer().len(), self.buffer.capacity());
        f.debug_struct("BufWriter").field("writer", &self.writer).field("buffer", &buffer).finish()
    }
}
