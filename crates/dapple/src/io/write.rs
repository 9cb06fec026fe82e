//! Methods of writers.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::AsyncWrite;

use super::error::Partial;
use super::frames::{Prefix, WriteFrame};
use super::int::WriteInt;
use super::step::{is_interrupted, step};
use crate::cancel::wait::Wait;

macro_rules! write_ints {
    ($($(#[$doc:meta])* $name:ident $name_le:ident $int:ty;)*) => {$(
        $(#[$doc])*
        /// Most significant byte first (big-endian).
        ///
        /// # Errors
        ///
        /// As for [`write_all`](Self::write_all).
        ///
        /// # Cancellation
        ///
        /// *Dropped early*: **lossy**: the number of bytes that were written is not known.
        /// *Scope cancelled*: returns an error with that number.
        fn $name(&mut self, int: $int) -> WriteInt<'_, Self, $int>
        where
            Self: Unpin,
        {
            WriteInt::new(self, int, false)
        }

        $(#[$doc])*
        /// Least significant byte first (little-endian).
        ///
        /// # Errors
        ///
        /// As for [`write_all`](Self::write_all).
        ///
        /// # Cancellation
        ///
        /// *Dropped early*: **lossy**: the number of bytes that were written is not known.
        /// *Scope cancelled*: returns an error with that number.
        fn $name_le(&mut self, int: $int) -> WriteInt<'_, Self, $int>
        where
            Self: Unpin,
        {
            WriteInt::new(self, int, true)
        }
    )*};
}

/// Methods of writers: every [`AsyncWrite`] has them.
///
/// # Examples
///
/// ```
/// use dapple::io::AsyncWriteExt;
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let mut writer = Vec::new(); // or a TcpStream
///     writer.write_u16(5).await?;
///     writer.write_all(b"hello").await?;
///     writer.flush().await?;
///     assert_eq!(writer, b"\x00\x05hello");
///     Ok(())
/// })
/// # }
/// ```
pub trait AsyncWriteExt: AsyncWrite {
    /// Writes some of the bytes, as many as there is room for, and returns their number.
    ///
    /// # Errors
    ///
    /// Errors of the writer; an error if the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; nothing was written.
    /// *Scope cancelled*: returns an error, and nothing was written; or the number of bytes that were, if there was
    /// room at the next poll.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncWriteExt, duplex};
    ///
    /// # dapple::run(async {
    /// let (mut here, _there) = duplex(3);
    /// assert_eq!(here.write(b"hello").await?, 3); // as much as there is room for: mostly `write_all` is wanted
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    fn write<'a>(&'a mut self, bytes: &'a [u8]) -> Write<'a, Self>
    where
        Self: Unpin,
    {
        Write { writer: self, bytes, wait: Wait::default() }
    }

    /// As [`write`](Self::write), of several slices, one after the other.
    ///
    /// # Errors
    ///
    /// As for [`write`](Self::write).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; nothing was written.
    /// *Scope cancelled*: returns an error, and nothing was written; or the number of bytes that were, if there was
    /// room at the next poll.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::AsyncWriteExt;
    /// use std::io::IoSlice;
    ///
    /// # dapple::run(async {
    /// let mut writer = Vec::new();
    /// let written = writer.write_vectored(&[IoSlice::new(b"head"), IoSlice::new(b"body")]).await?;
    /// assert_eq!((written, &writer[..]), (8, &b"headbody"[..]));
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    fn write_vectored<'a>(&'a mut self, slices: &'a [IoSlice<'a>]) -> WriteVectored<'a, Self>
    where
        Self: Unpin,
    {
        WriteVectored { writer: self, slices, wait: Wait::default() }
    }

    /// Writes all the bytes.
    ///
    /// # Errors
    ///
    /// Errors of the writer; `WriteZero` if it accepts no more; an error if the wait was cancelled.
    /// [`how_far`](super::how_far) returns the number of bytes that were written.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the number of bytes that were written is not known.
    /// *Scope cancelled*: returns an error with that number.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncWriteExt, duplex, how_far};
    ///
    /// # dapple::run(async {
    /// let (mut here, there) = duplex(64);
    /// here.write_all(b"hello").await?;
    /// drop(there); // the peer goes away
    /// let error = here.write_all(b"world").await.unwrap_err();
    /// assert_eq!(how_far(&error), Some(0)); // nothing of it was written
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    fn write_all<'a>(&'a mut self, bytes: &'a [u8]) -> WriteAll<'a, Self>
    where
        Self: Unpin,
    {
        WriteAll { writer: self, bytes, done: 0, wait: Wait::default() }
    }

    /// Waits until all bytes have left the writer's own buffers. A socket has no such buffers.
    ///
    /// # Errors
    ///
    /// Errors of the writer; an error if the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; what is in the buffers stays there.
    /// *Scope cancelled*: returns an error, and the buffered bytes stay there.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncWriteExt, BufWriter};
    ///
    /// # dapple::run(async {
    /// let mut writer = BufWriter::new(Vec::new());
    /// writer.write_all(b"hello").await?;
    /// assert!(writer.get_ref().is_empty()); // it is in the buffer
    /// writer.flush().await?;
    /// assert_eq!(writer.get_ref(), b"hello");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    fn flush(&mut self) -> Flush<'_, Self>
    where
        Self: Unpin,
    {
        Flush { writer: self, wait: Wait::default() }
    }

    /// Flushes, and ends the stream in this direction. The peer then reads the end.
    ///
    /// # Errors
    ///
    /// Errors of the writer; an error if the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; it can be called again.
    /// *Scope cancelled*: returns an error, and it can be called again.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncReadExt, AsyncWriteExt, duplex};
    ///
    /// # dapple::run(async {
    /// let (mut here, mut there) = duplex(64);
    /// here.write_all(b"bye").await?;
    /// here.close().await?;
    /// let mut text = String::new();
    /// there.read_to_string(&mut text).await?; // reads to the end, which `close` has sent
    /// assert_eq!(text, "bye");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    fn close(&mut self) -> Close<'_, Self>
    where
        Self: Unpin,
    {
        Close { writer: self, wait: Wait::default() }
    }

    /// Writes one byte.
    ///
    /// # Errors
    ///
    /// As for [`write_all`](Self::write_all).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, and nothing was written.
    fn write_u8(&mut self, byte: u8) -> WriteInt<'_, Self, u8>
    where
        Self: Unpin,
    {
        WriteInt::new(self, byte, false)
    }

    /// Writes one signed byte.
    ///
    /// # Errors
    ///
    /// As for [`write_all`](Self::write_all).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, and nothing was written.
    fn write_i8(&mut self, byte: i8) -> WriteInt<'_, Self, i8>
    where
        Self: Unpin,
    {
        WriteInt::new(self, byte, false)
    }

    /// Writes the length of `body`, and then `body`, as a frame for [`Frames`](super::Frames) to read.
    ///
    /// # Errors
    ///
    /// As for [`write_all`](Self::write_all), where the prefix counts, too;
    /// `InvalidInput` if the length does not fit the prefix.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the number of bytes that were written is not known.
    /// *Scope cancelled*: returns an error with that number.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncReadExt, AsyncWriteExt, Prefix};
    ///
    /// # dapple::run(async {
    /// let mut bytes = Vec::new();
    /// bytes.write_frame(Prefix::U16, b"hello").await?;
    /// assert_eq!(bytes, b"\x00\x05hello");
    /// let mut frames = (&bytes[..]).frames().prefix(Prefix::U16);
    /// assert_eq!(frames.next_frame().await?.unwrap(), b"hello"[..]);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    fn write_frame<'a>(&'a mut self, prefix: Prefix, body: &'a [u8]) -> WriteFrame<'a, Self>
    where
        Self: Unpin,
    {
        WriteFrame::new(self, prefix, body)
    }

    write_ints! {
        /// Writes an unsigned number of two bytes.
        write_u16 write_u16_le u16;
        /// Writes an unsigned number of four bytes.
        write_u32 write_u32_le u32;
        /// Writes an unsigned number of eight bytes.
        write_u64 write_u64_le u64;
        /// Writes an unsigned number of sixteen bytes.
        write_u128 write_u128_le u128;
        /// Writes a signed number of two bytes.
        write_i16 write_i16_le i16;
        /// Writes a signed number of four bytes.
        write_i32 write_i32_le i32;
        /// Writes a signed number of eight bytes.
        write_i64 write_i64_le i64;
        /// Writes a signed number of sixteen bytes.
        write_i128 write_i128_le i128;
        /// Writes a floating-point number of four bytes.
        write_f32 write_f32_le f32;
        /// Writes a floating-point number of eight bytes.
        write_f64 write_f64_le f64;
    }
}

impl<W: AsyncWrite + ?Sized> AsyncWriteExt for W {}

/// The future of [`AsyncWriteExt::write`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Write<'a, W: ?Sized> {
    writer: &'a mut W,
    bytes: &'a [u8],
    wait: Wait,
}

