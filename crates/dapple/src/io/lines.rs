//! Lines, and other parts with a delimiter between them.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_io::AsyncBufRead;

use super::buf_read::{BufferScan, not_text, poll_part, too_long};
use super::error::Partial;
use crate::cancel::wait::Wait;

/// The default limit on a part.
const MAX: usize = 1 << 20;

/// The parts between delimiters: [`AsyncBufReadExt::split`](super::AsyncBufReadExt::split).
///
/// It is also a `Stream` of `io::Result<Vec<u8>>`, where `None` only means the end.
///
/// A part that is too long is an error once, and the next item is the next part. The rest of the long part is skipped
/// when the next part is read, and is not stored.
///
/// # Cancellation
///
/// Bytes of a part that were read are kept here when a wait is dropped or cancelled, and the next wait
/// goes on from there.
///
/// # Examples
///
/// ```
/// use dapple::io::{AsyncBufReadExt, BufReader};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let mut parts = BufReader::new(&b"a,b"[..]).split(b',');
///     assert_eq!(parts.next_part().await?.unwrap(), b"a");
///     assert_eq!(parts.next_part().await?.unwrap(), b"b");
///     assert_eq!(parts.next_part().await?, None);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct Split<R> {
    reader: R,
    delimiter: u8,
    max: usize,
    /// The bytes of the next part that were read.
    part: Vec<u8>,
    /// Whether the reader is within a part that was too long.
    is_passing: bool,
    /// The wait of the stream.
    wait: Wait,
}

impl<R> Split<R> {
    pub(super) fn new(reader: R, delimiter: u8) -> Split<R> {
        Split { reader, delimiter, max: MAX, part: Vec::new(), is_passing: false, wait: Wait::default() }
    }

    /// Sets the most bytes that a part may have, with its delimiter. The default is one mebibyte.
    #[must_use = "it gives back the reader with the new maximum"]
    pub fn max(mut self, max: usize) -> Split<R> {
        self.max = max;
        self
    }

    /// The underlying reader.
    pub fn get_ref(&self) -> &R {
        &self.reader
    }

    /// The underlying reader.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.reader
    }

    /// Returns the underlying reader, and the bytes of the next part that were read. After a part that was too long,
    /// the reader may still contain its rest.
    pub fn into_inner(self) -> (R, Vec<u8>) {
        (self.reader, self.part)
    }
}

impl<R: AsyncBufRead + Unpin> Split<R> {
    /// Reads the next part, without its delimiter. Returns `None` at the end.
    ///
    /// # Errors
    ///
    /// Errors of the reader; `InvalidData` if the part is too long: its beginning is in
    /// [`Partial::rest`], its rest is skipped, and the next call returns the next part; an error if the wait was
    /// cancelled ([`is_cancelled`](crate::is_cancelled)). [`how_far`](super::how_far) returns the number of bytes of
    /// the part that were read.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; the bytes that were read are kept.
    /// *Scope cancelled*: returns an error, and the bytes that were read are kept.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncBufReadExt, BufReader};
    ///
    /// # dapple::run(async {
    /// let mut parts = BufReader::new(&b"one\0two"[..]).split(0);
    /// assert_eq!(parts.next_part().await?.as_deref(), Some(&b"one"[..]));
    /// assert_eq!(parts.next_part().await?.as_deref(), Some(&b"two"[..]));
    /// assert_eq!(parts.next_part().await?, None);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn next_part(&mut self) -> NextPart<'_, R> {
        NextPart { split: self, wait: Wait::default() }
    }

    /// Reads the next part, with its delimiter. The last part may have none.
    fn poll_with(&mut self, wait: &mut Wait, cx: &mut Context<'_>) -> Poll<io::Result<Option<Vec<u8>>>> {
        while self.is_passing {
            match ready!(poll_part(&mut self.reader, wait, cx, self.delimiter, usize::MAX, |_| None)) {
                Ok((BufferScan::Delimited, _)) => self.is_passing = false,
                Ok((BufferScan::End, _)) => {
                    self.is_passing = false;
                    return Poll::Ready(Ok(None));
                }
                Ok(_) => {}
                Err(error) => return Poll::Ready(Err(Partial::error(0, Vec::new(), error))),
            }
        }
        loop {
            let part = &mut self.part;
            let left = self.max.saturating_sub(part.len());
            let polled = poll_part(&mut self.reader, wait, cx, self.delimiter, left, |bytes| {
                part.extend_from_slice(bytes);
                None
            });
            return Poll::Ready(match ready!(polled) {
                Ok((BufferScan::End, _)) if self.part.is_empty() => Ok(None),
                Ok((BufferScan::Delimited | BufferScan::End, _)) => Ok(Some(std::mem::take(&mut self.part))),
                Ok((BufferScan::More, _)) => continue,
                Ok((BufferScan::TooLong | BufferScan::Refused, _)) => {
                    self.is_passing = true;
                    let beginning = std::mem::take(&mut self.part);
                    let what = if self.delimiter == b'\n' { "a line" } else { "a part" };
                    Err(Partial::error(beginning.len() as u64, beginning, too_long(what, self.max)))
                }
                Err(error) => Err(Partial::error(self.part.len() as u64, Vec::new(), error)),
            });
        }
    }

    fn poll_as_stream(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Vec<u8>>>> {
        let mut wait = std::mem::take(&mut self.wait);
        let polled = self.poll_with(&mut wait, cx);
        self.wait = wait;
        polled
    }
}

