//! Any file descriptor of the user's that can be waited for.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use crate::source::{Direction, Source};
use crate::world;

/// Waits for a file descriptor: a socket that another library made, a device, an inotify, a timerfd.
///
/// The value inside owns or borrows the file descriptor. Any number of tasks may wait, through a
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
    /// Outside of a runtime. If it cannot be waited for, as a regular file, which is always ready.
    pub fn new(io: T) -> io::Result<AsyncFd<T>> {
        AsyncFd::try_new(io).map_err(|(error, _)| error)
    }

    /// As [`new`](Self::new), and gives the value back if it fails.
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

    /// What is inside.
    pub fn get_ref(&self) -> &T {
        self.source().get()
    }

    /// What is inside. The file descriptor must stay the one that was registered: of another one put
    /// in its place, nothing would be heard.
    pub fn get_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("only `into_inner` takes it").get_mut()
    }

    /// Gives back what is inside. It stays in non-blocking mode.
    #[must_use = "dropping it closes the file descriptor, if it owns it"]
    pub fn into_inner(mut self) -> T {
        self.0.take().expect("only `into_inner` takes it").into_inner()
    }

    /// Waits until it can be read without blocking, or its end or an error be read from it.
    ///
    /// Another may read it first; so an operation must be prepared to be told `WouldBlock`.
    /// [`read_with`](Self::read_with) does that by itself.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)); if the runtime has ended.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready then: the kernel is
    /// asked, by `poll(2)`, after the cancel.
    pub async fn readable(&self) -> io::Result<()> {
        self.source().ready(Direction::Read).await
    }

    /// Waits until it can be written to without blocking; otherwise as [`readable`](Self::readable).
    ///
    /// # Errors
    ///
    /// As for [`readable`](Self::readable).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or `Ok` if it was ready then.
    pub async fn writable(&self) -> io::Result<()> {
        self.source().ready(Direction::Write).await
    }

    /// Calls `operation` until it returns anything but `WouldBlock` (or `Interrupted`), waiting until
    /// it can be read before each call but the first. A wait that is cancelled calls it once more.
    ///
    /// `operation` must be one that reads: it is called again when there is something to read.
    ///
    /// # Errors
    ///
    /// Those of `operation`; and as for [`readable`](Self::readable).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: what `operation` has done it has returned. *Scope cancelled*:
    /// returns the result of `operation`, or an error, and then it has done nothing.
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
    /// *Dropped early*: **clean**: what `operation` has done it has returned. *Scope cancelled*:
    /// returns the result of `operation`, or an error, and then it has done nothing.
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
        // The file descriptor may live on elsewhere.
        if let Some(source) = &self.0 {
            source.withdraw();
        }
    }
}
