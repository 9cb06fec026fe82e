//! Methods of readers that have a buffer.

use std::borrow::Cow;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::AsyncBufRead;

use super::error::Partial;
use super::lines::{Lines, Split};
use super::step::{is_interrupted, step};
use crate::cancel::wait::Wait;

/// Methods of readers that have a buffer, as [`BufReader`](super::BufReader).
///
/// If the peer is not trusted, use the methods that have a limit: [`lines`](Self::lines),
/// [`split`](Self::split), [`read_line_limited`](Self::read_line_limited) and
/// [`read_until_limited`](Self::read_until_limited).
///
/// # Examples
///
/// ```
/// use dapple::io::AsyncBufReadExt;
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let mut reader = &b"key=value\nmore"[..]; // or a BufReader
///     let mut key = Vec::new();
///     reader.read_until(b'=', &mut key).await?;
///     assert_eq!(key, b"key=");
///     let mut line = String::new();
///     reader.read_line(&mut line).await?;
///     assert_eq!(line, "value\n");
///     Ok(())
/// })
/// # }
/// ```
pub trait AsyncBufReadExt: AsyncBufRead {
    /// Waits until the buffer has bytes, or the reader has ended, and returns the buffer. The bytes stay in it until
    /// [`consume`](Self::consume) is called.
    ///
    /// # Errors
    ///
    /// Errors of the reader; an error if the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, and the bytes in the buffer stay.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncBufReadExt, BufReader};
    ///
    /// # dapple::run(async {
    /// let mut reader = BufReader::new(&b"key: value"[..]);
    /// let colon = reader.fill_buf().await?.iter().position(|byte| *byte == b':').unwrap(); // looks at the bytes
    /// reader.consume(colon + 1); // and takes some of them
    /// assert_eq!(reader.fill_buf().await?, b" value");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    fn fill_buf(&mut self) -> FillBuf<'_, Self>
    where
        Self: Unpin,
    {
        FillBuf { reader: Some(self), wait: Wait::default() }
    }

    /// Takes `amount` bytes out of the buffer.
    fn consume(&mut self, amount: usize)
    where
        Self: Unpin,
    {
        AsyncBufRead::consume(Pin::new(self), amount);
    }

    /// Reads up to and including `delimiter`, or to the end, and appends the bytes to `into`. Returns their
    /// number; 0 means the end.
    ///
    /// There is no limit; [`read_until_limited`](Self::read_until_limited) has one.
    ///
    /// # Errors
    ///
    /// Errors of the reader; an error if the wait was cancelled. The bytes that were read are in `into`, and
    /// [`how_far`](super::how_far) returns their number. Another call goes on from there.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** to `into` the bytes that were read; another call goes on from there.
    /// *Scope cancelled*: returns an error, and the bytes that were read are in `into`.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncBufReadExt, BufReader};
    ///
    /// # dapple::run(async {
    /// let mut reader = BufReader::new(&b"one;two"[..]);
    /// let mut part = Vec::new();
    /// reader.read_until(b';', &mut part).await?;
    /// assert_eq!(part, b"one;");
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    fn read_until<'a>(&'a mut self, delimiter: u8, into: &'a mut Vec<u8>) -> ReadUntil<'a, Self>
    where
        Self: Unpin,
    {
        self.read_until_limited(delimiter, into, usize::MAX)
    }

