//! The common part of `UdpSocket` and `UnixDatagram`: a socket that any number of tasks share.
//!
//! Each `async` operation has a wait of its own. The `poll_` forms have one wait for each direction,
//! kept here between their polls. Without it, a poll could not notice that its task was cancelled.

use std::io;
use std::os::fd::AsFd;
use std::task::{Context, Poll};

use crate::cancel::wait::Wait;
use crate::prim::{Mutex, lock};
use crate::source::{Direction, Source, SourceWait};

#[derive(Debug)]
pub(crate) struct DatagramSocket<T> {
    source: Source<T>,
    /// The waits of the `poll_` forms, by direction.
    polled: [Mutex<Wait>; 2],
}

impl<T: AsFd> DatagramSocket<T> {
    /// `io` must be in non-blocking mode.
    pub(crate) fn new(io: T) -> DatagramSocket<T> {
        DatagramSocket { source: Source::new(io), polled: Default::default() }
    }

    pub(crate) fn get(&self) -> &T {
        self.source.get()
    }

    pub(crate) fn into_inner(self) -> T {
        self.source.into_inner()
    }

    pub(crate) async fn ready(&self, direction: Direction) -> io::Result<()> {
        self.source.ready(direction).await
    }

    /// As `ready`, for a `poll_` form; see [`poll_io`](Self::poll_io).
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>, direction: Direction) -> Poll<io::Result<()>> {
        self.poll_with(direction, |wait| self.source.poll_ready(cx, direction, wait))
    }

    /// Calls `operation` until it no longer returns `WouldBlock`.
    pub(crate) fn io<R, F>(&self, direction: Direction, operation: F) -> SourceWait<'_, T, F>
    where
        F: FnMut(&T) -> io::Result<R>,
    {
        self.source.io(direction, operation)
    }

    /// As `io`, for a `poll_` form. The last task that polled in this direction is woken.
    pub(crate) fn poll_io<R>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        operation: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_with(direction, |wait| self.source.poll_io(cx, direction, wait, operation))
    }

    /// Takes the wait out during the poll: it may run foreign code, which must not run under the lock.
    fn poll_with<R>(&self, direction: Direction, poll: impl FnOnce(&mut Wait) -> R) -> R {
        let kept = &self.polled[direction as usize];
        let mut wait = std::mem::take(&mut *lock(kept));
        let polled = poll(&mut wait);
        let replaced = std::mem::replace(&mut *lock(kept), wait);
        drop(replaced);
        polled
    }
}
