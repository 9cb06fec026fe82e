//! Callbacks for file descriptors that become readable or writable.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};

use super::callback_tasks::Occasion;
use super::{Often, Registration, submit::CallSite};
use crate::cancel::wait::Wait;
use crate::sched::Sched;
use crate::source::{Direction, Source};
use crate::{is_cancelled, world};

/// Event of a file descriptor. It owns a duplicate, so the descriptor stays open and the same during the
/// wait.
struct FdOccasion {
    source: Source<OwnedFd>,
    direction: Direction,
    wait: Wait,
}

impl Occasion for FdOccasion {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let FdOccasion { source, direction, wait } = self;
        source.poll_ready(cx, *direction, wait).map(|ready| go_on(&ready))
    }
}

impl Drop for FdOccasion {
    fn drop(&mut self) {
        self.source.withdraw(); // the user's descriptor lives on, and with it the kernel's registration
    }
}

/// Whether the event has happened. `false` if the wait was cancelled or the runtime has ended. Any other
/// error panics; the panic reaches the code that withdraws the callback.
pub(super) fn go_on(happened: &io::Result<()>) -> bool {
    match happened {
        Ok(()) => true,
        Err(error) if is_cancelled(error) || crate::runtime::has_stopped() => false,
        Err(error) => panic!("the wait of a callback failed: {error}"),
    }
}

/// Calls a callback whenever a file descriptor can be read from without blocking: libasync's `fdcb(fd, READ,
/// cb)`.
///
/// It is level-triggered, as `select`: the callback is called *while* the descriptor is readable, which
/// includes the end of the file and errors. As long as the callback leaves data unread, it is called again,
/// once each time, after other work of its color has had its turn. It stays registered until it is
/// [withdrawn](Registration).
///
/// The mode of the file descriptor is not changed: it need not be non-blocking, if no other code reads from
/// it. A regular file is always readable. The same descriptor may be registered any number of times.
///
/// The registration keeps a *duplicate* of the file descriptor, so closing the original does not disturb it.
/// The peer sees the end of a connection only when both are closed: withdraw the callback first, or at the
/// same time, as a callback does that owns its connection and [breaks off](std::ops::ControlFlow::Break).
///
/// # Errors
///
/// In a [simulation](crate::sim), which has no file descriptors. If the process or the system is out of file
/// descriptors.
///
/// # Panics
///
/// If the callback has no color, and there is [no main color](super#colors) for it.
///
/// # Examples
///
/// ```
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
/// use dapple::event::{self, Callback};
///
/// # fn main() -> std::io::Result<()> {
/// let (near, mut far) = UnixStream::pair()?;
/// far.write_all(b"hello")?;
/// let text = dapple::run(dapple::suspend(|resume| {
///     let (mut reader, mut resume) = (near.try_clone().unwrap(), Some(resume));
///     let read = Callback::new(move || {
///         let mut buffer = [0; 16];
///         let n = reader.read(&mut buffer).unwrap(); // does not block: there is data
///         let _ = resume.take().unwrap().resume(buffer[..n].to_vec());
///         std::ops::ControlFlow::Break(())
///     });
///     let reading = event::readable(&near, read).unwrap();
///     || drop(reading)
/// }));
/// assert_eq!(text.unwrap(), b"hello");
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn readable<C: Often>(fd: &impl AsFd, callback: C) -> io::Result<Registration> {
    ready(fd, Direction::Read, callback, CallSite::of_caller("event::readable"))
}

/// Calls a callback whenever a file descriptor can be written to without blocking: libasync's `fdcb(fd,
/// WRITE, cb)`. Otherwise as [`readable`].
///
/// Most descriptors are writable most of the time, and the callback is then called again and again. Register
/// it when there is data to write, and withdraw it when there is none.
///
/// # Errors
///
/// As for [`readable`].
///
/// # Panics
///
/// As for [`readable`].
///
/// # Examples
///
/// ```
/// use dapple::event::{self, Callback};
/// use std::ops::ControlFlow;
///
/// dapple::run(async {
///     let (here, _there) = std::os::unix::net::UnixStream::pair().unwrap();
///     here.set_nonblocking(true).unwrap();
///     let (tell, told) = dapple::channel::oneshot::channel();
///     let mut tell = Some(tell);
///     let callback = Callback::new(move || {
///         let _ = tell.take().map(|tell| tell.send(()));
///         ControlFlow::Break(()) // is not called again
///     });
///     event::writable(&here, callback).unwrap().detach();
///     told.await.unwrap();
/// });
/// ```
#[track_caller]
pub fn writable<C: Often>(fd: &impl AsFd, callback: C) -> io::Result<Registration> {
    ready(fd, Direction::Write, callback, CallSite::of_caller("event::writable"))
}

fn ready<C: Often>(
    fd: &impl AsFd,
    direction: Direction,
    callback: C,
    site: CallSite,
) -> io::Result<Registration> {
    world::outside(site.what)?;
    let source = Source::new(fd.as_fd().try_clone_to_owned()?);
    // Outside of a runtime, the task registers it at its first poll.
    if Sched::current(|_| ()).is_some()
        && let Err(error) = source.register(direction)
        && error.kind() != io::ErrorKind::PermissionDenied
    {
        return Err(error);
    }
    // `epoll` refuses descriptors that are always ready, such as regular files: for them `poll` reports
    // readiness at once.
    Ok(callback.often(FdOccasion { source, direction, wait: Wait::default() }, site))
}