impl<W: AsyncWrite + Unpin + ?Sized> Future for Write<'_, W> {
    type Output = io::Result<usize>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        step(&mut this.wait, cx, |cx| Pin::new(&mut *this.writer).poll_write(cx, this.bytes))
    }
}

/// The future of [`AsyncWriteExt::write_vectored`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct WriteVectored<'a, W: ?Sized> {
    writer: &'a mut W,
    slices: &'a [IoSlice<'a>],
    wait: Wait,
}

impl<W: AsyncWrite + Unpin + ?Sized> Future for WriteVectored<'_, W> {
    type Output = io::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        step(&mut this.wait, cx, |cx| Pin::new(&mut *this.writer).poll_write_vectored(cx, this.slices))
    }
}

/// The future of [`AsyncWriteExt::write_all`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct WriteAll<'a, W: ?Sized> {
    writer: &'a mut W,
    bytes: &'a [u8],
    done: usize,
    wait: Wait,
}

impl<W: AsyncWrite + Unpin + ?Sized> Future for WriteAll<'_, W> {
    type Output = io::Result<()>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let written = ready!(poll_write_all(this.writer, &mut this.wait, cx, this.bytes, &mut this.done));
        Poll::Ready(written.map_err(|error| Partial::error(this.done as u64, Vec::new(), error)))
    }
}

