//! Copying from a reader to a writer, in one direction and in both.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_io::{AsyncRead, AsyncWrite};

use super::error::Partial;
use super::step::{is_interrupted, step};
use super::write::takes_no_more;
use crate::cancel::wait::Wait;

const BUFFER: usize = 16 << 10;

/// Copies all bytes of a reader to a writer, and flushes the writer. Returns their number.
///
/// The writer is flushed as well whenever the reader has nothing at the moment. It is not closed.
///
/// # Errors
///
/// Errors of the reader or the writer; an error if the wait was cancelled
/// ([`is_cancelled`](crate::is_cancelled)). [`how_far`](super::how_far) returns the number of bytes that were
/// written. The bytes that were read and not written are in
/// [`Partial::rest`], so that nothing is lost.
///
/// # Cancellation
///
/// *Dropped early*: **lossy**: the bytes that were read and not written, up to 16 KiB. To keep them, await
/// `&mut copy` and call [`Copy::rest`].
/// *Scope cancelled*: stops reading, and returns an error that contains the bytes that were read and not written.
///
/// # Examples
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let mut writer = Vec::new();
///     let n = dapple::io::copy(&b"hello"[..], &mut writer).await?;
///     assert_eq!((n, &writer[..]), (5, &b"hello"[..]));
///     Ok(())
/// })
/// # }
/// ```
pub fn copy<R, W>(reader: R, writer: W) -> Copy<R, W>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    Copy { reader, writer, flow: CopyBuffer::default() }
}

/// The future of [`copy`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Copy<R, W> {
    reader: R,
    writer: W,
    flow: CopyBuffer,
}

impl<R, W> Copy<R, W> {
    /// The number of bytes that were written.
    pub fn done(&self) -> u64 {
        self.flow.done
    }

    /// The bytes that were read and are not yet written.
    pub fn rest(&self) -> &[u8] {
        self.flow.rest()
    }

    /// Returns the reader and the writer. The bytes in [`rest`](Self::rest) are lost.
    pub fn into_inner(self) -> (R, W) {
        (self.reader, self.writer)
    }
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Future for Copy<R, W> {
    type Output = io::Result<u64>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        let this = &mut *self;
        let copied = ready!(this.flow.poll(cx, &mut this.reader, &mut this.writer));
        Poll::Ready(match copied {
            Ok(()) => Ok(this.flow.done),
            Err(error) => Err(Partial::error(this.flow.done, this.flow.take_rest(), error)),
        })
    }
}

/// Copies in both directions at once, until both have ended. Returns the number of bytes from `a` to
/// `b`, and from `b` to `a`.
///
/// The directions are independent: when `a` ends, the writing side of `b` is closed, and the bytes that `b`
/// still sends are copied until `b` ends, too.
///
/// # Errors
///
/// The first error of either direction, or of a cancelled wait
/// ([`is_cancelled`](crate::is_cancelled)), ends both. [`Partial::done`] and [`Partial::rest`] return the number of
/// bytes that were written from `a` to `b`, and the bytes that were read from `a` and not written;
/// [`Partial::done_back`] and [`Partial::rest_back`] are for the other direction.
///
/// # Cancellation
///
/// *Dropped early*: **lossy**: the bytes that were read and not written, up to 16 KiB each way.
/// *Scope cancelled*: stops reading, and returns an error that contains the bytes that were read and not written.
///
/// # Examples
///
/// ```no_run
/// # async fn proxy(mut client: dapple::net::TcpStream, mut server: dapple::net::TcpStream) -> std::io::Result<()> {
/// let (sent, received) = dapple::io::copy_bidirectional(&mut client, &mut server).await?;
/// println!("{sent} bytes there, {received} bytes back");
/// # Ok(())
/// # }
/// ```
pub fn copy_bidirectional<A, B>(a: A, b: B) -> CopyBidirectional<A, B>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    CopyBidirectional { a, b, there: HalfWay::default(), back: HalfWay::default() }
}

/// The future of [`copy_bidirectional`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct CopyBidirectional<A, B> {
    a: A,
    b: B,
    there: HalfWay,
    back: HalfWay,
}

