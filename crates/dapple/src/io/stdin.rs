//! The program's standard input, read without blocking a worker.
//!
//! A read first waits for the driver to report the input as readable, and then the pool reads it. The
//! terminal is shared with other programs, so it must not be put in non-blocking mode. The bytes
//! go to a buffer that all handles share.
//!
//! # Invariants
//!
//! * **ONE-READS**: at most one read is under way, and its bytes go to the shared buffer, whichever handle started it.
//!   So no byte is lost when a wait is dropped, and none overtakes another.
//! * **JOIN-OR-SEE**: a waiter joins the list under the same lock under which it looked. A thread that
//!   changes the state takes the list under that lock.
//! * **ASKED-FOR**: a read starts only while a handle waits for it. Input that no handle asked
//!   for is left to others, such as a child process that inherits the standard input.

use std::fmt;
use std::io::{self, ErrorKind, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::cancel::wait::{Wait, wake};
use crate::context::with_context;
use crate::io::foreign::impl_read;
use crate::prim::{AtomicBool, AtomicU64, Mutex, Ordering, lock};
use crate::source::{Direction, Source};
use crate::task::guarded::GuardedWaker;
use crate::{Cancelled, blocking, world};

const BUFFER: usize = 8 << 10;

/// The state that all handles share.
static SHARED: Mutex<StdinShared> = Mutex::new(StdinShared {
    bytes: Vec::new(),
    taken: 0,
    outcome: None,
    is_reading: false,
    waiting: Vec::new(),
});

struct StdinShared {
    /// The bytes that were read; `bytes[taken..]` is still to be given out.
    bytes: Vec<u8>,
    taken: usize,
    /// The end (0) or the error that the last read found, until a handle has returned it.
    outcome: Option<io::Result<usize>>,
    /// ONE-READS
    is_reading: bool,
    /// Waiters, by the number of their handles.
    waiting: Vec<(u64, GuardedWaker)>,
}

impl StdinShared {
    fn take(&mut self, into: &mut [u8]) -> Option<io::Result<usize>> {
        let bytes = &self.bytes[self.taken..];
        if bytes.is_empty() {
            return self.outcome.take();
        }
        let n = bytes.len().min(into.len());
        into[..n].copy_from_slice(&bytes[..n]);
        self.taken += n;
        Some(Ok(n))
    }

    fn join(&mut self, number: u64, waker: GuardedWaker) -> Option<GuardedWaker> {
        if let Some((_, old)) = self.waiting.iter_mut().find(|waiting| waiting.0 == number) {
            return Some(std::mem::replace(old, waker));
        }
        self.waiting.push((number, waker));
        None
    }

    fn leave(&mut self, number: u64) -> Option<GuardedWaker> {
        let index = self.waiting.iter().position(|waiting| waiting.0 == number)?;
        Some(self.waiting.swap_remove(index).1)
    }
}

/// The standard input of the program, for use in async code.
///
/// Reading does not block a worker, nor keep the program from ending. All handles share one buffer:
/// bytes that one handle does not take go to the next. To read lines, wrap it in a
/// [`BufReader`](super::BufReader). Do not read [`std::io::stdin`] as well: it has a buffer
/// of its own.
///
/// # Cancellation
///
/// No byte is lost when a read is dropped or cancelled: if the system call is under way, its bytes go to the
/// next read. Nothing is read while no handle asks for it.
///
/// # Examples
///
/// ```no_run
/// use dapple::io::{AsyncBufReadExt, BufReader, stdin};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let mut lines = BufReader::new(stdin()).lines();
///     while let Some(line) = lines.next_line().await? {
///         println!("you said: {line}");
///     }
///     Ok(())
/// })
/// # }
/// ```
pub struct Stdin {
    /// A duplicate of the file descriptor. `BADF` if there is no standard input.
    source: Result<Arc<Source<OwnedFd>>, Errno>,
    number: u64,
    wait: Wait,
    /// The wait for the input to become readable.
    readiness: Wait,
}

/// Returns a handle to the standard input of the program; see [`Stdin`].
///
/// If no file descriptor is left for the handle, reading fails.
#[must_use = "it does nothing unless it is read"]
pub fn stdin() -> Stdin {
    static NUMBERS: AtomicU64 = AtomicU64::new(0);
    Stdin {
        source: rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3).map(|own| Arc::new(Source::new(own))),
        number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        wait: Wait::default(),
        readiness: Wait::default(),
    }
}

