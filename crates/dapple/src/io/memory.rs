//! Readers and writers that are always ready: an empty reader, one that repeats a byte, and one that discards.
//!
//! `futures-io` itself implements reading from slices (`&[u8]`) and writing to vectors (`Vec<u8>`).

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncBufRead, AsyncRead, AsyncWrite};

/// A reader that has ended.
///
/// # Examples
///
/// ```
/// use dapple::io::AsyncReadExt;
///
/// dapple::run(async {
///     let mut bytes = Vec::new();
///     assert_eq!(dapple::io::empty().read_to_end(&mut bytes).await.unwrap(), 0);
/// });
/// ```
pub fn empty() -> Empty {
    Empty(())
}

/// The reader of [`empty`].
#[derive(Debug)]
pub struct Empty(());

impl AsyncRead for Empty {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut [u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(0))
    }
}

impl AsyncBufRead for Empty {
    fn poll_fill_buf(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        Poll::Ready(Ok(&[]))
    }

    fn consume(self: Pin<&mut Self>, _: usize) {}
}

/// A reader of the same byte, for ever.
///
/// # Examples
///
/// ```
/// use dapple::io::AsyncReadExt;
///
/// dapple::run(async {
///     let mut bytes = [0; 3];
///     dapple::io::repeat(7).read_exact(&mut bytes).await.unwrap();
///     assert_eq!(bytes, [7, 7, 7]);
/// });
/// ```
pub fn repeat(byte: u8) -> Repeat {
    Repeat(byte)
}

/// The reader of [`repeat`].
#[derive(Debug)]
pub struct Repeat(u8);

impl AsyncRead for Repeat {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        buffer.fill(self.0);
        Poll::Ready(Ok(buffer.len()))
    }
}

/// A writer that discards all bytes.
///
/// # Examples
///
/// ```
/// dapple::run(async {
///     // Reads to the end, to count the bytes.
///     let n = dapple::io::copy(&b"hello"[..], dapple::io::sink()).await.unwrap();
///     assert_eq!(n, 5);
/// });
/// ```
pub fn sink() -> Sink {
    Sink(())
}

/// The writer of [`sink`].
#[derive(Debug)]
pub struct Sink(());

impl AsyncWrite for Sink {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
