//! Those who wait for a signal.
//!
//! # Invariants
//!
//! * **SIGNALS-COUNTED**: each listener has an eventfd of its own, and the handler adds one to it. The kernel
//!   adds: no signal is lost, however many come before the listener looks.
//! * **IN-HANDLER**: what runs in the signal handler is `getpid`, and one `write` to a file descriptor
//!   that the handler's own reference keeps open: no allocation, no lock, no destructor.
//!   `signal-hook-registry` keeps `errno`, and drops the reference outside of handlers.
//! * **OWN-PROCESS**: between `fork` and `exec` a child has our handlers and our eventfds. A signal that
//!   it gets then (Ctrl-C goes to both) is not ours, and is not counted.

use std::fmt;
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use rustix::event::{EventfdFlags, eventfd};
use rustix::process::getpid;
use signal_hook_registry::{FORBIDDEN, SigId};

use super::SignalKind;
use crate::cancel::wait::Wait;
use crate::source::{Direction, Source};
use crate::world;

/// Waits for signals of one kind, also as a `Stream` of `io::Result<()>` that does not end.
///
/// Dropping it ends its interest; other listeners are not affected.
pub struct Signal {
    kind: SignalKind,
    id: SigId,
    count: Source<Arc<OwnedFd>>,
    /// Signals that were taken from the count and not given out.
    taken: u64,
    /// The wait of the stream.
    wait: Wait,
}

/// Begins to listen to a signal. What is delivered from now on, [`Signal::recv`] gives.
///
/// # Errors
///
/// If there is no such signal; if it cannot be listened to (`SIGKILL`, `SIGSTOP`), or must not be:
/// `SIGSEGV`, `SIGILL` and `SIGFPE` say that the program is broken, and there is no going on. If the
/// system has no more file descriptors.
///
/// # Examples
///
/// ```
/// use dapple::signal::{SignalKind, signal};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let mut signals = signal(SignalKind::user_defined1())?;
///     std::process::Command::new("sh").args(["-c", "kill -USR1 $PPID"]).status()?;
///     signals.recv().await?;
///
///     assert!(signal(SignalKind::from_raw(9)).is_err()); // SIGKILL
///     Ok(())
/// })
/// # }
/// ```
pub fn signal(kind: SignalKind) -> io::Result<Signal> {
    world::outside("signal::signal")?;
    if FORBIDDEN.contains(&kind.as_raw()) {
        let message = match kind.as_raw() {
            libc::SIGKILL | libc::SIGSTOP => "the system does not let a program listen to it",
            _ => "it says that the program is broken, and there is no going on after it",
        };
        let message = format!("cannot listen to signal {}: {message}", kind.as_raw());
        return Err(io::Error::new(ErrorKind::InvalidInput, message));
    }
    let count = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (for_handler, own) = (count.clone(), getpid());
    let add_one = move || {
        if getpid() == own {
            // OWN-PROCESS. It fails only if 2^64 signals were not looked at.
            let _ = rustix::io::write(&*for_handler, &1_u64.to_ne_bytes()); // SIGNALS-COUNTED
        }
    };
    // SAFETY: both calls may be made in a signal handler, and do nothing else. IN-HANDLER
    let id = unsafe { signal_hook_registry::register(kind.as_raw(), add_one) };
    let id = id.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen to {kind}, if there is such a signal: {error}"))
    })?;
    Ok(Signal { kind, id, count: Source::new(count), taken: 0, wait: Wait::default() })
}

impl Signal {
    /// Waits for the next signal: one that came since the listener was made and was not yet given out.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)); if the runtime has ended.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no signal is lost.
    /// *Scope cancelled*: returns an error, and no signal is lost; or a signal, if there was one when
    /// the wait was polled again.
    pub async fn recv(&mut self) -> io::Result<()> {
        let mut wait = Wait::default();
        std::future::poll_fn(|cx| self.poll_recv(&mut wait, cx)).await
    }

    /// Waits for the next signal, and gives the number of all that have come by then: at least one.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no signal is lost.
    /// *Scope cancelled*: returns an error, and no signal is lost; or the number, if there was one when
    /// the wait was polled again.
    pub async fn recv_many(&mut self) -> io::Result<u64> {
        self.recv().await?;
        Ok(1 + std::mem::take(&mut self.taken) + self.count_now().unwrap_or(0))
    }

    /// Which signal it is.
    pub fn kind(&self) -> SignalKind {
        self.kind
    }

    fn count_now(&self) -> io::Result<u64> {
        read_count(self.count.get())
    }

    fn poll_recv(&mut self, wait: &mut Wait, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(wait.begin(cx))?;
        if self.taken > 0 {
            self.taken -= 1;
            wait.end();
            return Poll::Ready(Ok(()));
        }
        let came = ready!(self.count.poll_io(cx, Direction::Read, wait, |count| read_count(count)))?;
        self.taken = came - 1;
        Poll::Ready(Ok(()))
    }
}

/// Takes the count, which is not 0; `WouldBlock` if it is.
fn read_count(count: &OwnedFd) -> io::Result<u64> {
    let mut bytes = [0; 8];
    rustix::io::read(count, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

impl Stream for Signal {
    type Item = io::Result<()>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<()>>> {
        let mut wait = std::mem::take(&mut self.wait);
        let polled = self.poll_recv(&mut wait, cx);
        self.wait = wait;
        polled.map(Some)
    }
}

impl Drop for Signal {
    fn drop(&mut self) {
        signal_hook_registry::unregister(self.id);
        self.count.withdraw(); // a handler that runs just now may keep it open for a moment
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Waits for Ctrl-C: one that comes after this was called.
///
/// # Errors
///
/// If it cannot be listened to; if the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
///
/// # Cancellation
///
/// *Dropped early*: **clean**, but that Ctrl-C does not end the program any more.
/// *Scope cancelled*: returns an error.
///
/// # Examples
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     println!("press Ctrl-C");
///     dapple::signal::ctrl_c().await?;
///     println!("good bye");
///     Ok(())
/// })
/// # }
/// ```
pub fn ctrl_c() -> CtrlC {
    let signal = world::outside("signal::ctrl_c").and_then(|()| signal(SignalKind::interrupt()));
    CtrlC { signal: Some(signal) }
}

/// The future of [`ctrl_c`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct CtrlC {
    signal: Option<io::Result<Signal>>,
}

impl Future for CtrlC {
    type Output = io::Result<()>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.signal.as_mut().expect("polled after it was done") {
            Ok(signal) => {
                let came = ready!(Pin::new(signal).poll_next(cx));
                Poll::Ready(came.expect("signals do not end"))
            }
            Err(_) => match self.signal.take() {
                Some(Err(error)) => Poll::Ready(Err(error)),
                _ => unreachable!("it was an error just now"),
            },
        }
    }
}
