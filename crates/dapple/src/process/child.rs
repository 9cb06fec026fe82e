//! A child process: its pipes, and how to wait for it and kill it.

use std::fmt;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::{Pin, pin};
use std::process::{self, ExitStatus, Output};
use std::task::{Context, Poll};

use futures_io::AsyncRead;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::{ChildStderr, ChildStdin, ChildStdout, reaper};
use crate::io::{AsyncReadExt, Partial};
use crate::prim::{Mutex, lock};
use crate::signal::SignalKind;
use crate::source::stream::begin;
use crate::source::{Direction, Source};

/// A child process, and the pipes to it. [`Command::spawn`](super::Command::spawn) makes it.
///
/// If it is dropped, the child runs on, or is killed if
/// [`Command::kill_on_drop`](super::Command::kill_on_drop) was set. Either way it leaves no zombie.
///
/// # Examples
///
/// ```
/// use dapple::io::{AsyncReadExt, AsyncWriteExt};
/// use dapple::process::{Command, Stdio};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
///     child.stdin.as_mut().unwrap().write_all(b"hello").await?;
///     drop(child.stdin.take()); // `cat` reads the end
///     let mut text = String::new();
///     child.stdout.as_mut().unwrap().read_to_string(&mut text).await?;
///     assert_eq!(text, "hello");
///     assert!(child.wait().await?.success());
///     Ok(())
/// })
/// # }
/// ```
pub struct Child {
    /// The child's standard input, if it is a pipe.
    pub stdin: Option<ChildStdin>,
    /// The child's standard output, if it is a pipe.
    pub stdout: Option<ChildStdout>,
    /// The child's standard error, if it is a pipe.
    pub stderr: Option<ChildStderr>,
    /// The process of the child; `None` only in `drop`.
    process: Option<Process>,
    kill_on_drop: bool,
}

struct Process {
    /// Becomes readable when the child has ended.
    pidfd: Source<OwnedFd>,
    child: Mutex<Reaped>,
    id: u32,
}

/// The child, and whether it was reaped. Until then no other process gets its number, also if it has
/// ended.
struct Reaped {
    child: process::Child,
    is_reaped: bool,
}

impl Reaped {
    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        let ended = self.child.try_wait();
        self.is_reaped |= !matches!(ended, Ok(None)); // an error means that other code has reaped it
        ended
    }
}