    /// As [`read_until`](Self::read_until), with a limit of `max` bytes.
    ///
    /// # Errors
    ///
    /// As for [`read_until`](Self::read_until); and `InvalidData` if there is no delimiter in `max`
    /// bytes. Those bytes are then in `into`, and the others stay in the reader.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** to `into` the bytes that were read; another call goes on from there.
    /// *Scope cancelled*: returns an error, and the bytes that were read are in `into`.
    fn read_until_limited<'a>(
        &'a mut self,
        delimiter: u8,
        into: &'a mut Vec<u8>,
        max: usize,
    ) -> ReadUntil<'a, Self>
    where
        Self: Unpin,
    {
        ReadUntil { reader: self, delimiter, into, max, done: 0, wait: Wait::default() }
    }

    /// Reads a line, including `\n`, or to the end, and appends it to `into`. Returns its length in bytes;
    /// 0 means the end.
    ///
    /// There is no limit; [`read_line_limited`](Self::read_line_limited) has one.
    ///
    /// # Errors
    ///
    /// Errors of the reader; `InvalidData` if the line is not UTF-8; an error if the wait was cancelled. The text that
    /// was read is in `into`, except for the bytes of an invalid or incomplete character: those, three at
    /// most, are in [`Partial::rest`]. They are taken from the reader, too, so another call goes on
    /// after them, with the rest of the line.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** to `into` the text that was read; another call goes on from there. **Lossy** only
    /// if the reader's buffer ended within a character: its first bytes, three at most.
    /// *Scope cancelled*: returns an error, and the text that was read is in `into`, or in the error.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncBufReadExt, BufReader};
    ///
    /// # dapple::run(async {
    /// let mut reader = BufReader::new(&b"one\ntwo"[..]);
    /// let mut line = String::new();
    /// assert_eq!(reader.read_line(&mut line).await?, 4);
    /// assert_eq!(line, "one\n"); // with its end, unlike `lines`
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    fn read_line<'a>(&'a mut self, into: &'a mut String) -> ReadLine<'a, Self>
    where
        Self: Unpin,
    {
        self.read_line_limited(into, usize::MAX)
    }

    /// As [`read_line`](Self::read_line), with a limit of `max` bytes.
    ///
    /// # Errors
    ///
    /// As for [`read_line`](Self::read_line); and `InvalidData` if the line is longer than `max` bytes.
    /// The first `max` bytes are then in `into`, and the others stay in the reader.
    ///
    /// # Cancellation
    ///
    /// As for [`read_line`](Self::read_line).
    fn read_line_limited<'a>(&'a mut self, into: &'a mut String, max: usize) -> ReadLine<'a, Self>
    where
        Self: Unpin,
    {
        ReadLine { reader: self, into, max, done: 0, cut: Vec::new(), wait: Wait::default() }
    }

    /// Splits the stream into lines, without their ends. Read them one by one, or as a `Stream`. A line may have up to a
    /// mebibyte; change that with [`Lines::max`].
    fn lines(self) -> Lines<Self>
    where
        Self: Sized,
    {
        Lines::new(self)
    }

    /// Splits the stream at delimiters. Read the parts one by one, or as a `Stream`. A part may have up to a mebibyte;
    /// change that with [`Split::max`].
    fn split(self, delimiter: u8) -> Split<Self>
    where
        Self: Sized,
    {
        Split::new(self, delimiter)
    }
}

impl<R: AsyncBufRead + ?Sized> AsyncBufReadExt for R {}

/// The future of [`AsyncBufReadExt::fill_buf`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct FillBuf<'a, R: ?Sized> {
    reader: Option<&'a mut R>,
    wait: Wait,
}

impl<'a, R: AsyncBufRead + Unpin + ?Sized> Future for FillBuf<'a, R> {
    type Output = io::Result<&'a [u8]>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&'a [u8]>> {
        let this = &mut *self;
        let reader = this.reader.as_mut().expect("`FillBuf` was polled after it had returned");
        let filled =
            ready!(step(&mut this.wait, cx, |cx| Pin::new(&mut **reader).poll_fill_buf(cx).map_ok(drop)));
        filled?;
        let reader = this.reader.take().expect("the reader is there until this returns");
        // Polled again, because the first result borrows for too short a time. The bytes are there now.
        match Pin::new(&mut *reader).poll_fill_buf(cx) {
            Poll::Ready(bytes) => Poll::Ready(bytes),
            Poll::Pending => Poll::Ready(Ok(&[])), // the reader had ended, and does not remember it
        }
    }
}

/// The result of one scan of the buffer.
#[derive(PartialEq, Eq)]
pub(super) enum BufferScan {
    /// The delimiter was found.
    Delimited,
    /// The buffer ended.
    More,
    /// The limit was reached, and there is more.
    TooLong,
    /// The reader ended.
    End,
    /// `sink` accepted no more.
    Refused,
}

/// Passes the bytes in the buffer to `sink`: up to and including `delimiter`, and at most `max` bytes.
/// If `sink` refuses some, it returns the number of bytes that it accepted, and the others stay in the reader.
/// Returns the number of bytes that were taken.
#[inline]
pub(super) fn poll_part<R: AsyncBufRead + Unpin + ?Sized>(
    reader: &mut R,
    wait: &mut Wait,
    cx: &mut Context<'_>,
    delimiter: u8,
    max: usize,
    mut sink: impl FnMut(&[u8]) -> Option<usize>,
) -> Poll<io::Result<(BufferScan, usize)>> {
    loop {
        let part = ready!(step(wait, cx, |cx| {
            let bytes = ready!(Pin::new(&mut *reader).poll_fill_buf(cx))?;
            let within = &bytes[..bytes.len().min(max)];
            let len = io::BufRead::skip_until(&mut &*within, delimiter)?; // a fast search
            let part = match len.checked_sub(1) {
                Some(last) if within[last] == delimiter => BufferScan::Delimited,
                _ if bytes.is_empty() => BufferScan::End,
                _ if within.len() < bytes.len() => BufferScan::TooLong,
                _ => BufferScan::More,
            };
            let refused = sink(&within[..len]);
            Poll::Ready(Ok(refused.map_or((part, len), |len| (BufferScan::Refused, len))))
        }));
        if is_interrupted(&part) {
            continue;
        }
        let (part, len) = part?;
        AsyncBufRead::consume(Pin::new(&mut *reader), len);
        return Poll::Ready(Ok((part, len)));
    }
}

