//! Methods of readers.

use std::io::{self, ErrorKind, IoSliceMut};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::AsyncRead;

use super::error::Partial;
use super::frames::Frames;
use super::int::ReadInt;
use super::step::{is_interrupted, step};
use super::{Chain, Take};
use crate::cancel::wait::Wait;

/// The first size of a read where the length is not known, and the largest.
const PROBE: usize = 4 << 10;
const MAX_PROBE: usize = 64 << 10;
/// The size of a read that checks for the end when a vector is full, or almost.
const SMALL: usize = 32;

macro_rules! read_ints {
    ($($(#[$doc:meta])* $name:ident $name_le:ident $int:ty;)*) => {$(
        $(#[$doc])*
        /// Most significant byte first (big-endian).
        ///
        /// # Errors
        ///
        /// As for [`read_exact`](Self::read_exact). [`Partial::rest`] contains the bytes that were
        /// read.
        ///
        /// # Cancellation
        ///
        /// *Dropped early*: **lossy**: the bytes of the number that were read.
        /// *Scope cancelled*: returns an error that contains the bytes that were read.
        fn $name(&mut self) -> ReadInt<'_, Self, $int>
        where
            Self: Unpin,
        {
            ReadInt::new(self, false)
        }

        $(#[$doc])*
        /// Least significant byte first (little-endian).
        ///
        /// # Errors
        ///
        /// As for [`read_exact`](Self::read_exact). [`Partial::rest`] contains the bytes that were
        /// read.
        ///
        /// # Cancellation
        ///
        /// *Dropped early*: **lossy**: the bytes of the number that were read.
        /// *Scope cancelled*: returns an error that contains the bytes that were read.
        fn $name_le(&mut self) -> ReadInt<'_, Self, $int>
        where
            Self: Unpin,
        {
            ReadInt::new(self, true)
        }
    )*};
}

/// Methods of readers: every [`AsyncRead`] has them.
///
/// # Examples
///
/// ```
/// use dapple::io::AsyncReadExt;
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let mut reader = &b"\x00\x05hello, world"[..]; // or a TcpStream
///     let mut word = vec![0; reader.read_u16().await?.into()];
///     reader.read_exact(&mut word).await?;
///     assert_eq!(word, b"hello");
///     let mut rest = String::new();
///     reader.read_to_string(&mut rest).await?;
///     assert_eq!(rest, ", world");
///     Ok(())
/// })
/// # }
/// ```
pub trait AsyncReadExt: AsyncRead {
    /// Reads some bytes, as many as are there and fit, and returns their number. 0 means the end, or an empty
    /// buffer.
    ///
    /// # Errors
    ///
    /// Errors of the reader; an error if the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no byte is lost.
    /// *Scope cancelled*: returns an error, and nothing was read; or the bytes that were there at the
    /// next poll.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::AsyncReadExt;
    ///
    /// # dapple::run(async {
    /// let mut reader = &b"hello"[..];
    /// let mut buffer = [0; 3];
    /// assert_eq!(reader.read(&mut buffer).await?, 3);
    /// assert_eq!(reader.read(&mut buffer).await?, 2); // not filled
    /// assert_eq!(reader.read(&mut buffer).await?, 0); // the end
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    fn read<'a>(&'a mut self, buffer: &'a mut [u8]) -> Read<'a, Self>
    where
        Self: Unpin,
    {
        Read { reader: self, buffer, wait: Wait::default() }
    }

    /// As [`read`](Self::read), into several buffers, one after the other.
    ///
    /// # Errors
    ///
    /// As for [`read`](Self::read).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no byte is lost.
    /// *Scope cancelled*: returns an error, and nothing was read; or the bytes that were there at the
    /// next poll.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::AsyncReadExt;
    /// use std::io::IoSliceMut;
    ///
    /// # dapple::run(async {
    /// let mut reader = &b"headbody"[..];
    /// let (mut head, mut body) = ([0; 4], [0; 4]);
    /// let read = reader.read_vectored(&mut [IoSliceMut::new(&mut head), IoSliceMut::new(&mut body)]).await?;
    /// assert_eq!((read, &head, &body), (8, b"head", b"body"));
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    fn read_vectored<'a>(&'a mut self, buffers: &'a mut [IoSliceMut<'a>]) -> ReadVectored<'a, Self>
    where
        Self: Unpin,
    {
        ReadVectored { reader: self, buffers, wait: Wait::default() }
    }

    /// Fills the buffer.
    ///
    /// # Errors
    ///
    /// Errors of the reader; `UnexpectedEof` if it ends before the buffer is full; an error if the wait was cancelled.
    /// [`how_far`](super::how_far) returns the number of bytes that were filled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the number of bytes that were filled is not known.
    /// *Scope cancelled*: returns an error with that number.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncReadExt, how_far};
    ///
    /// # dapple::run(async {
    /// let mut reader = &b"hello"[..];
    /// let mut word = [0; 4];
    /// reader.read_exact(&mut word).await?;
    /// assert_eq!(&word, b"hell");
    ///
    /// let error = reader.read_exact(&mut word).await.unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
    /// assert_eq!((how_far(&error), word[0]), (Some(1), b'o')); // one byte was read
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    fn read_exact<'a>(&'a mut self, buffer: &'a mut [u8]) -> ReadExact<'a, Self>
    where
        Self: Unpin,
    {
        ReadExact { reader: self, buffer, done: 0, wait: Wait::default() }
    }

    /// Reads until the end, and appends to `into`. Returns the number of bytes.
    ///
    /// There is no limit. If the peer is not trusted, set one with
    /// [`take`](Self::take).
    ///
    /// # Errors
    ///
    /// Errors of the reader; an error if the wait was cancelled. The bytes that were read are in `into`, and
    /// [`how_far`](super::how_far) returns their number.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** to `into` the bytes that were read.
    /// *Scope cancelled*: returns an error, and the bytes that were read are in `into`.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::AsyncReadExt;
    ///
    /// # dapple::run(async {
    /// let mut reader = (&b"hello"[..]).take(1 << 20); // bounds how much a peer can make you keep
    /// let mut bytes = Vec::new();
    /// assert_eq!(reader.read_to_end(&mut bytes).await?, 5);
    /// assert_eq!(bytes, b"hello");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    fn read_to_end<'a>(&'a mut self, into: &'a mut Vec<u8>) -> ReadToEnd<'a, Self>
    where
        Self: Unpin,
    {
        let growth = Growth::of(into);
        ReadToEnd { reader: self, into, done: 0, growth, wait: Wait::default() }
    }

    /// Reads text until the end, and appends it to `into`. Returns its length in bytes.
    ///
    /// # Errors
    ///
    /// Errors of the reader; `InvalidData` if the text is not UTF-8; an error if the wait was cancelled. `into` is then
    /// unchanged, and all bytes that were read are in [`Partial::rest`].
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the bytes that were read; and if `into` was empty, its capacity.
    /// *Scope cancelled*: returns an error that contains the bytes that were read.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::AsyncReadExt;
    ///
    /// # dapple::run(async {
    /// let mut text = String::from("> ");
    /// (&b"hello"[..]).read_to_string(&mut text).await?;
    /// assert_eq!(text, "> hello");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    fn read_to_string<'a>(&'a mut self, into: &'a mut String) -> ReadToString<'a, Self>
    where
        Self: Unpin,
    {
        // An empty string lends its memory. One that is not empty must stay as it is if this fails.
        let bytes = if into.is_empty() { std::mem::take(into).into_bytes() } else { Vec::new() };
        let growth = Growth::of(&bytes);
        ReadToString { reader: self, into, bytes, growth, wait: Wait::default() }
    }

    /// Makes a reader that ends after `limit` bytes, or where this reader ends.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::AsyncReadExt;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// dapple::run(async {
    ///     let mut body = Vec::new();
    ///     let untrusted = &b"far too long"[..];
    ///     untrusted.take(3).read_to_end(&mut body).await?;
    ///     assert_eq!(body, b"far");
    ///     Ok(())
    /// })
    /// # }
    /// ```
    fn take(self, limit: u64) -> Take<Self>
    where
        Self: Sized,
    {
        Take::new(self, limit)
    }

    /// Makes a reader that reads this one to its end, and then `next`.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::AsyncReadExt;
    ///
    /// dapple::run(async {
    ///     let mut text = String::new();
    ///     let mut both = (&b"head, "[..]).chain(&b"body"[..]);
    ///     both.read_to_string(&mut text).await.unwrap();
    ///     assert_eq!(text, "head, body");
    /// });
    /// ```
    fn chain<R: AsyncRead>(self, next: R) -> Chain<Self, R>
    where
        Self: Sized,
    {
        Chain::new(self, next)
    }

    /// Reads one byte.
    ///
    /// # Errors
    ///
    /// As for [`read_exact`](Self::read_exact).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, and nothing was read.
    fn read_u8(&mut self) -> ReadInt<'_, Self, u8>
    where
        Self: Unpin,
    {
        ReadInt::new(self, false)
    }

    /// Reads one signed byte.
    ///
    /// # Errors
    ///
    /// As for [`read_exact`](Self::read_exact).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, and nothing was read.
    fn read_i8(&mut self) -> ReadInt<'_, Self, i8>
    where
        Self: Unpin,
    {
        ReadInt::new(self, false)
    }

    /// Splits the stream into frames, which begin with their length; see [`Frames`]. Read them one by one, or as a
    /// `Stream`. A frame may have up to a mebibyte; change that with [`Frames::max`].
    fn frames(self) -> Frames<Self>
    where
        Self: Sized,
    {
        Frames::new(self)
    }

    read_ints! {
        /// Reads an unsigned number of two bytes.
        read_u16 read_u16_le u16;
        /// Reads an unsigned number of four bytes.
        read_u32 read_u32_le u32;
        /// Reads an unsigned number of eight bytes.
        read_u64 read_u64_le u64;
        /// Reads an unsigned number of sixteen bytes.
        read_u128 read_u128_le u128;
        /// Reads a signed number of two bytes.
        read_i16 read_i16_le i16;
        /// Reads a signed number of four bytes.
        read_i32 read_i32_le i32;
        /// Reads a signed number of eight bytes.
        read_i64 read_i64_le i64;
        /// Reads a signed number of sixteen bytes.
        read_i128 read_i128_le i128;
        /// Reads a floating-point number of four bytes.
        read_f32 read_f32_le f32;
        /// Reads a floating-point number of eight bytes.
        read_f64 read_f64_le f64;
    }
}

impl<R: AsyncRead + ?Sized> AsyncReadExt for R {}

/// The future of [`AsyncReadExt::read`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Read<'a, R: ?Sized> {
    reader: &'a mut R,
    buffer: &'a mut [u8],
    wait: Wait,
}

