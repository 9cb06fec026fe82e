//! A file descriptor that can be waited for: the base of all sockets and pipes.
//!
//! An operation is tried first. Only if it would block, the file descriptor is
//! registered with the driver of the current worker, and stays registered until it is
//! closed. So a connection that never has to wait costs no registration. Pipes, whose other end is often a task
//! of the same program, first let other tasks run and try again ([`PollStrategy`]).
//!
//! # Invariants
//!
//! * **TRY-AGAIN**: an operation is tried after the readiness was read and before it is cleared, and
//!   again whenever the kernel has reported since. So no edge is lost.
//! * **LAST-TRY**: a wait that was begun and then cancelled tries its operation once more, after it has seen the
//!   cancellation, whatever the driver has reported. So an event that came before the cancellation is not missed because
//!   the driver has not polled for it yet. (A loser of a `race` does not get that far: `Wait::begin` ends it.)

pub(crate) mod stream;

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};

use crate::cancel::wait::{self, Wait};
use crate::context::no_runtime_error;
use crate::driver::FdRegistration;
pub(crate) use crate::driver::readiness::Direction;
use crate::driver::readiness::{Enlisted, ReadinessSnapshot, Who};
use crate::prim::{Mutex, lock};
use crate::sched::Sched;

/// A file descriptor in non-blocking mode, with its readiness.
#[derive(Debug)]
pub(crate) struct Source<T> {
    registration: OnceLock<FdRegistration>, // dropped before the file descriptor is closed
    registering: Mutex<()>,
    io: T,
}

/// Whether an operation left something to transfer.
pub(crate) enum Took {
    /// There may be more to transfer.
    Some,
    /// There is no more until the kernel reports: the operation asked for more than it got.
    All,
}

/// The strategy of one direction, for its only user: to wait for the kernel's report, or to try again.
///
/// When an operation took all bytes, or all room, the other end may be a task that only needs to run.
/// Then it is cheaper to let other tasks run once and try again than to wait for a report: there are no events, and
/// while it succeeds the file descriptor need not even be registered. The strategy learns whether it does. Each success
/// earns credit for a failure, and without credit it waits for the kernel, from then on.
#[derive(Debug)]
pub(crate) struct PollStrategy {
    next: NextTry,
    credit: u8,
}

/// The action of the next poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum NextTry {
    /// Try the operation, unless it is known to block.
    AtOnce,
    /// The last operation took all: let others run first, if there is credit.
    AfterOthers,
    /// Others have run: try the operation in any case.
    Again,
}

impl PollStrategy {
    const CREDIT: u8 = 4;
    const MOST_CREDIT: u8 = 16;

    pub(crate) const fn new() -> PollStrategy {
        PollStrategy { next: NextTry::AtOnce, credit: PollStrategy::CREDIT }
    }

    /// Records the result of another try.
    #[inline]
    fn settle(&mut self, succeeded: bool) {
        self.credit = if succeeded {
            (self.credit + 1).min(PollStrategy::MOST_CREDIT)
        } else {
            self.credit.saturating_sub(1)
        };
    }
}

/// Lets others run before the next poll.
#[inline]
fn give_way<R>(cx: &mut Context<'_>) -> Poll<R> {
    cx.waker().wake_by_ref();
    Poll::Pending
}

fn would_block<R>(result: &io::Result<R>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::WouldBlock)
}

impl<T: AsFd> Source<T> {
    /// `io` must be in non-blocking mode.
    pub(crate) fn new(io: T) -> Source<T> {
        Source { registration: OnceLock::new(), registering: Mutex::default(), io }
    }

    pub(crate) fn get(&self) -> &T {
        &self.io
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        &mut self.io
    }

    /// Returns the file descriptor, still in non-blocking mode.
    pub(crate) fn into_inner(self) -> T {
        self.withdraw();
        self.io
    }

    /// The same file descriptor as another type.
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> Source<U> {
        Source { registration: self.registration, registering: Mutex::default(), io: f(self.io) }
    }

    /// Removes it from the epoll. For a file descriptor that may stay open elsewhere.
    pub(crate) fn withdraw(&self) {
        if let Some(registration) = self.registration.get() {
            registration.withdraw(&self.io);
        }
    }

