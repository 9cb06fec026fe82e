//! From a reader to a writer, in one direction and in both.

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

/// Copies all there is to read to a writer, and flushes it. Says how many bytes it was.
///
/// The writer is flushed as well whenever the reader has nothing at the moment. It is not closed.
///
/// # Errors
///
/// What the reader or the writer says; if the wait was cancelled
/// ([`is_cancelled`](crate::is_cancelled)). How many bytes were written by then,
/// [`how_far`](super::how_far) says. Those that had been read and not written are in
/// [`Partial::rest`], so that nothing is lost.
///
/// # Cancellation
///
/// *Dropped early*: **lossy**: what was read and not written, up to 16 KiB; await `&mut copy`, and
/// [`Copy::rest`] has it.
/// *Scope cancelled*: stops reading, and returns an error that has what was read and not written.
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
    /// How many bytes have been written.
    pub fn done(&self) -> u64 {
        self.flow.done
    }

    /// What has been read and not written, now.
    pub fn rest(&self) -> &[u8] {
        self.flow.rest()
    }

    /// Gives back what is inside. What is in [`rest`](Self::rest) is lost.
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

/// Copies in both directions at once, until both have ended. Says how many bytes went from `a` to
/// `b`, and from `b` to `a`.
///
/// Each direction goes on by itself: when `a` ends, the writing side of `b` is closed, and what `b`
/// still sends is copied until it ends too.
///
/// # Errors
///
/// The first error of either direction, or of a cancelled wait
/// ([`is_cancelled`](crate::is_cancelled)), ends both. How many bytes were written from `a` to `b`,
/// and what was read from `a` and not written, [`Partial::done`] and [`Partial::rest`] say;
/// [`Partial::done_back`] and [`Partial::rest_back`] say it of the other direction.
///
/// # Cancellation
///
/// *Dropped early*: **lossy**: what was read and not written, up to 16 KiB each way.
/// *Scope cancelled*: stops reading, and returns an error that has what was read and not written.
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
            Poll::Ready(Err(_)) => Poll::Pending, // over
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

/// What is on its way from a reader to a writer. It reads only when it has written all.
#[derive(Default)]
struct CopyBuffer {
    buffer: Box<[u8]>,
    /// What has been read and not written: `buffer[start..end]`.
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
