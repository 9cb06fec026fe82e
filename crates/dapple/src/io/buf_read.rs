//! What can be done with readers that have a buffer.

use std::borrow::Cow;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::AsyncBufRead;

use super::error::Partial;
use super::lines::{Lines, Split};
use super::step::{is_interrupted, step};
use crate::cancel::wait::Wait;

/// What can be done with readers that have a buffer, as [`BufReader`](super::BufReader).
///
/// From a peer that is not to be trusted, use what has a limit: [`lines`](Self::lines),
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
    /// Waits until there is something in the buffer, or the end has come. Does not take it: call
    /// [`consume`](Self::consume) for that.
    ///
    /// # Errors
    ///
    /// What the reader says; if the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, and what is in the buffer stays.
    fn fill_buf(&mut self) -> FillBuf<'_, Self>
    where
        Self: Unpin,
    {
        FillBuf { reader: Some(self), wait: Wait::default() }
    }

    /// Takes so many bytes out of the buffer.
    fn consume(&mut self, amount: usize)
    where
        Self: Unpin,
    {
        AsyncBufRead::consume(Pin::new(self), amount);
    }

    /// Reads up to `delimiter`, it included, or to the end, and appends it to `into`. Says how many
    /// bytes that was; 0 is the end.
    ///
    /// There is no limit to them; [`read_until_limited`](Self::read_until_limited) has one.
    ///
    /// # Errors
    ///
    /// What the reader says; if the wait was cancelled. What was read by then is in `into`, and
    /// [`how_far`](super::how_far) says how much; calling it again goes on from there.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** to `into` what was read; calling it again goes on.
    /// *Scope cancelled*: returns an error, and what was read is in `into`.
    fn read_until<'a>(&'a mut self, delimiter: u8, into: &'a mut Vec<u8>) -> ReadUntil<'a, Self>
    where
        Self: Unpin,
    {
        self.read_until_limited(delimiter, into, usize::MAX)
    }

    /// As [`read_until`](Self::read_until), and at most `max` bytes.
    ///
    /// # Errors
    ///
    /// As for [`read_until`](Self::read_until); and `InvalidData` if there is no delimiter in `max`
    /// bytes. Those are in `into` then, and the others in the reader.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** to `into` what was read; calling it again goes on.
    /// *Scope cancelled*: returns an error, and what was read is in `into`.
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

    /// Reads a line, `\n` included, or to the end, and appends it to `into`. Says how many bytes that
    /// was; 0 is the end.
    ///
    /// There is no limit to them; [`read_line_limited`](Self::read_line_limited) has one.
    ///
    /// # Errors
    ///
    /// What the reader says; `InvalidData` if it is not UTF-8; if the wait was cancelled. What was read
    /// by then is in `into`, but for the bytes that are no character, or not all of one: those, three at
    /// most, are in [`Partial::rest`]. They are taken from the reader too, so that calling it again goes on
    /// behind them, with the rest of the line.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** to `into` what was read; calling it again goes on. **Lossy** only
    /// if the reader's buffer ended within a character: its first bytes, three at most.
    /// *Scope cancelled*: returns an error, and what was read is in `into`, or in the error.
    fn read_line<'a>(&'a mut self, into: &'a mut String) -> ReadLine<'a, Self>
    where
        Self: Unpin,
    {
        self.read_line_limited(into, usize::MAX)
    }

    /// As [`read_line`](Self::read_line), and at most `max` bytes.
    ///
    /// # Errors
    ///
    /// As for [`read_line`](Self::read_line); and `InvalidData` if the line is longer than `max` bytes.
    /// Those are in `into` then, and the others in the reader.
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

    /// The lines, without their ends, one by one or as a `Stream`. A line may have a mebibyte;
    /// [`Lines::max`] says otherwise.
    fn lines(self) -> Lines<Self>
    where
        Self: Sized,
    {
        Lines::new(self)
    }

    /// The parts between delimiters, one by one or as a `Stream`. A part may have a mebibyte;
    /// [`Split::max`] says otherwise.
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
        let reader = this.reader.as_mut().expect("polled after it was done");
        let filled =
            ready!(step(&mut this.wait, cx, |cx| Pin::new(&mut **reader).poll_fill_buf(cx).map_ok(drop)));
        filled?;
        let reader = this.reader.take().expect("it was there");
        // Asked again, because the first answer borrows for too short a time. It is there now.
        match Pin::new(&mut *reader).poll_fill_buf(cx) {
            Poll::Ready(bytes) => Poll::Ready(bytes),
            Poll::Pending => Poll::Ready(Ok(&[])), // the end, of a reader that does not remember it
        }
    }
}

/// How one read of the buffer ended.
#[derive(PartialEq, Eq)]
pub(super) enum BufferScan {
    /// With the delimiter.
    Delimited,
    /// At the end of what is in the buffer.
    More,
    /// At the limit, and there is more.
    TooLong,
    /// At the end of all.
    End,
    /// Where `sink` would take no more.
    Refused,
}

/// Hands what is in the buffer to `sink`: up to `delimiter`, it included, and at most `max` bytes.
/// `sink` says after how many of the bytes it refuses them, if it does: the others stay in the reader.
/// Says how much was taken.
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
            let len = io::BufRead::skip_until(&mut &*within, delimiter)?; // it looks for it fast
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
    /// The beginning of a character that the reader's buffer has cut in two.
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

/// Appends `bytes` to text, up to a character at its end that is not complete, which is left in `cut`. If
/// something else than a character comes before: says after how many bytes that ends, and leaves it in `cut`.
fn push(into: &mut String, cut: &mut Vec<u8>, bytes: &[u8]) -> Option<usize> {
    let before = cut.len();
    let bytes = if before == 0 { Cow::Borrowed(bytes) } else { Cow::Owned([&cut[..], bytes].concat()) };
    let (len, bad) = match str::from_utf8(&bytes) {
        Ok(_) => (bytes.len(), None),
        Err(error) => (error.valid_up_to(), error.error_len()),
    };
    let (text, rest) = bytes.split_at(len);
    into.push_str(str::from_utf8(text).expect("it was found to be"));
    let rest = bad.map_or(rest, |bad| &rest[..bad]);
    *cut = rest.to_vec();
    // What was cut before could still become a character: it is not longer than what has turned out to be none.
    bad.map(|bad| len + bad - before)
}
