//! A file descriptor of the user that can be waited for.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::source::{Direction, Source};
use crate::world;

/// Waits for a file descriptor: a socket that another library made, a device, an inotify, a timerfd.
///
/// The wrapped value owns or borrows the file descriptor. Any number of tasks may wait, through a
/// shared reference.
///
/// # Examples
///
/// ```
/// use dapple::net::AsyncFd;
/// use std::io::{Read, Write};
/// use std::os::unix::net::UnixStream;
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let (near, mut far) = UnixStream::pair()?;
///     let near = AsyncFd::new(near)?;
///     far.write_all(b"hello")?;
///     let mut buffer = [0; 16];
///     let n = near.read_with(|mut socket| socket.read(&mut buffer)).await?;
///     assert_eq!(&buffer[..n], b"hello");
///     Ok(())
/// })
/// # }
/// ```
pub struct AsyncFd<T: AsFd>(Option<Source<T>>);

impl<T: AsFd> AsyncFd<T> {
    /// Registers a file descriptor with the runtime, and puts it in non-blocking mode (which all its
    /// duplicates share).
    ///
    /// # Errors
    ///
    /// Outside of a runtime. If the file descriptor cannot be waited for: a regular file is always ready.
    pub fn new(io: T) -> io::Result<AsyncFd<T>> {
        AsyncFd::try_new(io).map_err(|(error, _)| error)
    }

    /// As [`new`](Self::new), and returns the value if it fails.
    ///
    /// # Errors
    ///
    /// As for [`new`](Self::new).
    pub fn try_new(io: T) -> Result<AsyncFd<T>, (io::Error, T)> {
        if let Err(error) = world::outside("AsyncFd::new") {
            return Err((error, io));
        }
        let source = Source::new(io);
        let is_ready = rustix::io::ioctl_fionbio(source.get(), true).map_err(io::Error::from);
        match is_ready.and_then(|()| source.register(Direction::Read).map(drop)) {
            Ok(()) => Ok(AsyncFd(Some(source))),
            Err(error) => Err((error, source.into_inner())),
        }
    }

    fn source(&self) -> &Source<T> {
        self.0.as_ref().expect("only `into_inner` takes it")
    }

    /// The wrapped value.
    pub fn get_ref(&self) -> &T {
        self.source().get()
    }

    /// The wrapped value. Do not replace the file descriptor that was registered: events of another one
    /// would not be reported.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("only `into_inner` takes it").get_mut()
    }

    /// Returns the wrapped value. It stays in non-blocking mode.
    #[must_use = "dropping it closes the file descriptor, if it owns it"]
    pub fn into_inner(mut self) -> T {
        self.0.take().expect("only `into_inner` takes it").into_inner()
    }

    /// Waits until the file descriptor is readable, at its end, or has an error.
    ///
    /// Another task may read first, so an operation must handle `WouldBlock`.
    /// [`read_with`](Self::read_with) does so.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)); if the runtime has ended.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready: the kernel is
    /// asked, by `poll(2)`, after the cancellation.
    pub async fn readable(&self) -> io::Result<()> {
        self.source().ready(Direction::Read).await
    }

    /// Waits until the file descriptor is writable; otherwise as [`readable`](Self::readable).
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready.
    pub async fn writable(&self) -> io::Result<()> {
        self.source().ready(Direction::Write).await
    }

    /// Calls `operation` until it returns anything but `WouldBlock` (or `Interrupted`). Before each call but the
    /// first it waits until the file descriptor is readable. A wait that is cancelled calls it once more.
    ///
    /// `operation` must be one that reads: it is called again when there is data to read.
    ///
    /// # Errors
    ///
    /// Those of `operation`; and as for [`readable`](Self::readable).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: every effect of `operation` was in a result. *Scope cancelled*:
    /// returns the result of `operation`, or an error if it has done nothing.
    pub async fn read_with<R>(&self, operation: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.source().io(Direction::Read, operation).await
    }

    /// As [`read_with`](Self::read_with), for an operation that writes.
    ///
    /// # Errors
    ///
    /// As for [`read_with`](Self::read_with).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: every effect of `operation` was in a result. *Scope cancelled*:
    /// returns the result of `operation`, or an error if it has done nothing.
    pub async fn write_with<R>(&self, operation: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.source().io(Direction::Write, operation).await
    }
}

impl<T: AsFd> AsFd for AsyncFd<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.get_ref().as_fd()
    }
}

impl<T: AsFd> AsRawFd for AsyncFd<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl<T: AsFd + fmt::Debug> fmt::Debug for AsyncFd<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncFd").field(self.get_ref()).finish()
    }
}

impl<T: AsFd> Drop for AsyncFd<T> {
    fn drop(&mut self) {
        // The file descriptor may stay open elsewhere.
        if let Some(source) = &self.0 {
            source.withdraw();
        }
    }
}
