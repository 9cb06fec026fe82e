//! Readers made of other readers: the first bytes of a reader, and two readers in sequence.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncBufRead, AsyncRead};

/// The reader of [`AsyncReadExt::take`](super::AsyncReadExt::take): it ends after a number of bytes.
#[derive(Debug)]
pub struct Take<R> {
    reader: R,
    limit: u64,
}

impl<R> Take<R> {
    pub(super) fn new(reader: R, limit: u64) -> Take<R> {
        Take { reader, limit }
    }

    /// The number of bytes that may still be read.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Sets the number of bytes that may still be read.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// The underlying reader.
    pub fn get_ref(&self) -> &R {
        &self.reader
    }

    /// The underlying reader. Bytes that are read from it directly do not count.
    pub fn get_mut(&mut self) -> &mut R {
        &mut self.reader
    }

    /// Returns the underlying reader.
    pub fn into_inner(self) -> R {
        self.reader
    }

    /// The part of `len` bytes that is within the limit.
    fn within(&self, len: usize) -> usize {
        usize::try_from(self.limit).map_or(len, |limit| len.min(limit))
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Take<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.limit == 0 {
            return Poll::Ready(Ok(0));
        }
        let len = this.within(buffer.len());
        let n = ready!(Pin::new(&mut this.reader).poll_read(cx, &mut buffer[..len]))?;
        this.limit = this.limit.saturating_sub(n as u64);
        Poll::Ready(Ok(n))
    }
}

impl<R: AsyncBufRead + Unpin> AsyncBufRead for Take<R> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if this.limit == 0 {
            return Poll::Ready(Ok(&[]));
        }
        let limit = this.limit;
        let bytes = ready!(Pin::new(&mut this.reader).poll_fill_buf(cx))?;
        let len = usize::try_from(limit).map_or(bytes.len(), |limit| bytes.len().min(limit));
        Poll::Ready(Ok(&bytes[..len]))
    }

    fn consume(mut self: Pin<&mut Self>, amount: usize) {
        let amount = self.within(amount);
        self.limit -= amount as u64;
        Pin::new(&mut self.reader).consume(amount);
    }
}

/// The reader of [`AsyncReadExt::chain`](super::AsyncReadExt::chain): two readers in sequence.
#[derive(Debug)]
pub struct Chain<A, B> {
    first: A,
    next: B,
    first_is_over: bool,
}

impl<A, B> Chain<A, B> {
    pub(super) fn new(first: A, next: B) -> Chain<A, B> {
        Chain { first, next, first_is_over: false }
    }

    /// The underlying readers.
    pub fn get_ref(&self) -> (&A, &B) {
        (&self.first, &self.next)
    }

    /// Returns the underlying readers.
    pub fn into_inner(self) -> (A, B) {
        (self.first, self.next)
    }
}

impl<A: AsyncRead + Unpin, B: AsyncRead + Unpin> AsyncRead for Chain<A, B> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if !this.first_is_over {
            match ready!(Pin::new(&mut this.first).poll_read(cx, buffer))? {
                0 if !buffer.is_empty() => this.first_is_over = true,
                n => return Poll::Ready(Ok(n)),
            }
        }
        Pin::new(&mut this.next).poll_read(cx, buffer)
    }
}

impl<A: AsyncBufRead + Unpin, B: AsyncBufRead + Unpin> AsyncBufRead for Chain<A, B> {
    fn poll_fill_buf(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        if !this.first_is_over {
            if !ready!(Pin::new(&mut this.first).poll_fill_buf(cx))?.is_empty() {
                // Polled again, because the borrow checker does not accept the return of the first result here.
                return Pin::new(&mut this.first).poll_fill_buf(cx);
            }
            this.first_is_over = true;
        }
        Pin::new(&mut this.next).poll_fill_buf(cx)
    }

    fn consume(mut self: Pin<&mut Self>, amount: usize) {
        if self.first_is_over {
            Pin::new(&mut self.next).consume(amount);
        } else {
            Pin::new(&mut self.first).consume(amount);
        }
    }
}