/// Writes `bytes` from `done` on.
#[inline]
pub(super) fn poll_write_all<W: AsyncWrite + Unpin + ?Sized>(
    writer: &mut W,
    wait: &mut Wait,
    cx: &mut Context<'_>,
    bytes: &[u8],
    done: &mut usize,
) -> Poll<io::Result<()>> {
    while *done < bytes.len() {
        let written = ready!(step(wait, cx, |cx| Pin::new(&mut *writer).poll_write(cx, &bytes[*done..])));
        if is_interrupted(&written) {
            continue;
        }
        match written? {
            0 => return Poll::Ready(Err(takes_no_more())),
            n => *done += n,
        }
    }
    Poll::Ready(Ok(()))
}

pub(super) fn takes_no_more() -> io::Error {
    io::Error::new(ErrorKind::WriteZero, "the writer takes no more bytes")
}

/// The future of [`AsyncWriteExt::flush`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Flush<'a, W: ?Sized> {
    writer: &'a mut W,
    wait: Wait,
}

impl<W: AsyncWrite + Unpin + ?Sized> Future for Flush<'_, W> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        step(&mut this.wait, cx, |cx| Pin::new(&mut *this.writer).poll_flush(cx))
    }
}

/// The future of [`AsyncWriteExt::close`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Close<'a, W: ?Sized> {
    writer: &'a mut W,
    wait: Wait,
}

impl<W: AsyncWrite + Unpin + ?Sized> Future for Close<'_, W> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        step(&mut this.wait, cx, |cx| Pin::new(&mut *this.writer).poll_close(cx))
    }
}