impl<R: AsyncBufRead + Unpin> Stream for Split<R> {
    type Item = io::Result<Vec<u8>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<u8>>>> {
        let part = ready!(self.poll_as_stream(cx))?;
        Poll::Ready(part.map(|part| Ok(without(self.delimiter, part))))
    }
}

fn without(delimiter: u8, mut part: Vec<u8>) -> Vec<u8> {
    part.pop_if(|last| *last == delimiter);
    part
}

/// The future of [`Split::next_part`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct NextPart<'a, R> {
    split: &'a mut Split<R>,
    wait: Wait,
}

impl<R: AsyncBufRead + Unpin> Future for NextPart<'_, R> {
    type Output = io::Result<Option<Vec<u8>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let part = ready!(this.split.poll_with(&mut this.wait, cx))?;
        Poll::Ready(Ok(part.map(|part| without(this.split.delimiter, part))))
    }
}

/// The lines of a reader: [`AsyncBufReadExt::lines`](super::AsyncBufReadExt::lines).
///
/// It is also a `Stream` of `io::Result<String>`, where `None` only means the end.
///
/// A line that is too long is an error once, and the next item is the next line. The rest of the long line is skipped
/// when the next line is read, and is not stored.
///
/// # Cancellation
///
/// Bytes of a line that were read are kept here when a wait is dropped or cancelled, and the next wait
/// goes on from there.
///
/// # Examples
///
/// ```
/// use dapple::io::{AsyncBufReadExt, BufReader};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let reader = BufReader::new(&b"one\r\nfar too long\ntwo\n"[..]);
///     let mut lines = reader.lines().max(8);
///     assert_eq!(lines.next_line().await?.as_deref(), Some("one"));
///     let error = lines.next_line().await.unwrap_err();
///     assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
///     assert_eq!(lines.next_line().await?.as_deref(), Some("two"));
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct Lines<R>(Split<R>);

impl<R> Lines<R> {
    pub(super) fn new(reader: R) -> Lines<R> {
        Lines(Split::new(reader, b'\n'))
    }

    /// Sets the most bytes that a line may have, with its end. The default is one mebibyte.
    #[must_use = "it gives back the reader with the new maximum"]
    pub fn max(self, max: usize) -> Lines<R> {
        Lines(self.0.max(max))
    }

    /// The underlying reader.
    pub fn get_ref(&self) -> &R {
        self.0.get_ref()
    }

    /// The underlying reader.
    pub fn get_mut(&mut self) -> &mut R {
        self.0.get_mut()
    }

    /// Returns the underlying reader, and the bytes of the next line that were read. After a line that was too long,
    /// the reader may still contain its rest.
    pub fn into_inner(self) -> (R, Vec<u8>) {
        self.0.into_inner()
    }
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    /// Reads the next line, without its end (`\n` or `\r\n`). Returns `None` at the end of the reader.
    ///
    /// # Errors
    ///
    /// Errors of the reader; `InvalidData` if the line is too long: its beginning is in
    /// [`Partial::rest`], and its rest is skipped; `InvalidData` if the line is not UTF-8: its bytes are in
    /// [`Partial::rest`]. After either, the next call returns the next line. An error if the wait was cancelled
    /// ([`is_cancelled`](crate::is_cancelled)). [`how_far`](super::how_far) returns the number of bytes of the line
    /// that were read.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; the bytes that were read are kept.
    /// *Scope cancelled*: returns an error, and the bytes that were read are kept.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncBufReadExt, BufReader};
    ///
    /// # dapple::run(async {
    /// let mut lines = BufReader::new(&b"one\r\ntwo"[..]).lines();
    /// assert_eq!(lines.next_line().await?.as_deref(), Some("one"));
    /// assert_eq!(lines.next_line().await?.as_deref(), Some("two"));
    /// assert_eq!(lines.next_line().await?, None);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn next_line(&mut self) -> NextLine<'_, R> {
        NextLine { split: &mut self.0, wait: Wait::default() }
    }
}

impl<R: AsyncBufRead + Unpin> Stream for Lines<R> {
    type Item = io::Result<String>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<String>>> {
        let line = ready!(self.0.poll_as_stream(cx))?;
        Poll::Ready(line.map(into_text))
    }
}

/// A line without its end. A `\r` at the end of a last line that has no `\n` is a part of that line.
fn into_text(mut line: Vec<u8>) -> io::Result<String> {
    if line.pop_if(|last| *last == b'\n').is_some() {
        line.pop_if(|last| *last == b'\r');
    }
    String::from_utf8(line).map_err(|error| {
        let line = error.into_bytes();
        Partial::error(line.len() as u64, line, not_text())
    })
}

/// The future of [`Lines::next_line`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct NextLine<'a, R> {
    split: &'a mut Split<R>,
    wait: Wait,
}

impl<R: AsyncBufRead + Unpin> Future for NextLine<'_, R> {
    type Output = io::Result<Option<String>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let line = ready!(this.split.poll_with(&mut this.wait, cx))?;
        Poll::Ready(line.map(into_text).transpose())
    }
}
