//! Streams of bytes over a file descriptor, and their halves: what `TcpStream`, `UnixStream` and
//! pipes have in common.
//!
//! A stream has one reader and one writer at a time, each with a wait of its own (`task::wait`), so
//! that it is known from the first poll of an operation to its result whether it was cancelled.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::source::{Direction, Source};
use crate::task::wait::Wait;

/// One direction of a stream: the file descriptor, owned, shared or borrowed, and the wait.
#[derive(Debug, Default)]
pub(crate) struct Way<S> {
    pub(crate) source: S,
    wait: Wait,
}

impl<S> Way<S> {
    pub(crate) fn new(source: S) -> Way<S> {
        Way { source, wait: Wait::default() }
    }
}

/// A shared reference to a source, of whatever kind.
pub(crate) trait Shares<T> {
    fn share(&self) -> &Source<T>;
}

impl<T> Shares<T> for Source<T> {
    fn share(&self) -> &Source<T> {
        self
    }
}

impl<T> Shares<T> for &Source<T> {
    fn share(&self) -> &Source<T> {
        self
    }
}

impl<T> Shares<T> for Arc<Source<T>> {
    fn share(&self) -> &Source<T> {
        self
    }
}

/// Reads some bytes; none for an empty buffer, at once, and at the end of the stream.
pub(crate) fn poll_read<T: AsFd>(
    source: &Source<T>,
    wait: &mut Wait,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>>
where
    for<'a> &'a T: Read,
{
    source.poll_stream(cx, Direction::Read, wait, buffer.len(), |mut io| io.read(buffer))
}

pub(crate) fn poll_read_vectored<T: AsFd>(
    source: &Source<T>,
    wait: &mut Wait,
    cx: &mut Context<'_>,
    buffers: &mut [IoSliceMut<'_>],
) -> Poll<io::Result<usize>>
where
    for<'a> &'a T: Read,
{
    let wanted = buffers.iter().map(|buffer| buffer.len()).sum();
    source.poll_stream(cx, Direction::Read, wait, wanted, |mut io| io.read_vectored(buffers))
}

pub(crate) fn poll_write<T: AsFd>(
    source: &Source<T>,
    wait: &mut Wait,
    cx: &mut Context<'_>,
    bytes: &[u8],
) -> Poll<io::Result<usize>>
where
    for<'a> &'a T: Write,
{
    source.poll_stream(cx, Direction::Write, wait, bytes.len(), |mut io| io.write(bytes))
}

pub(crate) fn poll_write_vectored<T: AsFd>(
    source: &Source<T>,
    wait: &mut Wait,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>>
where
    for<'a> &'a T: Write,
{
    let wanted = slices.iter().map(|slice| slice.len()).sum();
    source.poll_stream(cx, Direction::Write, wait, wanted, |mut io| io.write_vectored(slices))
}

impl<S> Way<S> {
    pub(crate) fn poll_read<T: AsFd>(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>
    where
        S: Shares<T>,
        for<'a> &'a T: Read,
    {
        poll_read(self.source.share(), &mut self.wait, cx, buffer)
    }

    pub(crate) fn poll_read_vectored<T: AsFd>(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>>
    where
        S: Shares<T>,
        for<'a> &'a T: Read,
    {
        poll_read_vectored(self.source.share(), &mut self.wait, cx, buffers)
    }

    pub(crate) fn poll_write<T: AsFd>(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>
    where
        S: Shares<T>,
        for<'a> &'a T: Write,
    {
        poll_write(self.source.share(), &mut self.wait, cx, bytes)
    }

    pub(crate) fn poll_write_vectored<T: AsFd>(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>
    where
        S: Shares<T>,
        for<'a> &'a T: Write,
    {
        poll_write_vectored(self.source.share(), &mut self.wait, cx, slices)
    }
}

/// A stream in both directions.
#[derive(Debug)]
pub(crate) struct Stream<T> {
    pub(crate) source: Source<T>,
    pub(crate) reading: Wait,
    pub(crate) writing: Wait,
}

impl<T: AsFd> Stream<T> {
    /// `io` must be in non-blocking mode.
    pub(crate) fn new(io: T) -> Stream<T> {
        Stream { source: Source::new(io), reading: Wait::default(), writing: Wait::default() }
    }

    pub(crate) fn get(&self) -> &T {
        self.source.get()
    }
}