    /// Tries an operation, and waits until it succeeds: for the only waiter in this
    /// direction. The caller passes the same `wait` from the first poll of an operation to its result.
    #[inline]
    pub(crate) fn poll_io<R>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        wait: &mut Wait,
        mut operation: impl FnMut(&T) -> io::Result<R>,
    ) -> Poll<io::Result<R>> {
        self.poll_as(cx, direction, wait, None, |io| operation(io).map(|result| (result, Took::Some)))
    }

    /// As `poll_io`, for bytes of a stream: a result below `wanted`, but above 0, means that it took all.
    #[inline]
    pub(crate) fn poll_stream(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        wait: &mut Wait,
        wanted: usize,
        mut operation: impl FnMut(&T) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let took = |n: usize| if 0 < n && n < wanted { Took::All } else { Took::Some };
        let polled = self.poll_as(cx, direction, wait, None, |io| operation(io).map(|n| (n, took(n))));
        if let Poll::Ready(Ok(n)) = polled {
            wait::note_bytes(n); // BUDGET
        }
        polled
    }

    /// As `poll_stream`, where the other end may be a task that has not run yet; see [`PollStrategy`].
    #[inline]
    pub(crate) fn poll_flow(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        wait: &mut Wait,
        flow: &mut PollStrategy,
        wanted: usize,
        mut operation: impl FnMut(&T) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if let Err(cancelled) = ready!(wait.begin(cx)) {
            return Poll::Ready(Err(cancelled.into()));
        }
        if flow.next == NextTry::AfterOthers && flow.credit > 0 && !wait.is_cancelled() {
            flow.next = NextTry::Again;
            return give_way(cx);
        }
        let took_all = |n: usize| 0 < n && n < wanted;
        let after = |n: usize| if took_all(n) { NextTry::AfterOthers } else { NextTry::AtOnce };
        let again = std::mem::replace(&mut flow.next, NextTry::AtOnce) == NextTry::Again;
        let is_registered = self.registration.get().is_some();
        if again && !is_registered {
            let result = operation(&self.io);
            flow.settle(result.is_ok());
            match result {
                // TRY-AGAIN: it is registered, and tried once more, below.
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if flow.credit > 0 && !wait.is_cancelled() {
                        flow.next = NextTry::Again;
                        return give_way(cx);
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => {
                    flow.next = result.as_ref().map_or(NextTry::AtOnce, |&n| after(n));
                    wait.end();
                    return Poll::Ready(result);
                }
            }
        }
        // If it will be tried again, `Took::All` must not mark it as blocked.
        let tries = flow.credit > 0;
        let mut blocked = false;
        let result = self.poll_as(cx, direction, wait, None, |io| {
            let result = operation(io);
            blocked |= would_block(&result);
            result.map(|n| (n, if took_all(n) && !tries { Took::All } else { Took::Some }))
        });
        if again && is_registered {
            flow.settle(!blocked && result.is_ready());
        }
        if let Poll::Ready(Ok(n)) = result {
            flow.next = after(n);
        }
        result
    }

    /// Tries an operation, and waits until it succeeds: for one of several waiters.
    pub(crate) fn io<R, F>(&self, direction: Direction, operation: F) -> SourceWait<'_, T, F>
    where
        F: FnMut(&T) -> io::Result<R>,
    {
        SourceWait { source: self, direction, operation, number: None, wait: Wait::default() }
    }

    /// Waits until the kernel reports it as ready.
    pub(crate) async fn ready(&self, direction: Direction) -> io::Result<()> {
        self.io(direction, |io| is_ready(io.as_fd(), direction)).await
    }

    /// As `ready`, for the only waiter in this direction.
    pub(crate) fn poll_ready(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        wait: &mut Wait,
    ) -> Poll<io::Result<()>> {
        self.poll_io(cx, direction, wait, |io| is_ready(io.as_fd(), direction))
    }

    /// Registers it now, instead of at the first wait.
    pub(crate) fn register(&self, direction: Direction) -> io::Result<&FdRegistration> {
        if let Some(registration) = self.registration.get() {
            registration.want(self.io.as_fd(), direction)?;
            return Ok(registration);
        }
        let _one_at_a_time = lock(&self.registering);
        if let Some(registration) = self.registration.get() {
            registration.want(self.io.as_fd(), direction)?;
            return Ok(registration);
        }
        let registration =
            Sched::current(|sched| sched.driver_for_source().register(self.io.as_fd(), direction));
        let registration = registration.unwrap_or_else(|| Err(no_runtime_error("wait in")))?;
        Ok(self.registration.get_or_init(|| registration))
    }

    /// The loop of all waits. TRY-AGAIN
    fn poll_as<R>(
        &self,
        cx: &mut Context<'_>,
        direction: Direction,
        wait: &mut Wait,
        mut number: Option<&mut Option<u64>>,
        mut operation: impl FnMut(&T) -> io::Result<(R, Took)>,
    ) -> Poll<io::Result<R>> {
        if let Err(cancelled) = ready!(wait.begin(cx)) {
            return Poll::Ready(Err(cancelled.into()));
        }
        loop {
            let registration = self.registration.get();
            let readiness = registration.map(|registration| &*registration.readiness);
            let seen: Option<Option<ReadinessSnapshot>> = match registration {
                // A direction that the kernel does not report is tried.
                Some(registration) if registration.asks_for(direction) => {
                    registration.readiness.seen(direction).map(Some)
                }
                _ => Some(None),
            };
            if let Some(seen) = seen {
                let result = match operation(&self.io) {
                    Ok((result, took)) => {
                        if let (Some(readiness), Some(seen), Took::All) = (readiness, seen, took) {
                            readiness.drained(direction, seen);
                        }
                        Ok(result)
                    }
                    Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        if let (Some(readiness), Some(seen)) = (readiness, seen) {
                            readiness.clear(direction, seen);
                        }
                        Err(None)
                    }
                    Err(error) => Err(Some(error)),
                };
                match result {
                    Ok(result) => {
                        wait.end();
                        return Poll::Ready(Ok(result));
                    }
                    Err(Some(error)) => {
                        wait.end();
                        return Poll::Ready(Err(error));
                    }
                    Err(None) => {}
                }
            }
            if wait.is_cancelled() {
                let last = try_last(|| operation(&self.io)); // LAST-TRY
                wait.end();
                return Poll::Ready(match last {
                    Some(result) => result.map(|(result, _)| result),
                    None => Err(crate::Cancelled.into()),
                });
            }
            let registration = match self.register(direction) {
                Ok(registration) => registration,
                Err(error) => {
                    wait.end();
                    return Poll::Ready(Err(error));
                }
            };
            let who = match &mut number {
                Some(number) => Who::OfMany(number),
                None => Who::One,
            };
            match registration.readiness.enlist(direction, who, cx.waker()) {
                Enlisted::Waits => {
                    wait.rest(cx, direction.what());
                    return Poll::Pending;
                }
                Enlisted::Ready => {}
                Enlisted::Gone => {
                    wait.end();
                    return Poll::Ready(Err(io::Error::other(
                        "the runtime that waited for it has ended: take the socket out (into_std, into_inner) and put it \
                         into a new one",
                    )));
                }
            }
        }
    }
}