impl<R: AsyncRead + Unpin + ?Sized> Future for Read<'_, R> {
    type Output = io::Result<usize>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        step(&mut this.wait, cx, |cx| Pin::new(&mut *this.reader).poll_read(cx, this.buffer))
    }
}

/// The future of [`AsyncReadExt::read_vectored`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct ReadVectored<'a, R: ?Sized> {
    reader: &'a mut R,
    buffers: &'a mut [IoSliceMut<'a>],
    wait: Wait,
}

impl<R: AsyncRead + Unpin + ?Sized> Future for ReadVectored<'_, R> {
    type Output = io::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        step(&mut this.wait, cx, |cx| Pin::new(&mut *this.reader).poll_read_vectored(cx, this.buffers))
    }
}

/// The future of [`AsyncReadExt::read_exact`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct ReadExact<'a, R: ?Sized> {
    reader: &'a mut R,
    buffer: &'a mut [u8],
    done: usize,
    wait: Wait,
}

impl<R: AsyncRead + Unpin + ?Sized> Future for ReadExact<'_, R> {
    type Output = io::Result<()>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let filled = ready!(poll_fill(this.reader, &mut this.wait, cx, this.buffer, &mut this.done));
        Poll::Ready(match filled {
            Ok(Filled::Wholly) => Ok(()),
            Ok(Filled::Partly) => Err(ended_early(this.done, Vec::new(), this.buffer.len())),
            Err(error) => Err(Partial::error(this.done as u64, Vec::new(), error)),
        })
    }
}