impl<A, B> Future for CopyBidirectional<A, B>
where
    A: AsyncRead + AsyncWrite + Unpin,
    B: AsyncRead + AsyncWrite + Unpin,
{
    type Output = io::Result<(u64, u64)>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let there = this.there.poll(cx, &mut this.a, &mut this.b);
        let back = match &there {
            Poll::Ready(Err(_)) => Poll::Pending, // the error ends both
            _ => this.back.poll(cx, &mut this.b, &mut this.a),
        };
        let (there_flow, back_flow) = (&mut this.there.flow, &mut this.back.flow);
        match (there, back) {
            (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => {
                let there = (there_flow.done, there_flow.take_rest());
                let back = (back_flow.done, back_flow.take_rest());
                Poll::Ready(Err(Partial::both(there, back, error)))
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(Ok((there_flow.done, back_flow.done))),
            _ => Poll::Pending,
        }
    }
}

/// One direction of two.
#[derive(Debug, Default)]
struct HalfWay {
    flow: CopyBuffer,
    stage: CopyStage,
}

#[derive(Debug, Default)]
enum CopyStage {
    #[default]
    Copying,
    Closing,
    Closed,
}

impl HalfWay {
    fn poll<R, W>(&mut self, cx: &mut Context<'_>, reader: &mut R, writer: &mut W) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        if let CopyStage::Copying = self.stage {
            ready!(self.flow.poll(cx, reader, writer))?;
            self.stage = CopyStage::Closing;
        }
        if let CopyStage::Closing = self.stage {
            ready!(step(&mut self.flow.wait, cx, |cx| Pin::new(writer).poll_close(cx)))?;
            self.stage = CopyStage::Closed;
        }
        Poll::Ready(Ok(()))
    }
}

/// The bytes on their way from a reader to a writer. It reads only after it has written all of them.
#[derive(Default)]
struct CopyBuffer {
    buffer: Box<[u8]>,
    /// The bytes that were read and not written: `buffer[start..end]`.
    start: usize,
    end: usize,
    done: u64,
    is_flushed: bool,
    has_ended: bool,
    wait: Wait,
}

impl CopyBuffer {
    fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn take_rest(&mut self) -> Vec<u8> {
        let rest = self.rest().to_vec();
        self.start = self.end;
        rest
    }

    fn poll<R, W>(&mut self, cx: &mut Context<'_>, reader: &mut R, writer: &mut W) -> Poll<io::Result<()>>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        if self.buffer.is_empty() {
            self.buffer = vec![0; BUFFER].into();
            self.is_flushed = true;
        }
        loop {
            while self.start < self.end {
                ready!(self.poll_write(cx, writer))?;
            }
            if self.has_ended {
                return step(&mut self.wait, cx, |cx| Pin::new(&mut *writer).poll_flush(cx));
            }
            let read = step(&mut self.wait, cx, |cx| Pin::new(&mut *reader).poll_read(cx, &mut self.buffer));
            match read {
                Poll::Ready(read) if is_interrupted(&read) => {}
                Poll::Ready(Ok(0)) => self.has_ended = true,
                Poll::Ready(Ok(n)) => (self.start, self.end) = (0, n),
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    if !self.is_flushed {
                        ready!(Pin::new(&mut *writer).poll_flush(cx))?;
                        self.is_flushed = true;
                    }
                    return Poll::Pending;
                }
            }
        }
    }

    fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        writer: &mut W,
    ) -> Poll<io::Result<()>> {
        let rest = &self.buffer[self.start..self.end];
        let written = ready!(step(&mut self.wait, cx, |cx| Pin::new(writer).poll_write(cx, rest)));
        if is_interrupted(&written) {
            return Poll::Ready(Ok(()));
        }
        match written? {
            0 => return Poll::Ready(Err(takes_no_more())),
            n => {
                self.start += n;
                self.done += n as u64;
                self.is_flushed = false;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl fmt::Debug for CopyBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = self.end - self.start;
        f.debug_struct("Flow").field("done", &self.done).field("rest", &rest).finish_non_exhaustive()
    }
}
