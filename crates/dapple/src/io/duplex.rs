//! Two streams in memory that are connected to each other.
//!
//! # Invariants
//!
//! * **JOIN-OR-SEE**: see `stdin`: a waiter stores its waker under the same lock under which it looked. A thread that
//!   changes the state takes the waker under that lock, and wakes it afterwards.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use crate::Cancelled;
use crate::cancel::wait::{Wait, wake};
use crate::io::foreign::{impl_read, impl_write};
use crate::prim::{Mutex, lock};
use crate::task::guarded::GuardedWaker;

/// Makes two streams that are connected to each other: bytes written to one are read from the other.
/// Each direction holds up to `capacity` bytes. Use it in tests, or between two tasks.
///
/// # Panics
///
/// If `capacity` is 0: nothing could ever be written.
///
/// # Examples
///
/// ```
/// use dapple::io::{AsyncReadExt, AsyncWriteExt, duplex};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let (mut near, mut far) = duplex(64);
///     near.write_all(b"hello").await?;
///     near.close().await?;
///     let mut text = String::new();
///     far.read_to_string(&mut text).await?;
///     assert_eq!(text, "hello");
///     Ok(())
/// })
/// # }
/// ```
#[must_use]
pub fn duplex(capacity: usize) -> (Duplex, Duplex) {
    assert!(capacity > 0, "a stream that holds no bytes takes none either");
    let (there, back) = (Arc::new(DuplexDirection::new(capacity)), Arc::new(DuplexDirection::new(capacity)));
    (Duplex::new(back.clone(), there.clone()), Duplex::new(there, back))
}

/// One of two streams in memory that are connected to each other; see [`duplex`].
///
/// Closing it (`AsyncWrite::poll_close`) lets the peer read the end, after the bytes that are on the way, and
/// leaves this stream open for reading. Dropping it does the same, and from then on the peer's writes fail with
/// `BrokenPipe`.
///
/// One task reads and one writes at a time. For two tasks, [split](super::split()) it.
///
/// # Cancellation
///
/// Reading, writing: *Dropped early*: **clean**: bytes that were not read stay, and all bytes that were written were
/// counted in a result. *Scope cancelled*: returns an error for which
/// [`is_cancelled`](crate::is_cancelled) holds and has done nothing, or the result if it was ready.
pub struct Duplex {
    incoming: Arc<DuplexDirection>,
    outgoing: Arc<DuplexDirection>,
    reading: Wait,
    writing: Wait,
}

impl Duplex {
    fn new(incoming: Arc<DuplexDirection>, outgoing: Arc<DuplexDirection>) -> Duplex {
        Duplex { incoming, outgoing, reading: Wait::default(), writing: Wait::default() }
    }

    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        self.poll_read_vectored(cx, &mut [IoSliceMut::new(buffer)])
    }

    pub(crate) fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let incoming = &self.incoming;
        poll_wait(&mut self.reading, cx, &"bytes to read", |waker| incoming.read(buffers, waker))
    }

    pub(crate) fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    pub(crate) fn poll_write_vectored(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let outgoing = &self.outgoing;
        poll_wait(&mut self.writing, cx, &"room to write to", |waker| outgoing.write(slices, waker))
    }

    /// Returns at once: bytes are visible to the peer as soon as they are written.
    pub(crate) fn poll_flush(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    pub(crate) fn poll_close(&mut self, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.outgoing.end();
        Poll::Ready(Ok(()))
    }
}

impl_read!(Duplex);
impl_write!(Duplex);

impl Drop for Duplex {
    fn drop(&mut self) {
        self.outgoing.end();
        self.incoming.abandon();
    }
}

impl fmt::Debug for Duplex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Duplex").finish_non_exhaustive()
    }
}

/// Does an operation as soon as it is possible. If it is not, the operation stores the waker.
fn poll_wait<T>(
    wait: &mut Wait,
    cx: &mut Context<'_>,
    what: &'static &'static str,
    operation: impl FnOnce(GuardedWaker) -> Poll<io::Result<T>>,
) -> Poll<io::Result<T>> {
    ready!(wait.begin(cx))?;
    let done = match operation(GuardedWaker::of(cx.waker())) {
        Poll::Pending if wait.is_cancelled() => Err(Cancelled.into()),
        Poll::Pending => {
            wait.rest(cx, what);
            return Poll::Pending;
        }
        Poll::Ready(done) => done,
    };
    wait.end();
    Poll::Ready(done)
}

/// One direction.
struct DuplexDirection {
    capacity: usize,
    state: Mutex<DuplexState>,
}

#[derive(Default)]
struct DuplexState {
    bytes: VecDeque<u8>,
    /// The writer has closed: no more bytes will come.
    is_ended: bool,
    /// The reader was dropped.
    is_abandoned: bool,
    /// The waiter for bytes, and the waiter for room. JOIN-OR-SEE
    reader: Option<GuardedWaker>,
    writer: Option<GuardedWaker>,
}

impl DuplexDirection {
    fn new(capacity: usize) -> DuplexDirection {
        DuplexDirection { capacity, state: Mutex::default() }
    }

    fn read(&self, buffers: &mut [IoSliceMut<'_>], waker: GuardedWaker) -> Poll<io::Result<usize>> {
        if buffers.iter().all(|buffer| buffer.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let mut state = lock(&self.state);
        if state.bytes.is_empty() {
            if state.is_ended {
                return Poll::Ready(Ok(0));
            }
            let old = state.reader.replace(waker);
            drop(state);
            drop(old); // foreign code, not under the lock
            return Poll::Pending;
        }
        let mut done = 0;
        for buffer in buffers {
            let n = buffer.len().min(state.bytes.len());
            state.bytes.read_exact(&mut buffer[..n])?;
            done += n;
        }
        let writer = state.writer.take();
        drop(state);
        writer.into_iter().for_each(wake);
        Poll::Ready(Ok(done))
    }

    fn write(&self, slices: &[IoSlice<'_>], waker: GuardedWaker) -> Poll<io::Result<usize>> {
        let mut state = lock(&self.state);
        if state.is_ended || state.is_abandoned {
            let why = if state.is_ended { "it has been closed" } else { "the other side is gone" };
            let message = format!("a stream in memory cannot be written to: {why}");
            return Poll::Ready(Err(io::Error::new(ErrorKind::BrokenPipe, message)));
        }
        if slices.iter().all(|slice| slice.is_empty()) {
            return Poll::Ready(Ok(0));
        }
        let before = state.bytes.len();
        if before == self.capacity {
            let old = state.writer.replace(waker);
            drop(state);
            drop(old); // foreign code, not under the lock
            return Poll::Pending;
        }
        for slice in slices {
            let n = slice.len().min(self.capacity - state.bytes.len());
            state.bytes.extend(&slice[..n]);
        }
        let done = state.bytes.len() - before;
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(wake);
        Poll::Ready(Ok(done))
    }

    /// Ends the stream: no more bytes will be written.
    fn end(&self) {
        let mut state = lock(&self.state);
        state.is_ended = true;
        let reader = state.reader.take();
        drop(state);
        reader.into_iter().for_each(wake);
    }

    /// Marks the reader as dropped.
    fn abandon(&self) {
        let mut state = lock(&self.state);
        state.is_abandoned = true;
        let rest = (std::mem::take(&mut state.bytes), state.reader.take());
        let writer = state.writer.take();
        drop(state);
        drop(rest); // foreign code, not under the lock
        writer.into_iter().for_each(wake);
    }
}
