//! Sending a file to a socket, without a copy through this program's memory.

use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::cached;
use super::file::{File, Opened};
use super::operation::{begin, on_pool};
use crate::io::Partial;
use crate::net::{TcpStream, UnixStream};

/// The most bytes that are sent in one call: from the page cache, on the worker itself; and by a thread of the pool,
/// which may wait for the disk.
const AT_ONCE: u64 = 128 << 10;
const ON_POOL: u64 = 1 << 20;

/// A socket that a file can be sent to: a [`TcpStream`] or a [`UnixStream`].
///
/// # Examples
///
/// ```
/// use dapple::fs::{File, Socket, send_file};
///
/// /// Sends a whole file to a client, whatever its kind of socket.
/// async fn send_all(file: &File, socket: &impl Socket) -> std::io::Result<u64> {
///     let length = file.metadata().await?.len();
///     send_file(file, 0..length, socket).await
/// }
///
/// # dapple::run(async {
/// let (here, mut there) = dapple::net::UnixStream::pair()?;
/// # let path = std::env::temp_dir().join(format!("dapple-socket-{}", std::process::id()));
/// # dapple::fs::write(&path, b"hello").await?;
/// let file = File::open(&path).await?;
/// assert_eq!(send_all(&file, &here).await?, 5);
/// # dapple::fs::remove_file(&path).await?;
/// drop(here);
/// let mut text = String::new();
/// dapple::io::AsyncReadExt::read_to_string(&mut there, &mut text).await?;
/// assert_eq!(text, "hello");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub trait Socket: AsFd + sealed::Writable {}

impl Socket for TcpStream {}
impl Socket for UnixStream {}

mod sealed {
    use super::{TcpStream, UnixStream, io};

    pub trait Writable {
        /// Waits until the socket is writable.
        fn wait_writable(&self) -> impl Future<Output = io::Result<()>> + Send;
    }

    impl Writable for TcpStream {
        fn wait_writable(&self) -> impl Future<Output = io::Result<()>> + Send {
            self.writable()
        }
    }

    impl Writable for UnixStream {
        fn wait_writable(&self) -> impl Future<Output = io::Result<()>> + Send {
            self.writable()
        }
    }
}

/// Sends a range of a file to a socket, by `sendfile`, without a copy through this program. Returns the number of
/// bytes that were sent, which is less than the range if the file ends before.
///
/// Data in the page cache is sent at once; other data is read and sent by a thread of the pool. The
/// cursor of the file does not move. No other task should write to the socket meanwhile.
///
/// # Errors
///
/// Those of the socket and of the disk. [`how_far`](crate::io::how_far) returns the exact number of bytes that were
/// sent before.
///
/// # Cancellation
///
/// *Dropped early*: **lossy**: an unknown part may be sent, and a part that a thread of the pool sends goes on. *Scope
/// cancelled*: returns `Cancelled`, after as many bytes as [`how_far`](crate::io::how_far) returns; or the result.
///
/// # Examples
///
/// ```
/// use dapple::fs::{self, File};
/// use dapple::io::AsyncReadExt;
/// use dapple::net::UnixStream;
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let path = std::env::temp_dir().join(format!("dapple-send-{}", std::process::id()));
///     fs::write(&path, "some words to send").await?;
///     let (near, mut far) = UnixStream::pair()?;
///     let file = File::open(&path).await?;
///     assert_eq!(fs::send_file(&file, 5..10, &near).await?, 5);
///     drop(near);
///     let mut text = String::new();
///     far.read_to_string(&mut text).await?;
///     assert_eq!(text, "words");
///     fs::remove_file(&path).await
/// })
/// # }
/// ```
pub async fn send_file<S: Socket>(file: &File, range: Range<u64>, socket: &S) -> io::Result<u64> {
    file.settle().await?;
    let mut at = range.start;
    let sent = send_range(&file.opened, &mut at, range.end, socket).await;
    let done = at - range.start;
    sent.map(|()| done).map_err(|error| {
        let error = file.opened.failed("send", error);
        Partial::both((done, Vec::new()), (0, Vec::new()), error)
    })
}

async fn send_range<S: Socket>(file: &Arc<Opened>, at: &mut u64, end: u64, socket: &S) -> io::Result<()> {
    let end = end.min(i64::MAX as u64);
    let mut duplicate: Option<Arc<OwnedFd>> = None;
    while *at < end {
        let left = end - *at;
        let sent = if is_in_memory(file, *at, left.min(AT_ONCE)) {
            begin().await?;
            send_some(socket.as_fd(), file, *at, left.min(AT_ONCE))
        } else {
            // The pool's thread may use the socket for longer than the caller keeps it open.
            let to = match &duplicate {
                Some(to) => to.clone(),
                None => duplicate.insert(Arc::new(socket.as_fd().try_clone_to_owned()?)).clone(),
            };
            let (file, at) = (file.clone(), *at);
            on_pool(move || send_some(to.as_fd(), &file, at, left.min(ON_POOL))).await
        };
        match sent {
            Ok(0) => return Ok(()),
            Ok(n) => *at += n,
            Err(error) if error.kind() == ErrorKind::WouldBlock => socket.wait_writable().await?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Sends as many bytes as the socket accepts. Reads from the disk, if necessary.
fn send_some(socket: BorrowedFd<'_>, file: &Opened, at: u64, len: u64) -> io::Result<u64> {
    let mut at = at;
    rustix::fs::sendfile(socket, file, Some(&mut at), len as usize).map(|n| n as u64).map_err(Into::into)
}

/// Whether the kernel reports that all of the range is in the page cache.
fn is_in_memory(file: &Opened, at: u64, len: u64) -> bool {
    /// The number of `cachestat`, which is the same on all architectures.
    const CACHESTAT: libc::c_long = 451;
    let Some(size) = cached::regular_len(file.as_fd()) else { return false };
    let len = len.min(size.saturating_sub(at));
    if len == 0 {
        return true; // nothing to read
    }
    let range: [u64; 2] = [at, len];
    // The number of pages in the cache, and four other counts.
    let mut counts = [0_u64; 5];
    // SAFETY: the call reads `range` and writes `counts`, and both have the size that it expects.
    let result =
        unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) };
    let page = rustix::param::page_size() as u64;
    let pages = (at + len).div_ceil(page) - at / page;
    result == 0 && counts[0] >= pages
}
