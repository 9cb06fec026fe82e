//! Frames: messages that begin with their length.

use std::io::{self, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use futures_io::{AsyncRead, AsyncWrite};

use super::error::Partial;
use super::read::{Filled, ended_early, poll_fill};
use super::step::{is_interrupted, step};
use super::write::takes_no_more;
use crate::cancel::wait::Wait;

/// The default limit on a frame.
const MAX: usize = 1 << 20;
/// The room that is made at a time, so that a peer that only announces a large frame gets little memory.
const ROOM: usize = 64 << 10;

/// The encoding of the length at the beginning of a frame.
///
/// # Examples
///
/// ```
/// use dapple::io::{AsyncReadExt, AsyncWriteExt, Prefix};
///
/// dapple::run(async {
///     let mut bytes = Vec::new();
///     bytes.write_frame(Prefix::U16, b"hello").await.unwrap();
///     assert_eq!(bytes, b"\x00\x05hello");
///     let mut frames = (&bytes[..]).frames().prefix(Prefix::U16);
///     assert_eq!(frames.next_frame().await.unwrap(), Some(b"hello".to_vec()));
/// });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Prefix {
    /// One byte.
    U8,
    /// Two bytes, most significant first.
    U16,
    /// Two bytes, least significant first.
    U16Le,
    /// Four bytes, most significant first.
    #[default]
    U32,
    /// Four bytes, least significant first.
    U32Le,
    /// Eight bytes, most significant first.
    U64,
    /// Eight bytes, least significant first.
    U64Le,
}

impl Prefix {
    fn len(self) -> usize {
        match self {
            Prefix::U8 => 1,
            Prefix::U16 | Prefix::U16Le => 2,
            Prefix::U32 | Prefix::U32Le => 4,
            Prefix::U64 | Prefix::U64Le => 8,
        }
    }

    fn is_little(self) -> bool {
        matches!(self, Prefix::U16Le | Prefix::U32Le | Prefix::U64Le)
    }

    /// Decodes the length from the first bytes.
    fn read(self, mut bytes: [u8; 8]) -> u64 {
        if self.is_little() {
            bytes[..self.len()].reverse();
        }
        bytes[..self.len()].iter().fold(0, |length, byte| length << 8 | u64::from(*byte))
    }

    /// Encodes the length into the first bytes; `None` if it does not fit.
    fn write(self, length: usize) -> Option<[u8; 8]> {
        let length = length as u64;
        let bits = self.len() * 8;
        if bits < 64 && length >> bits != 0 {
            return None;
        }
        let mut bytes = length.to_be_bytes();
        bytes.rotate_left(8 - self.len());
        if self.is_little() {
            bytes[..self.len()].reverse();
        }
        Some(bytes)
    }
}

/// The frames of a reader: [`AsyncReadExt::frames`](super::AsyncReadExt::frames).
///
/// It is also a `Stream` of `io::Result<Vec<u8>>`. A frame that is too long, or cut off by the end of the reader, is an
/// error once. After it there is no next frame, because its beginning is not known.
///
/// # Cancellation
///
/// Bytes of a frame that were read are kept here when a wait is dropped or cancelled, and the next wait
/// goes on from there.
///
/// # Examples
///
/// ```
/// use dapple::io::{AsyncReadExt, AsyncWriteExt, Prefix};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let mut there = Vec::new(); // or a TcpStream
///     there.write_frame(Prefix::U32, b"hello").await?;
///     assert_eq!(there, b"\0\0\0\x05hello");
///
///     let mut frames = (&there[..]).frames().max(64 << 10);
///     assert_eq!(frames.next_frame().await?.unwrap(), b"hello");
///     assert_eq!(frames.next_frame().await?, None);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct Frames<R> {
    reader: R,
    prefix: Prefix,
    max: usize,
    head: [u8; 8],
    head_done: usize,
    /// The frame, as far as room has been made for it.
    body: Vec<u8>,
    body_done: usize,
    /// Whether a frame was too long, or cut short.
    is_over: bool,
    /// The wait of the stream.
    wait: Wait,
}

impl<R> Frames<R> {
    pub(super) fn new(reader: R) -> Frames<R> {
        let (head, body) = ([0; 8], Vec::new());
        let (prefix, wait) = (Prefix::default(), Wait::default());
        Frames { reader, prefix, max: MAX, head, head_done: 0, body, body_done: 0, is_over: false, wait }
    }

    /// Sets the encoding of the length. The default is four bytes, most significant first.
    #[must_use = "it gives back the reader with the new prefix"]
    pub fn prefix(mut self, prefix: Prefix) -> Frames<R> {
        self.prefix = prefix;
        self
    }

