//! Callbacks for file descriptors that can be read from, or written to.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::task::{Context, Poll};

use super::callback_tasks::Occasion;
use super::{Often, Registration, submit::Site};
use crate::cancel::wait::Wait;
use crate::sched::Sched;
use crate::source::{Direction, Source};
use crate::{is_cancelled, world};

/// A duplicate of a file descriptor that is waited for: so it is there, and the same, for as long as that takes.
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
        self.source.withdraw(); // the user's lives on, and with it what the kernel has in its list
    }
}

/// Whether it has happened. If there is nothing more to wait for, that is the end; if it cannot be waited for, that
/// is a panic, which reaches who withdraws the callback.
pub(super) fn go_on(happened: &io::Result<()>) -> bool {
    match happened {
        Ok(()) => true,
        Err(error) if is_cancelled(error) || crate::runtime::has_stopped() => false,
        Err(error) => panic!("a callback cannot wait any more: {error}"),
    }
}

/// Calls a callback whenever a file descriptor can be read from without blocking: libasync's `fdcb(fd, READ, cb)`.
///
/// As `select` has it: *while* it can be read from, which it also can at its end, or if it is broken. As long as the
/// callback leaves something unread, it is called again, once each time, after others of its color have had their
/// turn. It stays registered until it is [withdrawn](Registration).
///
/// The mode of the file descriptor is not changed: it need not be in non-blocking mode, if nobody else reads from it.
/// A regular file can always be read from. The same one may be registered any number of times.
///
/// The registration keeps a *duplicate* of the file descriptor, so what happens to the original does not disturb it.
/// The other side is not told of the end of a connection before both are closed: withdraw the callback first, or at
/// the same time, as a callback does that owns its connection and [breaks off](std::ops::ControlFlow::Break).
///
/// # Errors
///
/// In a [simulation](crate::sim), which has no file descriptors; if the process or the system has no more of them.
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
///         let n = reader.read(&mut buffer).unwrap(); // does not block: there is something
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
    ready(fd, Direction::Read, callback, Site::of_caller("event::readable"))
}

/// Calls a callback whenever a file descriptor can be written to without blocking: libasync's `fdcb(fd, WRITE, cb)`.
/// Otherwise as [`readable`].
///
/// Most can be written to most of the time, and the callback is called again and again then. Register it when there is
/// something to write, and withdraw it when there is not.
///
/// # Errors
///
/// As for [`readable`].
///
/// # Panics
///
/// As for [`readable`].
#[track_caller]
pub fn writable<C: Often>(fd: &impl AsFd, callback: C) -> io::Result<Registration> {
    ready(fd, Direction::Write, callback, Site::of_caller("event::writable"))
}

fn ready<C: Often>(
    fd: &impl AsFd,
    direction: Direction,
    callback: C,
    site: Site,
) -> io::Result<Registration> {
    world::outside(site.what)?;
    let source = Source::new(fd.as_fd().try_clone_to_owned()?);
    // From outside of a runtime, it is registered by the first call of the task.
    if Sched::current(|_| ()).is_some()
        && let Err(error) = source.register(direction)
        && error.kind() != io::ErrorKind::PermissionDenied
    {
        return Err(error);
    }
    // What `epoll` does not permit to wait for, such as a regular file, need not be: `poll` says that it is ready.
    Ok(callback.often(FdOccasion { source, direction, wait: Wait::default() }, site))
}