/// The result of filling a buffer.
pub(super) enum Filled {
    Wholly,
    /// The reader ended before the buffer was full.
    Partly,
}

pub(super) fn ended_early(done: usize, rest: Vec<u8>, wanted: usize) -> io::Error {
    let message = format!("the reader ended before the {wanted} bytes that were asked for");
    Partial::error(done as u64, rest, io::Error::new(ErrorKind::UnexpectedEof, message))
}

/// Fills `buffer` from `done` on.
#[inline]
pub(super) fn poll_fill<R: AsyncRead + Unpin + ?Sized>(
    reader: &mut R,
    wait: &mut Wait,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
    done: &mut usize,
) -> Poll<io::Result<Filled>> {
    while *done < buffer.len() {
        let read = ready!(step(wait, cx, |cx| Pin::new(&mut *reader).poll_read(cx, &mut buffer[*done..])));
        if is_interrupted(&read) {
            continue;
        }
        match read? {
            0 => return Poll::Ready(Ok(Filled::Partly)),
            n => *done += n,
        }
    }
    Poll::Ready(Ok(Filled::Wholly))
}

/// The future of [`AsyncReadExt::read_to_end`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct ReadToEnd<'a, R: ?Sized> {
    reader: &'a mut R,
    into: &'a mut Vec<u8>,
    done: usize,
    growth: Growth,
    wait: Wait,
}