impl Stdin {
    /// Reads some bytes; 0 means the end.
    pub(crate) fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if let Err(cancelled) = ready!(self.wait.begin(cx)) {
            let left = lock(&SHARED).leave(self.number);
            drop(left); // foreign code, not under the lock
            return Poll::Ready(Err(cancelled.into()));
        }
        let read = ready!(self.poll_begun(cx, buffer));
        let left = lock(&SHARED).leave(self.number);
        drop(left); // foreign code, not under the lock
        self.wait.end();
        Poll::Ready(read)
    }

    fn poll_begun(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let source = match &self.source {
            _ if world::is_simulated() => return Poll::Ready(Err(world::no_outside("io::stdin"))),
            _ if buffer.is_empty() => return Poll::Ready(Ok(0)),
            Ok(source) => source.clone(),
            Err(Errno::BADF) => return Poll::Ready(Ok(0)), // as the standard library does
            Err(errno) => return Poll::Ready(Err(refused(*errno))),
        };
        loop {
            let waker = GuardedWaker::of(cx.waker()); // foreign code, not under the lock
            let mut shared = lock(&SHARED);
            if let Some(taken) = shared.take(buffer) {
                return Poll::Ready(taken);
            }
            let is_reading = shared.is_reading;
            let old = shared.join(self.number, waker); // JOIN-OR-SEE
            drop(shared);
            drop(old);
            if is_reading {
                if self.wait.is_cancelled() {
                    return Poll::Ready(Err(Cancelled.into()));
                }
                self.wait.rest(cx, &"standard input");
                return Poll::Pending;
            }
            ready!(source.poll_io(cx, Direction::Read, &mut self.readiness, is_readable))?;
            if self.wait.is_cancelled() {
                return Poll::Ready(Err(Cancelled.into())); // ASKED-FOR
            }
            start(source.clone())?;
        }
    }

    pub(crate) fn poll_read_vectored(
        &mut self,
        cx: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        match buffers.iter_mut().find(|buffer| !buffer.is_empty()) {
            Some(buffer) => self.poll_read(cx, buffer),
            None => self.poll_read(cx, &mut []),
        }
    }
}

impl_read!(Stdin);

impl Drop for Stdin {
    fn drop(&mut self) {
        let left = lock(&SHARED).leave(self.number);
        drop(left);
        if let Ok(source) = &self.source {
            source.withdraw(); // the standard input stays open
        }
    }
}

impl fmt::Debug for Stdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stdin").finish_non_exhaustive()
    }
}

fn refused(errno: Errno) -> io::Error {
    let error = io::Error::from(errno);
    io::Error::new(error.kind(), format!("standard input cannot be opened: {error}; ask for it anew later"))
}

/// Asks the kernel whether the input is readable. A file that cannot be polled is always readable.
fn is_readable(fd: &OwnedFd) -> io::Result<()> {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&now))? {
        0 => Err(ErrorKind::WouldBlock.into()),
        _ => Ok(()),
    }
}

/// Starts a read, unless one is under way. There are bytes to read, so it will not take long, unless
/// another program takes them first.
///
/// If the runtime does not let it begin, the caller gets an error. The other waiters may be in
/// other runtimes: they are woken, and try themselves.
fn start(source: Arc<Source<OwnedFd>>) -> io::Result<()> {
    let mut shared = lock(&SHARED);
    if shared.is_reading || shared.taken < shared.bytes.len() || shared.outcome.is_some() {
        return Ok(());
    }
    shared.is_reading = true; // ONE-READS
    drop(shared);
    let was_refused = Arc::new(AtomicBool::new(false));
    let reading = ReadDuty { source: Some(source), was_refused: was_refused.clone() };
    if with_context(|context| !context.has_runtime()) {
        reading.read(); // no pool here
        return Ok(());
    }
    blocking(move || reading.read()).detach();
    if was_refused.load(Ordering::Relaxed) {
        let message =
            "standard input could not be read: the runtime is ending, or no thread could be started";
        return Err(io::Error::other(message));
    }
    Ok(())
}

/// The duty to end the read that was started. ONE-READS
struct ReadDuty {
    source: Option<Arc<Source<OwnedFd>>>,
    /// Set if it was dropped before it could begin.
    was_refused: Arc<AtomicBool>,
}

impl ReadDuty {
    fn read(mut self) {
        let Some(source) = self.source.take() else { return };
        let mut bytes = vec![0; BUFFER];
        let read = loop {
            match rustix::io::read(source.get(), &mut bytes) {
                Err(Errno::INTR) => {}
                // Another program has made the input non-blocking, and some program has taken the bytes.
                Err(Errno::AGAIN) => {
                    let _ = poll(&mut [PollFd::new(source.get(), PollFlags::IN)], None);
                }
                read => break read,
            }
        };
        let mut shared = lock(&SHARED);
        match read {
            Ok(0) => shared.outcome = Some(Ok(0)),
            Ok(n) => {
                bytes.truncate(n);
                (shared.bytes, shared.taken) = (bytes, 0);
            }
            Err(errno) => shared.outcome = Some(Err(errno.into())),
        }
    }
}

impl Drop for ReadDuty {
    fn drop(&mut self) {
        self.was_refused.store(self.source.is_some(), Ordering::Relaxed);
        let mut shared = lock(&SHARED);
        shared.is_reading = false;
        let waiting = std::mem::take(&mut shared.waiting); // JOIN-OR-SEE
        drop(shared);
        waiting.into_iter().for_each(|(_, waker)| wake(waker));
    }
}
