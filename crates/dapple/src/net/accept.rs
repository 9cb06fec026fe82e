//! Accepting connections: the common part of all listeners.
//!
//! A connection that breaks before it is accepted is skipped. When file descriptors or
//! memory have run out, the caller gets an error, and the next accept first waits a little. The
//! connection stays in the kernel's queue and causes no new event (edge-triggered), so only another try
//! finds it. And a loop that logs the error and goes on must not spin.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketAddrAny, SocketFlags, acceptfrom_with};

use crate::Cancelled;
use crate::cancel::wait::Wait;
use crate::limit::Limit;
use crate::prim::{AtomicU32, Ordering};
use crate::sched::Sched;
use crate::source::{Direction, Source, SourceWait};
use crate::time::{Sleep, sleep};

/// The first pause after a shortage, and the longest, in milliseconds.
const FIRST_PAUSE: u32 = 1;
const LONGEST_PAUSE: u32 = 100;

/// A connection as the kernel returns it: non-blocking, and close-on-exec.
pub(crate) type AcceptedFd = (OwnedFd, Option<SocketAddrAny>);

/// A listening socket, in non-blocking mode.
pub(crate) struct ListeningSocket<T> {
    source: Source<T>,
    /// The pause before the next accept, in milliseconds.
    pause: AtomicU32,
    /// Nothing is accepted while this limit has no room.
    limit: Option<Limit>,
    /// The wait of a caller with exclusive access.
    wait: Wait,
    accepting: AcceptWait,
}

type WaitForRoom = dyn Future<Output = Result<(), Cancelled>> + Send + Sync;

/// The progress of one accept.
#[derive(Default)]
struct AcceptWait {
    begun: bool,
    /// The pause after a shortage. Boxed, because it is rare.
    pause: Option<Box<Sleep>>,
    /// The wait for room. Boxed, because it is rare.
    room: Option<Pin<Box<WaitForRoom>>>,
}

impl<T: AsFd> ListeningSocket<T> {
    pub(crate) fn new(io: T) -> ListeningSocket<T> {
        ListeningSocket {
            source: Source::new(io),
            pause: AtomicU32::new(0),
            limit: None,
            wait: Wait::default(),
            accepting: AcceptWait::default(),
        }
    }

    pub(crate) fn get(&self) -> &T {
        self.source.get()
    }

    pub(crate) fn set_limit(&mut self, limit: Limit) {
        self.limit = Some(limit);
    }

    pub(crate) fn into_inner(self) -> T {
        self.source.into_inner()
    }

    /// Accepts, as one of several callers.
    #[inline]
    pub(crate) fn accept(&self) -> Accept<'_, T> {
        Accept {
            listening: self,
            io: self.source.io(Direction::Read, accept_now),
            accepting: AcceptWait::default(),
        }
    }

    /// Accepts, as the only caller.
    pub(crate) fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<AcceptedFd>> {
        ready!(self.accepting.poll(cx, &self.pause, self.limit.as_ref()))?;
        let result = ready!(self.source.poll_io(cx, Direction::Read, &mut self.wait, accept_now));
        self.accepting.end(&result, &self.pause);
        Poll::Ready(result)
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for ListeningSocket<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

impl AcceptWait {
    /// Waits after a shortage, and while there is no room.
    #[inline]
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        pause: &AtomicU32,
        limit: Option<&Limit>,
    ) -> Poll<Result<(), Cancelled>> {
        if !self.begun {
            self.begun = true;
            self.room =
                limit.filter(|limit| !limit.has_room()).map(|limit| Box::pin(limit.clone().into_room()) as _);
            let pause = pause.load(Ordering::Relaxed);
            if pause > 0 && Sched::current(|_| ()).is_some() {
                self.pause = Some(Box::new(sleep(Duration::from_millis(pause.into()))));
            }
        }
        if let Some(room) = &mut self.room {
            let found = ready!(room.as_mut().poll(cx));
            self.room = None;
            if found.is_err() {
                self.begun = false;
                return Poll::Ready(found);
            }
        }
        let Some(sleep) = &mut self.pause else { return Poll::Ready(Ok(())) };
        let slept = ready!(Pin::new(&mut **sleep).poll(cx));
        self.pause = None;
        self.begun = slept.is_ok();
        Poll::Ready(slept)
    }

    #[inline]
    fn end(&mut self, result: &io::Result<AcceptedFd>, pause: &AtomicU32) {
        self.begun = false;
        let last = pause.load(Ordering::Relaxed);
        let next = match result {
            Ok(_) => 0,
            Err(error) if is_shortage(error) => (last * 2).clamp(FIRST_PAUSE, LONGEST_PAUSE),
            Err(_) => last,
        };
        if next != last {
            pause.store(next, Ordering::Relaxed); // only a hint
        }
    }
}

/// An accept that can be repeated; see [`ListeningSocket::accept`].
pub(crate) struct Accept<'a, T> {
    listening: &'a ListeningSocket<T>,
    io: SourceWait<'a, T, fn(&T) -> io::Result<AcceptedFd>>,
    accepting: AcceptWait,
}

impl<T: AsFd> Future for Accept<'_, T> {
    type Output = io::Result<AcceptedFd>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<AcceptedFd>> {
        let this = &mut *self;
        let pause = &this.listening.pause;
        ready!(this.accepting.poll(cx, pause, this.listening.limit.as_ref()))?;
        let result = ready!(Pin::new(&mut this.io).poll(cx));
        this.accepting.end(&result, pause);
        Poll::Ready(result)
    }
}

fn accept_now<T: AsFd>(listener: &T) -> io::Result<AcceptedFd> {
    loop {
        match acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
            Err(errno) if is_of_connection(errno) => {}
            result => return Ok(result?),
        }
    }
}

/// Whether the error is of the connection that was to be accepted, which is lost with it. See "Error
/// handling" in accept(2).
fn is_of_connection(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::CONNABORTED
            | Errno::CONNRESET
            | Errno::INTR
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::NONET
            | Errno::HOSTUNREACH
            | Errno::NETUNREACH
    )
}

/// Whether file descriptors or memory have run out.
fn is_shortage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM))
}