impl<R: AsyncRead + Unpin + ?Sized> Future for ReadToEnd<'_, R> {
    type Output = io::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        loop {
            match ready!(poll_more(this.reader, &mut this.wait, cx, this.into, &mut this.growth)) {
                Ok(0) => return Poll::Ready(Ok(this.done)),
                Ok(n) => this.done += n,
                Err(error) => {
                    return Poll::Ready(Err(Partial::error(this.done as u64, Vec::new(), error)));
                }
            }
        }
    }
}

/// The future of [`AsyncReadExt::read_to_string`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct ReadToString<'a, R: ?Sized> {
    reader: &'a mut R,
    into: &'a mut String,
    bytes: Vec<u8>,
    growth: Growth,
    wait: Wait,
}

impl<R: ?Sized> ReadToString<'_, R> {
    /// Appends the bytes that were read, if they are UTF-8.
    fn end(&mut self) -> Result<usize, std::str::Utf8Error> {
        if self.into.is_empty() {
            *self.into = String::from_utf8(std::mem::take(&mut self.bytes)).map_err(|error| {
                let cause = error.utf8_error();
                self.bytes = error.into_bytes();
                cause
            })?;
            return Ok(self.into.len());
        }
        let text = str::from_utf8(&self.bytes)?;
        self.into.push_str(text);
        Ok(text.len())
    }
}

impl<R: AsyncRead + Unpin + ?Sized> Future for ReadToString<'_, R> {
    type Output = io::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        loop {
            let read = ready!(poll_more(this.reader, &mut this.wait, cx, &mut this.bytes, &mut this.growth));
            let error = match read {
                Ok(0) => match this.end() {
                    Ok(len) => return Poll::Ready(Ok(len)),
                    Err(error) => io::Error::new(ErrorKind::InvalidData, error),
                },
                Ok(_) => continue,
                Err(error) => error,
            };
            let bytes = std::mem::take(&mut this.bytes);
            return Poll::Ready(Err(Partial::error(bytes.len() as u64, bytes, error)));
        }
    }
}

/// Appends the bytes of one read. Afterwards `into` contains nothing else, also after an error or a panic.
fn poll_more<R: AsyncRead + Unpin + ?Sized>(
    reader: &mut R,
    wait: &mut Wait,
    cx: &mut Context<'_>,
    into: &mut Vec<u8>,
    growth: &mut Growth,
) -> Poll<io::Result<usize>> {
    let mut more = More { len: into.len(), into };
    loop {
        let room = more.into.capacity() - more.len;
        let is_given = more.into.capacity() == growth.given;
        if is_given && room < SMALL && growth.given > 0 {
            // The caller may have made room for exactly the bytes there are, so the check for the end uses `small`.
            let mut small = [0; SMALL];
            let read = ready!(step(wait, cx, |cx| Pin::new(&mut *reader).poll_read(cx, &mut small)));
            if is_interrupted(&read) {
                continue;
            }
            let n = read?.min(SMALL);
            more.into.extend_from_slice(&small[..n]);
            more.len += n;
            return Poll::Ready(Ok(n));
        }
        let wanted = if is_given && room > 0 { room } else { room.max(growth.probe) }.min(growth.most);
        more.into.resize(more.len + wanted, 0);
        let read =
            ready!(step(wait, cx, |cx| { Pin::new(&mut *reader).poll_read(cx, &mut more.into[more.len..]) }));
        if is_interrupted(&read) {
            continue;
        }
        let n = read?;
        growth.note(n, wanted);
        more.len += n;
        return Poll::Ready(Ok(n));
    }
}

/// The growth of a vector that a reader is read into.
#[derive(Debug)]
struct Growth {
    /// The capacity that the caller has given it.
    given: usize,
    /// The room that is added at a time, once the vector is full. It grows while all of it is used.
    probe: usize,
    /// The size of a read. The room is zeroed before, so the size shrinks if little of it is used.
    most: usize,
}

impl Growth {
    fn of(into: &Vec<u8>) -> Growth {
        Growth { given: into.capacity(), probe: PROBE, most: MAX_PROBE }
    }

    /// Adapts to a read of `read` bytes with room for `wanted`.
    fn note(&mut self, read: usize, wanted: usize) {
        if read >= wanted {
            self.probe = (wanted * 2).clamp(self.probe, MAX_PROBE);
            self.most = (self.most * 2).min(MAX_PROBE);
        } else if read < wanted / 8 {
            self.most = (wanted / 2).max(PROBE);
        }
    }
}

/// A vector that is being read into. Drop truncates it to the bytes that were read.
struct More<'a> {
    into: &'a mut Vec<u8>,
    len: usize,
}

impl Drop for More<'_> {
    fn drop(&mut self) {
        self.into.truncate(self.len);
    }
}