impl<T: AsFd> AsFd for Source<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.io.as_fd()
    }
}

/// Tries an operation for the last time; `None` if it would block. LAST-TRY
#[cold]
fn try_last<R>(mut operation: impl FnMut() -> io::Result<R>) -> Option<io::Result<R>> {
    loop {
        match operation() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
            result => return Some(result),
        }
    }
}

/// Asks the kernel; `WouldBlock` if it is not ready.
fn is_ready(fd: BorrowedFd<'_>, direction: Direction) -> io::Result<()> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let flags = match direction {
        Direction::Read => PollFlags::IN | PollFlags::RDHUP,
        Direction::Write => PollFlags::OUT,
        Direction::Closed => PollFlags::empty(), // HUP and ERR are always reported
    };
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut fds = [PollFd::from_borrowed_fd(fd, flags)];
    let ready = poll(&mut fds, Some(&now))?;
    match fds[0].revents().contains(PollFlags::NVAL) {
        true => Err(rustix::io::Errno::BADF.into()), // it was closed elsewhere
        false if ready > 0 => Ok(()),
        false => Err(ErrorKind::WouldBlock.into()),
    }
}

/// An operation that waits; see [`Source::io`].
pub(crate) struct SourceWait<'a, T, F> {
    source: &'a Source<T>,
    direction: Direction,
    operation: F,
    number: Option<u64>,
    wait: Wait,
}

impl<T, F> Unpin for SourceWait<'_, T, F> {}

impl<T: AsFd, R, F: FnMut(&T) -> io::Result<R>> Future for SourceWait<'_, T, F> {
    type Output = io::Result<R>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        let this = &mut *self;
        let operation = |io: &T| (this.operation)(io).map(|result| (result, Took::Some));
        this.source.poll_as(cx, this.direction, &mut this.wait, Some(&mut this.number), operation)
    }
}

impl<T, F> Drop for SourceWait<'_, T, F> {
    fn drop(&mut self) {
        if let (Some(number), Some(registration)) = (self.number, self.source.registration.get()) {
            registration.readiness.leave(number);
        }
    }
}
