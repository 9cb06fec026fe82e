//! Listeners for signals.
//!
//! # Invariants
//!
//! * **SIGNALS-COUNTED**: each listener has an eventfd of its own, and the handler adds one to it. The kernel
//!   sums up: no signal is lost, however many come before the listener looks.
//! * **IN-HANDLER**: the code in the signal handler is `getpid`, and one `write` to a file descriptor
//!   that the handler's own reference keeps open: no allocation, no lock, no destructor.
//!   `signal-hook-registry` preserves `errno`, and drops the reference outside of handlers.
//! * **OWN-PROCESS**: between `fork` and `exec` a child process has the parent's handlers and eventfds. A signal to
//!   the child at that time (Ctrl-C goes to both) is not for the parent, and is not counted.

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

/// A listener for signals of one kind. It is also a `Stream` of `io::Result<()>` that does not end.
///
/// Drop it to stop listening; other listeners are not affected.
///
/// # Examples
///
/// ```
/// use dapple::signal::{SignalKind, signal};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let mut hangups = signal(SignalKind::hangup())?;
///     # let this = rustix::process::getpid();
///     # rustix::process::kill_process(this, rustix::process::Signal::HUP)?;
///     hangups.recv().await?; // time to read the configuration again
///     Ok(())
/// })
/// # }
/// ```
pub struct Signal {
    kind: SignalKind,
    id: SigId,
    count: Source<Arc<OwnedFd>>,
    /// Signals that were taken from the count and not given out.
    taken: u64,
    /// The wait of the stream.
    wait: Wait,
}

/// Begins to listen to a signal. [`Signal::recv`] returns each one that is delivered from now on.
///
/// # Errors
///
/// If there is no such signal; if the system does not allow it (`SIGKILL`, `SIGSTOP`); for
/// `SIGSEGV`, `SIGILL` and `SIGFPE`, after which a program cannot go on; if no
/// file descriptor is left.
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
            _ => "it reports a fault of the program, after which the program cannot go on",
        };
        let message = format!("cannot listen to signal {}: {message}", kind.as_raw());
        return Err(io::Error::new(ErrorKind::InvalidInput, message));
    }
    let count = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    let (for_handler, own) = (count.clone(), getpid());
    let add_one = move || {
        if getpid() == own {
            // OWN-PROCESS. The write fails only after 2^64 unread signals.
            let _ = rustix::io::write(&*for_handler, &1_u64.to_ne_bytes()); // SIGNALS-COUNTED
        }
    };
    // SAFETY: both calls are allowed in a signal handler, and the closure does nothing else. IN-HANDLER
    let id = unsafe { signal_hook_registry::register(kind.as_raw(), add_one) };
    let id = id.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen to {kind}, if there is such a signal: {error}"))
    })?;
    Ok(Signal { kind, id, count: Source::new(count), taken: 0, wait: Wait::default() })
}

impl Signal {
    /// Waits for the next signal: one that came since the listener was made and was not yet returned.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)); if the runtime has ended.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no signal is lost.
    /// *Scope cancelled*: returns an error, and no signal is lost; or a signal, if there was one at
    /// the next poll.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::signal::{SignalKind, signal};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// dapple::run(async {
    ///     let mut signals = signal(SignalKind::user_defined2())?;
    ///     # let this = rustix::process::getpid();
    ///     # rustix::process::kill_process(this, rustix::process::Signal::USR2)?;
    ///     signals.recv().await?;
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub async fn recv(&mut self) -> io::Result<()> {
        let mut wait = Wait::default();
        std::future::poll_fn(|cx| self.poll_recv(&mut wait, cx)).await
    }

    /// Waits for the next signal, and returns the number of all that have come by then: at least one.
    ///
    /// # Errors
    ///
    /// As for [`recv`](Self::recv).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no signal is lost.
    /// *Scope cancelled*: returns an error, and no signal is lost; or the number, if there was a signal at
    /// the next poll.
    pub async fn recv_many(&mut self) -> io::Result<u64> {
        self.recv().await?;
        Ok(1 + std::mem::take(&mut self.taken) + self.count_now().unwrap_or(0))
    }

    /// The kind of signal.
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

/// Takes the count; `WouldBlock` if it is 0.
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
        self.count.withdraw(); // a handler that is running may keep it open for a moment
    }
}

impl fmt::Debug for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signal").field("kind", &self.kind).finish_non_exhaustive()
    }
}

/// Waits for a Ctrl-C that comes after this call.
///
/// # Errors
///
/// If the signal cannot be listened to; if the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
///
/// # Cancellation
///
/// *Dropped early*: **clean**, except that Ctrl-C no longer ends the program.
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
        match self.signal.as_mut().expect("`CtrlC` was polled after it had returned") {
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

/// Waits until the program is asked to end: for a SIGINT (Ctrl-C) or a SIGTERM that comes after this call. Returns which
/// of the two came.
///
/// Use it for a graceful shutdown: terminals send SIGINT; systemd, Docker and Kubernetes send SIGTERM. From this call on,
/// neither of them ends the program by itself, also after this future was dropped. A program that should end at once on
/// a second signal calls this function again.
///
/// # Errors
///
/// If the signals cannot be listened to; if the wait was cancelled ([`is_cancelled`](crate::is_cancelled)).
///
/// # Cancellation
///
/// *Dropped early*: **clean**, except that the signals no longer end the program.
/// *Scope cancelled*: returns an error; or the signal, if one had come when the wait was polled again.
///
/// # Examples
///
/// ```
/// use dapple::signal::{SignalKind, shutdown};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let asked_to_end = shutdown(); // listens from here on
///     # let this = rustix::process::getpid();
///     # rustix::process::kill_process(this, rustix::process::Signal::TERM)?;
///     let signal = asked_to_end.await?;
///     assert_eq!(signal, SignalKind::terminate());
///     println!("{signal}: closing; a second signal ends the program at once");
///     let second = dapple::spawn(async {
///         if shutdown().await.is_ok() {
///             std::process::exit(1);
///         }
///     });
///     // ... closes what is open ...
///     second.abort();
///     Ok(())
/// })
/// # }
/// ```
pub fn shutdown() -> ShutdownSignal {
    let listen = || {
        world::outside("signal::shutdown")?;
        Ok([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?])
    };
    ShutdownSignal { signals: Some(listen()) }
}

/// The future of [`shutdown`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct ShutdownSignal {
    /// None once it has failed.
    signals: Option<io::Result<[Signal; 2]>>,
}

impl Future for ShutdownSignal {
    type Output = io::Result<SignalKind>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<SignalKind>> {
        match self.signals.as_mut().expect("`ShutdownSignal` was polled after it had returned") {
            Ok(signals) => {
                for signal in signals {
                    if let Poll::Ready(came) = Pin::new(&mut *signal).poll_next(cx) {
                        let came = came.expect("signals do not end");
                        return Poll::Ready(came.map(|()| signal.kind()));
                    }
                }
                Poll::Pending
            }
            Err(_) => match self.signals.take() {
                Some(Err(error)) => Poll::Ready(Err(error)),
                _ => unreachable!("it was an error just now"),
            },
        }
    }
}