impl Child {
    pub(super) fn new(mut child: process::Child, kill_on_drop: bool) -> io::Result<Child> {
        match Child::wrap(&mut child) {
            Ok((stdin, stdout, stderr, pidfd)) => {
                let id = child.id();
                let child = Mutex::new(Reaped { child, is_reaped: false });
                let process = Process { pidfd: Source::new(pidfd), id, child };
                Ok(Child { stdin, stdout, stderr, process: Some(process), kill_on_drop })
            }
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait(); // it was killed, so this does not take long
                let message = format!("the child was killed, because it could not be waited for: {error}");
                Err(io::Error::new(error.kind(), message))
            }
        }
    }

    #[expect(clippy::type_complexity, reason = "the parts of a child")]
    fn wrap(
        child: &mut process::Child,
    ) -> io::Result<(Option<ChildStdin>, Option<ChildStdout>, Option<ChildStderr>, OwnedFd)> {
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| io::Error::other("the system returned an invalid process id"))?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty())?;
        let stdin = child.stdin.take().map(ChildStdin::new).transpose()?;
        let stdout = child.stdout.take().map(ChildStdout::new).transpose()?;
        let stderr = child.stderr.take().map(ChildStderr::new).transpose()?;
        Ok((stdin, stdout, stderr, pidfd))
    }

    fn process(&self) -> &Process {
        self.process.as_ref().expect("only `drop` takes the process")
    }

    /// The process id; `None` once [`wait`](Self::wait) or [`try_wait`](Self::try_wait) has returned the exit
    /// status, because another process may then have the number. Until then it is the child's, also if the child has
    /// ended.
    pub fn id(&self) -> Option<u32> {
        (!lock(&self.process().child).is_reaped).then(|| self.process().id)
    }

    /// Waits until the child ends, and returns its exit status. Further calls return the same.
    ///
    /// The child's standard input is closed first, if it is a pipe that has not been taken: a child
    /// that reads to the end would never end otherwise.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)); if other code has waited
    /// for the child, by a system call or by ignoring `SIGCHLD`.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; the child runs on.
    /// *Scope cancelled*: returns an error, and the child runs on; or the exit status, if the child had ended at the
    /// next poll.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::process::Command;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// dapple::run(async {
    ///     let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn()?;
    ///     assert_eq!(child.wait().await?.code(), Some(3));
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub async fn wait(&mut self) -> io::Result<ExitStatus> {
        begin().await?;
        drop(self.stdin.take());
        self.process().ended().await
    }

    /// Returns the exit status, or `None` if the child has not ended.
    ///
    /// # Errors
    ///
    /// If other code has waited for the child.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process().look()
    }

    /// Kills the child, and waits until it has ended. It is no error if the child has ended before.
    ///
    /// # Errors
    ///
    /// If the caller may not kill it (it runs as another user); as for [`wait`](Self::wait).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean** before the first poll; afterwards the child has been killed.
    /// *Scope cancelled*: the child has been killed, and the wait for its end returns an error.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// dapple::run(async {
    ///     let mut child = dapple::process::Command::new("sleep").arg("1000").spawn()?;
    ///     child.kill().await?;
    ///     assert!(!child.wait().await?.success());
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub async fn kill(&mut self) -> io::Result<()> {
        self.start_kill()?;
        self.wait().await.map(drop)
    }

    /// Kills the child, without waiting for its end. It is no error if the child has ended before.
    ///
    /// # Errors
    ///
    /// If the caller may not kill it: it runs as another user.
    pub fn start_kill(&mut self) -> io::Result<()> {
        self.process().kill()
    }

    /// Sends a signal to the child alone. The child may end, or handle or ignore the signal. It is no error if the
    /// child has ended before.
    ///
    /// # Errors
    ///
    /// If there is no such signal, or the caller may not send it (the child runs as another user).
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::process::Command;
    /// use dapple::signal::SignalKind;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// dapple::run(async {
    ///     let mut child = Command::new("sleep").arg("1000").spawn()?;
    ///     child.signal(SignalKind::terminate())?;
    ///     assert!(!child.wait().await?.success());
    ///     Ok(())
    /// })
    /// # }
    /// ```
    pub fn signal(&self, kind: SignalKind) -> io::Result<()> {
        self.process().send(number_of(kind)?)
    }

    /// Sends a signal to the process group of the child: the child, and the processes that it has
    /// started. The child must lead its group
    /// ([`Command::process_group`](super::Command::process_group) with 0). After [`wait`](Self::wait) or
    /// [`try_wait`](Self::try_wait) has returned the exit status nothing is sent, because another group may have the
    /// number.
    ///
    /// # Errors
    ///
    /// As for [`signal`](Self::signal). If the child does not lead a group.
    pub fn signal_group(&self, kind: SignalKind) -> io::Result<()> {
        let number = number_of(kind)?;
        let process = self.process();
        // Held until the signal is sent: the number stays the child's until it is reaped under this lock.
        let child = lock(&process.child);
        if child.is_reaped || !process.is_there() {
            return Ok(());
        }
        let Some(pid) = Pid::from_raw(process.id.cast_signed()) else { return Ok(()) };
        if rustix::process::getpgid(Some(pid))? != pid {
            return Err(io::Error::new(
                ErrorKind::InvalidInput,
                "the child does not lead a process group: spawn it with Command::process_group(0)",
            ));
        }
        // SAFETY: a system call that takes two integers and touches no memory.
        let sent = match unsafe { libc::killpg(pid.as_raw_pid(), number) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        };
        drop(child);
        sent
    }

    /// Waits until the child ends, and returns its exit status and all that it has written to its pipes. Both pipes
    /// are read at the same time, so that neither fills up.
    ///
    /// The child's standard input is closed first, as in [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// If a pipe cannot be read; as for [`wait`](Self::wait). The bytes that were read from the standard output
    /// are in [`Partial::rest`], and those from the standard error in [`Partial::rest_back`]. Another call returns the
    /// rest.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the bytes that were read.
    /// *Scope cancelled*: returns an error that contains the bytes that were read; the child runs on.
    pub async fn wait_with_output(&mut self) -> io::Result<Output> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let read = async {
            begin().await?;
            drop(self.stdin.take());
            let reading = read_all(self.stdout.as_mut(), &mut stdout);
            both(reading, read_all(self.stderr.as_mut(), &mut stderr)).await
        };
        let read = read.await;
        let ended = match read {
            Ok(()) => self.process().ended().await,
            Err(error) => Err(error),
        };
        match ended {
            Ok(status) => Ok(Output { status, stdout, stderr }),
            Err(error) => {
                let parts = [stdout, stderr].map(|bytes| (bytes.len() as u64, bytes));
                let [there, back] = parts;
                Err(Partial::both(there, back, error))
            }
        }
    }
}