pub(super) fn too_long(what: &str, max: usize) -> io::Error {
    let message = format!("{what} of more than {max} bytes: raise the maximum if that can be right");
    io::Error::new(ErrorKind::InvalidData, message)
}

/// The future of [`AsyncBufReadExt::read_until`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct ReadUntil<'a, R: ?Sized> {
    reader: &'a mut R,
    delimiter: u8,
    into: &'a mut Vec<u8>,
    max: usize,
    done: usize,
    wait: Wait,
}

impl<R: AsyncBufRead + Unpin + ?Sized> Future for ReadUntil<'_, R> {
    type Output = io::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        loop {
            let into = &mut *this.into;
            let left = this.max - this.done;
            let part = poll_part(this.reader, &mut this.wait, cx, this.delimiter, left, |bytes| {
                into.extend_from_slice(bytes);
                None
            });
            let error = match ready!(part) {
                Ok((part, len)) => {
                    this.done += len;
                    match part {
                        BufferScan::Delimited | BufferScan::End => return Poll::Ready(Ok(this.done)),
                        BufferScan::More => continue,
                        BufferScan::TooLong | BufferScan::Refused => too_long("a part", this.max),
                    }
                }
                Err(error) => error,
            };
            return Poll::Ready(Err(Partial::error(this.done as u64, Vec::new(), error)));
        }
    }
}

/// The future of [`AsyncBufReadExt::read_line`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct ReadLine<'a, R: ?Sized> {
    reader: &'a mut R,
    into: &'a mut String,
    max: usize,
    done: usize,
    /// The first bytes of a character that the reader's buffer has split.
    cut: Vec<u8>,
    wait: Wait,
}

impl<R: AsyncBufRead + Unpin + ?Sized> Future for ReadLine<'_, R> {
    type Output = io::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        loop {
            let (into, cut) = (&mut *this.into, &mut this.cut);
            let left = this.max - this.done;
            let part =
                poll_part(this.reader, &mut this.wait, cx, b'\n', left, |bytes| push(into, cut, bytes));
            let error = match ready!(part) {
                Ok((part, len)) => {
                    this.done += len;
                    match part {
                        BufferScan::Refused => not_text(),
                        BufferScan::End if !this.cut.is_empty() => not_text(),
                        BufferScan::Delimited | BufferScan::End => return Poll::Ready(Ok(this.done)),
                        BufferScan::More => continue,
                        BufferScan::TooLong => too_long("a line", this.max),
                    }
                }
                Err(error) => error,
            };
            let cut = std::mem::take(&mut this.cut);
            return Poll::Ready(Err(Partial::error(this.done as u64, cut, error)));
        }
    }
}

pub(super) fn not_text() -> io::Error {
    io::Error::new(ErrorKind::InvalidData, "a line that is not UTF-8: read_until and split take any bytes")
}

/// Appends `bytes` to the text. An incomplete character at the end stays in `cut`. At an invalid character, returns the
/// number of bytes up to its end, and leaves its bytes in `cut`.
fn push(into: &mut String, cut: &mut Vec<u8>, bytes: &[u8]) -> Option<usize> {
    let before = cut.len();
    let bytes = if before == 0 { Cow::Borrowed(bytes) } else { Cow::Owned([&cut[..], bytes].concat()) };
    let (len, bad) = match str::from_utf8(&bytes) {
        Ok(_) => (bytes.len(), None),
        Err(error) => (error.valid_up_to(), error.error_len()),
    };
    let (text, rest) = bytes.split_at(len);
    into.push_str(str::from_utf8(text).expect("`valid_up_to` bounds it"));
    let rest = bad.map_or(rest, |bad| &rest[..bad]);
    *cut = rest.to_vec();
    // `cut` was a valid beginning of a character, so the invalid sequence does not end before `cut` does.
    bad.map(|bad| len + bad - before)
}
