//! Helpers for the tests of `io`: a stream that follows a script.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use dapple::io::{AsyncRead, AsyncWrite};

use crate::common::Event;

/// One thing that happens to a reader or a writer.
pub(crate) enum Step {
    /// `Bytes`: these bytes can be read. `Room`: this number of bytes can be written.
    Bytes(Vec<u8>),
    Room(usize),
    /// `Pending` once, and woken at once.
    GiveWay,
    /// `Pending` for ever; the event tells that it was asked. It does not know of cancelling.
    Never(Event),
    Fails(io::ErrorKind),
}

/// A foreign stream, which knows nothing of this runtime. At the end of its script, reads return the end of the
/// stream and writes accept everything.
#[derive(Default)]
pub(crate) struct Script {
    pub(crate) reads: VecDeque<Step>,
    pub(crate) writes: VecDeque<Step>,
    pub(crate) written: Arc<Mutex<Vec<u8>>>,
    pub(crate) flushes: usize,
    pub(crate) closed: bool,
}

impl Script {
    pub(crate) fn reads(steps: impl IntoIterator<Item = Step>) -> Script {
        Script { reads: steps.into_iter().collect(), ..Script::default() }
    }

    pub(crate) fn writes(steps: impl IntoIterator<Item = Step>) -> Script {
        Script { writes: steps.into_iter().collect(), ..Script::default() }
    }

    pub(crate) fn written(&self) -> Vec<u8> {
        self.written.lock().unwrap().clone()
    }
}

pub(crate) fn bytes(bytes: impl AsRef<[u8]>) -> Step {
    Step::Bytes(bytes.as_ref().to_vec())
}

fn poll_step(steps: &mut VecDeque<Step>, cx: &Context<'_>) -> Poll<io::Result<()>> {
    match steps.front() {
        Some(Step::GiveWay) => {
            steps.pop_front();
            cx.waker().wake_by_ref();
            Poll::Pending
        }
        Some(Step::Never(asked)) => {
            asked.set();
            Poll::Pending
        }
        Some(Step::Fails(kind)) => {
            let kind = *kind;
            steps.pop_front();
            Poll::Ready(Err(kind.into()))
        }
        _ => Poll::Ready(Ok(())),
    }
}

impl AsyncRead for Script {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(poll_step(&mut self.reads, cx))?;
        let Some(Step::Bytes(bytes)) = self.reads.front_mut() else { return Poll::Ready(Ok(0)) };
        let n = bytes.len().min(buffer.len());
        buffer[..n].copy_from_slice(&bytes[..n]);
        bytes.drain(..n);
        if bytes.is_empty() {
            self.reads.pop_front();
        }
        Poll::Ready(Ok(n))
    }
}

impl AsyncWrite for Script {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        std::task::ready!(poll_step(&mut self.writes, cx))?;
        let n = match self.writes.pop_front() {
            Some(Step::Room(room)) => room.min(bytes.len()),
            _ => bytes.len(),
        };
        self.written.lock().unwrap().extend_from_slice(&bytes[..n]);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.flushes += 1;
        Poll::Ready(Ok(()))
    }

    fn poll_close(mut self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.closed = true;
        Poll::Ready(Ok(()))
    }
}

/// Polls a future up to `times` times, each time after it was woken, and drops the future if it is not done.
pub(crate) async fn poll_times<F: Future>(times: usize, future: F) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = times;
    std::future::poll_fn(move |cx| {
        let polled = future.as_mut().poll(cx);
        left -= 1;
        match polled {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if left == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}
