//! What can be done with everything that is read.

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

/// How much is read at first where the length is not known, and at most.
const PROBE: usize = 4 << 10;
const MAX_PROBE: usize = 64 << 10;
/// How much is read to see whether a vector that is full, or almost, was given room for all.
const SMALL: usize = 32;

macro_rules! read_ints {
    ($($(#[$doc:meta])* $name:ident $name_le:ident $int:ty;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        ///
        /// As for [`read_exact`](Self::read_exact); the bytes that were read are in
        /// [`Partial::rest`].
        ///
        /// # Cancellation
        ///
        /// *Dropped early*: **lossy**, if a part of the number was read.
        /// *Scope cancelled*: returns an error that has the bytes that were read.
        fn $name(&mut self) -> ReadInt<'_, Self, $int>
        where
            Self: Unpin,
        {
            ReadInt::new(self, false)
        }

        $(#[$doc])*
        /// Least significant byte first.
        ///
        /// # Errors
        ///
        /// As for [`read_exact`](Self::read_exact); the bytes that were read are in
        /// [`Partial::rest`].
        ///
        /// # Cancellation
        ///
        /// *Dropped early*: **lossy**, if a part of the number was read.
        /// *Scope cancelled*: returns an error that has the bytes that were read.
        fn $name_le(&mut self) -> ReadInt<'_, Self, $int>
        where
            Self: Unpin,
        {
            ReadInt::new(self, true)
        }
    )*};
}

/// What can be done with everything that is read.
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
    /// Reads some bytes, as many as there are and fit, and says how many; 0 is the end, or an empty
    /// buffer.
    ///
    /// # Errors
    ///
    /// What the reader says; if the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no byte is lost.
    /// *Scope cancelled*: returns an error, and nothing was read; or what was there when it was polled
    /// again.
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
    /// *Scope cancelled*: returns an error, and nothing was read; or what was there when it was polled
    /// again.
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
    /// What the reader says; `UnexpectedEof` if it ends before; if the wait was cancelled. How many
    /// bytes of the buffer were filled by then, [`how_far`](super::how_far) says.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**, in that nobody knows how much of the buffer was filled.
    /// *Scope cancelled*: returns an error that says how much.
    fn read_exact<'a>(&'a mut self, buffer: &'a mut [u8]) -> ReadExact<'a, Self>
    where
        Self: Unpin,
    {
        ReadExact { reader: self, buffer, done: 0, wait: Wait::default() }
    }

    /// Reads until the end, and appends to `into`. Says how many bytes they were.
    ///
    /// There is no limit to them. From a peer that is not to be trusted,
    /// [`take`](Self::take) what there is memory for.
    ///
    /// # Errors
    ///
    /// What the reader says; if the wait was cancelled. What was read by then is in `into`, and
    /// [`how_far`](super::how_far) says how much it is.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** to `into` what was read.
    /// *Scope cancelled*: returns an error, and what was read is in `into`.
    fn read_to_end<'a>(&'a mut self, into: &'a mut Vec<u8>) -> ReadToEnd<'a, Self>
    where
        Self: Unpin,
    {
        let growth = Growth::of(into);
        ReadToEnd { reader: self, into, done: 0, growth, wait: Wait::default() }
    }

    /// Reads text until the end, and appends it to `into`. Says how many bytes it was.
    ///
    /// # Errors
    ///
    /// What the reader says; `InvalidData` if it is not UTF-8; if the wait was cancelled. `into` is as
    /// it was then, and all that was read is in [`Partial::rest`].
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: what was read.
    /// *Scope cancelled*: returns an error that has what was read.
    fn read_to_string<'a>(&'a mut self, into: &'a mut String) -> ReadToString<'a, Self>
    where
        Self: Unpin,
    {
        // A text that is empty lends its memory; one that is not must stay as it is if this fails.
        let bytes = if into.is_empty() { std::mem::take(into).into_bytes() } else { Vec::new() };
        let growth = Growth::of(&bytes);
        ReadToString { reader: self, into, bytes, growth, wait: Wait::default() }
    }

    /// A reader that ends after `limit` bytes, or where this one does.
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

    /// A reader of this, and then of `next`.
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

    /// Reads one byte, with a sign.
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

    /// The frames, parts that begin with their length, one by one or as a `Stream`. A frame may have a
    /// mebibyte; [`Frames::max`] says otherwise.
    fn frames(self) -> Frames<Self>
    where
        Self: Sized,
    {
        Frames::new(self)
    }

    read_ints! {
        /// Reads a number of two bytes.
        read_u16 read_u16_le u16;
        /// Reads a number of four bytes.
        read_u32 read_u32_le u32;
        /// Reads a number of eight bytes.
        read_u64 read_u64_le u64;
        /// Reads a number of sixteen bytes.
        read_u128 read_u128_le u128;
        /// Reads a number of two bytes, with a sign.
        read_i16 read_i16_le i16;
        /// Reads a number of four bytes, with a sign.
        read_i32 read_i32_le i32;
        /// Reads a number of eight bytes, with a sign.
        read_i64 read_i64_le i64;
        /// Reads a number of sixteen bytes, with a sign.
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

/// How far a buffer was filled.
pub(super) enum Filled {
    Wholly,
    /// The reader has ended before.
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
    /// Appends what was read, if it is text.
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

/// Appends what one read gives. `into` has nothing else in it afterwards, whatever happens.
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
            // The caller may have made room for exactly what there is: the end is looked for elsewhere.
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

/// How a vector grows that is read into.
#[derive(Debug)]
struct Growth {
    /// The capacity that the caller has given it.
    given: usize,
    /// How much room is made at a time, once that is full: more and more, as long as all of it is used.
    probe: usize,
    /// How much is read at a time. It is written with zeros before: less and less, if little of it is used.
    most: usize,
}

impl Growth {
    fn of(into: &Vec<u8>) -> Growth {
        Growth { given: into.capacity(), probe: PROBE, most: MAX_PROBE }
    }

    /// So much was read of what there was room for.
    fn note(&mut self, read: usize, wanted: usize) {
        if read >= wanted {
            self.probe = (wanted * 2).clamp(self.probe, MAX_PROBE);
            self.most = (self.most * 2).min(MAX_PROBE);
        } else if read < wanted / 8 {
            self.most = (wanted / 2).max(PROBE);
        }
    }
}

/// Takes off what was made room for and not used.
struct More<'a> {
    into: &'a mut Vec<u8>,
    len: usize,
}

impl Drop for More<'_> {
    fn drop(&mut self) {
        self.into.truncate(self.len);
    }
}