impl Process {
    fn look(&self) -> io::Result<Option<ExitStatus>> {
        lock(&self.child).try_wait()
    }

    async fn ended(&self) -> io::Result<ExitStatus> {
        let look = |_: &OwnedFd| self.look()?.ok_or_else(|| ErrorKind::WouldBlock.into());
        self.pidfd.io(Direction::Read, look).await
    }

    fn kill(&self) -> io::Result<()> {
        self.send(libc::SIGKILL)
    }

    fn send(&self, number: i32) -> io::Result<()> {
        match self.try_send(number) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()), // it has ended
            sent => sent,
        }
    }

    /// Whether the child runs, or has ended and is not reaped. Until then the number is its own.
    fn is_there(&self) -> bool {
        !matches!(self.try_send(0), Err(error) if error.raw_os_error() == Some(libc::ESRCH))
    }

    /// Sends by the system call itself: `rustix` has no real-time signals.
    fn try_send(&self, number: i32) -> io::Result<()> {
        let pidfd = self.pidfd.get().as_raw_fd();
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: `pidfd` is open, and the kernel accepts a null pointer for the information.
        match unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd, number, no_info, 0) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// The number of a signal that can be sent. The C library reserves those between the ordinary and the real-time
/// signals.
fn number_of(kind: SignalKind) -> io::Result<i32> {
    match kind.as_raw() {
        number if (1..=31).contains(&number) => Ok(number),
        number if (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&number) => Ok(number),
        _ => {
            let message = format!("{kind:?} is not a signal that can be sent");
            Err(io::Error::new(ErrorKind::InvalidInput, message))
        }
    }
}

async fn read_all(pipe: Option<&mut (impl AsyncRead + Unpin)>, into: &mut Vec<u8>) -> io::Result<()> {
    match pipe {
        Some(pipe) => pipe.read_to_end(into).await.map(drop),
        None => Ok(()),
    }
}

/// Runs both at the same time, until both are done or one has failed.
async fn both(
    a: impl Future<Output = io::Result<()>>,
    b: impl Future<Output = io::Result<()>>,
) -> io::Result<()> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let mut is_done = [false; 2];
    poll_fn(move |cx| {
        let [a_done, b_done] = &mut is_done;
        let a = poll_once(a.as_mut(), a_done, cx);
        let b = poll_once(b.as_mut(), b_done, cx);
        match (a, b) {
            (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(Ok(())),
            _ => Poll::Pending,
        }
    })
    .await
}

/// Polls the future, unless it is done.
fn poll_once(
    future: Pin<&mut impl Future<Output = io::Result<()>>>,
    is_done: &mut bool,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>> {
    if *is_done {
        return Poll::Ready(Ok(()));
    }
    let polled = future.poll(cx);
    *is_done = polled.is_ready();
    polled
}

impl Drop for Child {
    fn drop(&mut self) {
        let Some(process) = self.process.take() else { return };
        if let Ok(Some(_)) = process.look() {
            return;
        }
        if self.kill_on_drop {
            let _ = process.kill(); // `drop` cannot return the error
        }
        let child = process.child.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
        reaper::leave(child.child, process.pidfd.into_inner());
    }
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child")
            .field("id", &self.process().id)
            .field("stdin", &self.stdin)
            .field("stdout", &self.stdout)
            .field("stderr", &self.stderr)
            .finish_non_exhaustive()
    }
}
