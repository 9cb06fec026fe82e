//! The two halves of any stream: one to read, one to write.

use std::error::Error;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use crate::prim::{Mutex, lock};

/// Splits a stream of any kind into two halves, for two tasks.
///
/// The halves share the stream under a lock, which is held only while a half is polled, not while it waits. Streams
/// that can be split without a lock have a method of their own, such as
/// [`TcpStream::into_split`](crate::net::TcpStream::into_split).
///
/// # Examples
///
/// ```
/// use dapple::io::{AsyncReadExt, AsyncWriteExt, duplex, split};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let (near, far) = duplex(4);
///     let (mut read, mut write) = split(near);
///     let writing = dapple::spawn(async move {
///         write.write_all(b"more than fits at once").await?;
///         write.close().await
///     });
///     let echo = dapple::spawn(async move {
///         let (mut from, mut to) = split(far);
///         dapple::io::copy(&mut from, &mut to).await?;
///         to.close().await
///     });
///     let mut text = String::new();
///     read.read_to_string(&mut text).await?; // while the other half writes
///     assert_eq!(text, "more than fits at once");
/// #   writing.await.unwrap()?;
/// #   echo.await.unwrap()?;
///     Ok(())
/// })
/// # }
/// ```
pub fn split<S>(stream: S) -> (ReadHalf<S>, WriteHalf<S>) {
    let stream = Arc::new(Mutex::new(stream));
    (ReadHalf(stream.clone()), WriteHalf(stream))
}

/// The half of a stream that reads; see [`split`].
///
/// # Cancellation
///
/// As for the stream.
pub struct ReadHalf<S>(Arc<Mutex<S>>);

/// The half of a stream that writes; see [`split`].
///
/// Dropping it does not close the stream, because the read half still uses it. Call
/// [`close`](super::AsyncWriteExt::close), so that the peer reads the end.
///
/// # Cancellation
///
/// As for the stream.
pub struct WriteHalf<S>(Arc<Mutex<S>>);

impl<S> ReadHalf<S> {
    /// Whether the two are halves of the same stream.
    pub fn is_pair_of(&self, write: &WriteHalf<S>) -> bool {
        Arc::ptr_eq(&self.0, &write.0)
    }
}

impl<S: Unpin> ReadHalf<S> {
    /// Puts the halves together again.
    ///
    /// # Errors
    ///
    /// If the two are halves of different streams. The error returns them.
    pub fn unsplit(self, write: WriteHalf<S>) -> Result<S, UnsplitError<S>> {
        if !self.is_pair_of(&write) {
            return Err(UnsplitError(self, write));
        }
        drop(write);
        let stream =
            Arc::into_inner(self.0).expect("the write half was dropped, so this is the last reference");
        Ok(stream.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }
}

impl<S: Unpin> WriteHalf<S> {
    /// Puts the halves together again; see [`ReadHalf::unsplit`].
    ///
    /// # Errors
    ///
    /// If the two are halves of different streams. The error returns them.
    pub fn unsplit(self, read: ReadHalf<S>) -> Result<S, UnsplitError<S>> {
        read.unsplit(self)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadHalf<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(&self.0)).poll_read(cx, buffer)
    }

    fn poll_read_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(&self.0)).poll_read_vectored(cx, buffers)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteHalf<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(&self.0)).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(&self.0)).poll_write_vectored(cx, slices)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_flush(cx)
    }

    fn poll_close(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *lock(&self.0)).poll_close(cx)
    }
}

impl<S> fmt::Debug for ReadHalf<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadHalf").finish_non_exhaustive()
    }
}

impl<S> fmt::Debug for WriteHalf<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteHalf").finish_non_exhaustive()
    }
}

/// The error of joining halves of different streams. It returns the halves.
///
/// # Examples
///
/// ```
/// use dapple::io::{duplex, split};
///
/// let (near, far) = duplex(16);
/// let ((read, write), (_, other)) = (split(near), split(far));
/// let error = read.unsplit(other).unwrap_err();
/// let read = error.0; // the error returns the halves
/// assert!(read.unsplit(write).is_ok());
/// ```
pub struct UnsplitError<S>(pub ReadHalf<S>, pub WriteHalf<S>);

impl<S> fmt::Debug for UnsplitError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UnsplitError").field(&self.0).field(&self.1).finish()
    }
}

impl<S> fmt::Display for UnsplitError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are of different streams")
    }
}

impl<S> Error for UnsplitError<S> {}