    /// Sets the most bytes that a frame may have, without the prefix. The default is one mebibyte.
    #[must_use = "it gives back the reader with the new maximum"]
    pub fn max(mut self, max: usize) -> Frames<R> {
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

    /// Returns the underlying reader, and the bytes of the next frame that were read, its prefix included.
    pub fn into_inner(self) -> (R, Vec<u8>) {
        let mut read = self.head[..self.head_done].to_vec();
        read.extend_from_slice(&self.body[..self.body_done]);
        (self.reader, read)
    }
}

impl<R: AsyncRead + Unpin> Frames<R> {
    /// Reads the next frame, without its prefix. Returns `None` at the end, and after a frame that was too long or cut
    /// off.
    ///
    /// # Errors
    ///
    /// Errors of the reader; `UnexpectedEof` if it ends within a frame, and `InvalidData` if the frame is
    /// too long, each of them once; an error if the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
    /// [`how_far`](super::how_far) returns the number of bytes of the frame and its prefix that were read, and
    /// [`into_inner`](Self::into_inner) returns those bytes.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; the bytes that were read are kept.
    /// *Scope cancelled*: returns an error, and the bytes that were read are kept.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::io::{AsyncReadExt, Prefix};
    ///
    /// # dapple::run(async {
    /// let mut frames = (&b"\x03one\x03two"[..]).frames().prefix(Prefix::U8);
    /// let mut count = 0;
    /// while let Some(frame) = frames.next_frame().await? {
    ///     assert_eq!(frame.len(), 3);
    ///     count += 1;
    /// }
    /// assert_eq!(count, 2);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn next_frame(&mut self) -> NextFrame<'_, R> {
        NextFrame { frames: self, wait: Wait::default() }
    }

    fn poll_with(&mut self, wait: &mut Wait, cx: &mut Context<'_>) -> Poll<io::Result<Option<Vec<u8>>>> {
        if self.is_over {
            return Poll::Ready(Ok(None));
        }
        let head = &mut self.head[..self.prefix.len()];
        let filled = match ready!(poll_fill(&mut self.reader, wait, cx, head, &mut self.head_done)) {
            Ok(Filled::Wholly) => ready!(self.poll_body(wait, cx)),
            Ok(Filled::Partly) if self.head_done == 0 => return Poll::Ready(Ok(None)),
            other => other,
        };
        let done = self.head_done + self.body_done;
        Poll::Ready(match filled {
            Ok(Filled::Wholly) => {
                (self.head_done, self.body_done) = (0, 0);
                Ok(Some(std::mem::take(&mut self.body)))
            }
            Ok(Filled::Partly) => {
                self.is_over = true;
                let is_known = self.head_done == self.prefix.len();
                let body = if is_known { self.prefix.read(self.head) as usize } else { 0 };
                Err(ended_early(done, Vec::new(), self.prefix.len() + body))
            }
            Err(error) => Err(Partial::error(done as u64, Vec::new(), error)),
        })
    }

    fn poll_body(&mut self, wait: &mut Wait, cx: &mut Context<'_>) -> Poll<io::Result<Filled>> {
        let length = self.prefix.read(self.head);
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= self.max) else {
            self.is_over = true;
            let max = self.max;
            let message = format!(
                "a frame of {length} bytes, where {max} are allowed: raise the maximum if that can be right"
            );
            return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, message)));
        };
        while self.body_done < length {
            self.body.resize(length.min(self.body_done + ROOM).max(self.body.len()), 0);
            let filled = ready!(poll_fill(&mut self.reader, wait, cx, &mut self.body, &mut self.body_done))?;
            if let Filled::Partly = filled {
                return Poll::Ready(Ok(filled));
            }
        }
        Poll::Ready(Ok(Filled::Wholly))
    }
}

impl<R: AsyncRead + Unpin> Stream for Frames<R> {
    type Item = io::Result<Vec<u8>>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Vec<u8>>>> {
        let mut wait = std::mem::take(&mut self.wait);
        let polled = self.poll_with(&mut wait, cx);
        self.wait = wait;
        polled.map(io::Result::transpose)
    }
}

/// The future of [`Frames::next_frame`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct NextFrame<'a, R> {
    frames: &'a mut Frames<R>,
    wait: Wait,
}

impl<R: AsyncRead + Unpin> Future for NextFrame<'_, R> {
    type Output = io::Result<Option<Vec<u8>>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.frames.poll_with(&mut this.wait, cx)
    }
}

/// The future of [`AsyncWriteExt::write_frame`](super::AsyncWriteExt::write_frame).
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct WriteFrame<'a, W: ?Sized> {
    writer: &'a mut W,
    prefix: Prefix,
    body: &'a [u8],
    done: usize,
    wait: Wait,
}

impl<'a, W: ?Sized> WriteFrame<'a, W> {
    pub(super) fn new(writer: &'a mut W, prefix: Prefix, body: &'a [u8]) -> WriteFrame<'a, W> {
        WriteFrame { writer, prefix, body, done: 0, wait: Wait::default() }
    }
}

impl<W: AsyncWrite + Unpin + ?Sized> WriteFrame<'_, W> {
    fn poll_written(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (prefix, length) = (self.prefix, self.body.len());
        let Some(head) = prefix.write(length) else {
            let message =
                format!("a frame of {length} bytes does not fit a length of {} bytes", prefix.len());
            return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidInput, message)));
        };
        let head = &head[..prefix.len()];
        while self.done < head.len() + length {
            let (head, body) = match self.done.checked_sub(head.len()) {
                None => (&head[self.done..], self.body),
                Some(done) => (&[][..], &self.body[done..]),
            };
            let slices = [IoSlice::new(head), IoSlice::new(body)];
            let slices = if head.is_empty() { &slices[1..] } else { &slices[..] };
            let written =
                ready!(step(&mut self.wait, cx, |cx| Pin::new(&mut *self.writer)
                    .poll_write_vectored(cx, slices)));
            if is_interrupted(&written) {
                continue;
            }
            match written? {
                0 => return Poll::Ready(Err(takes_no_more())),
                n => self.done += n,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<W: AsyncWrite + Unpin + ?Sized> Future for WriteFrame<'_, W> {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = ready!(self.poll_written(cx));
        Poll::Ready(written.map_err(|error| Partial::error(self.done as u64, Vec::new(), error)))
    }
}
