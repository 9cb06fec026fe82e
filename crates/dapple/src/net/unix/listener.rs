//! The Unix listener, for connections from processes of this machine.

use std::fmt;
use std::io;
use std::os::unix::net::{self as std_net, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::stream::UnixStream;
use crate::net::accept::{Accept, AcceptedFd, ListeningSocket};
use crate::net::error::failed;
use crate::net::socket_traits::impl_socket;
use crate::world;

/// A Unix socket that listens for connections.
///
/// Any number of tasks may accept at the same time, through a shared reference. Each connection goes
/// to one of them.
///
/// # The file stays
///
/// A path that a listener is bound to stays in the file system when the listener is gone, and cannot be
/// bound again until it is removed (`std::fs::remove_file`, best *before* binding, so that it does
/// not matter how the program ended last time). An abstract name ([`bind_addr`](Self::bind_addr)) ends
/// with its listener.
///
/// # Examples
///
/// ```
/// use dapple::net::{UnixListener, UnixStream};
/// use futures_lite::{AsyncReadExt, AsyncWriteExt};
///
/// # fn main() -> std::io::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("dapple-doc-listener-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let path = folder.join("socket");
/// # let at = path.clone();
/// dapple::run(async {
///     let listener = UnixListener::bind(&path)?;
///     let client = dapple::spawn(async move {
///         let mut stream = UnixStream::connect(&path).await?;
///         stream.write_all(b"hello").await
///     });
///     let (mut stream, _) = listener.accept().await?;
///     let mut text = String::new();
///     stream.read_to_string(&mut text).await?;
///     assert_eq!(text, "hello");
///     client.await.unwrap()
/// })?;
/// # assert!(at.exists());
/// # std::fs::remove_dir_all(&folder)
/// # }
/// ```
pub struct UnixListener(ListeningSocket<std_net::UnixListener>);

impl UnixListener {
    /// Listens at a path.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if the path exists, also if it is left over from an earlier listener; those of creating a file.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<UnixListener> {
        world::outside("UnixListener::bind")?;
        let path = path.as_ref();
        let bound = std_net::UnixListener::bind(path);
        let bound = bound.map_err(|why| failed(format!("cannot listen at {}", path.display()), why))?;
        UnixListener::from_std(bound)
    }

    /// Listens at an address, which may be an abstract name:
    ///
    /// ```
    /// use std::os::linux::net::SocketAddrExt;
    /// use std::os::unix::net::SocketAddr;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let name = format!("dapple-doc-{}", std::process::id());
    /// let addr = SocketAddr::from_abstract_name(name)?;
    /// let listener = dapple::net::UnixListener::bind_addr(&addr)?;
    /// # drop(listener);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// `AddrInUse` if it is in use; those of creating a file.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<UnixListener> {
        world::outside("UnixListener::bind_addr")?;
        let bound = std_net::UnixListener::bind_addr(addr);
        UnixListener::from_std(bound.map_err(|why| failed(format!("cannot listen at {addr:?}"), why))?)
    }

    /// Wraps a listener of the standard library, and puts it in non-blocking mode.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn from_std(listener: std_net::UnixListener) -> io::Result<UnixListener> {
        world::outside("UnixListener::from_std")?;
        listener.set_nonblocking(true)?;
        Ok(UnixListener(ListeningSocket::new(listener)))
    }

    /// Sets a limit on accepting. While `limit` has no room ([`Limit::has_room`](crate::limit::Limit::has_room)), nothing
    /// is accepted, and connections wait in the kernel's queue. Accepting resumes by itself. It counts no connections: see
    /// [`TcpListener::set_limit`](crate::net::TcpListener::set_limit).
    pub fn set_limit(&mut self, limit: crate::limit::Limit) {
        self.0.set_limit(limit);
    }

    /// Converts it to a listener of the standard library. It stays in non-blocking mode.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn into_std(self) -> io::Result<std_net::UnixListener> {
        Ok(self.0.into_inner())
    }

    /// Accepts a connection. The address is that of the peer, which most often has none.
    ///
    /// # Errors
    ///
    /// If file descriptors or memory have run out. The connection is not lost, so accept again:
    /// that first waits a moment (1 ms, then longer, up to 100 ms), so that a loop does not
    /// spin.
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)); if the runtime has ended;
    /// outside of a runtime, if it has to wait.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: no connection is lost. *Scope cancelled*: returns an error, or a
    /// connection if one was ready.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        self.0.accept().await.and_then(accepted)
    }

    /// As [`accept`](Self::accept), for futures written by hand. One task may use it, and is woken when it
    /// should poll again.
    ///
    /// # Errors
    ///
    /// As for [`accept`](Self::accept).
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        self.0.poll_accept(cx).map(|result| result.and_then(accepted))
    }

    /// Returns the connections as a `Stream`, which never ends by itself: go on after an error, unless it
    /// [`is_cancelled`](crate::is_cancelled).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: no connection is lost. *Scope cancelled*: yields an error, or a
    /// connection if one was ready.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::net::{UnixListener, UnixStream};
    /// use futures_lite::StreamExt;
    ///
    /// # dapple::run(async {
    /// # let path = std::env::temp_dir().join(format!("dapple-incoming-{}", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// let client = UnixStream::connect(&path).await?;
    /// let served = listener.incoming().next().await.unwrap()?; // a stream of connections
    /// # std::fs::remove_file(&path)?;
    /// assert_eq!(served.local_addr()?.as_pathname(), Some(&*path));
    /// # drop(client);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming(self.0.accept())
    }

    /// Converts the listener to a `Stream` of its connections, which owns the listener; see [`incoming`](Self::incoming).
    /// Use it for a stream that is moved into a task.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::net::{UnixListener, UnixStream};
    /// use futures_lite::StreamExt;
    ///
    /// # dapple::run(async {
    /// # let path = std::env::temp_dir().join(format!("dapple-into-incoming-{}", std::process::id()));
    /// let mut incoming = UnixListener::bind(&path)?.into_incoming(); // borrows nothing
    /// let client = dapple::spawn({ let path = path.clone(); async move { UnixStream::connect(&path).await } });
    /// let served = incoming.next().await.unwrap()?;
    /// # std::fs::remove_file(&path)?;
    /// # drop((served, client));
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn into_incoming(self) -> IntoIncoming {
        IntoIncoming(self)
    }

    /// The address of the listener.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Takes the pending socket error (`SO_ERROR`), if there is one.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.get().take_error()
    }
}

fn accepted((fd, from): AcceptedFd) -> io::Result<(UnixStream, SocketAddr)> {
    let stream = std_net::UnixStream::from(fd);
    // Most peers have no name. A name may fill the whole address structure, which `rustix` does not expect.
    let is_named = from.is_some_and(|from| from.addr_len() as usize > size_of::<libc::sa_family_t>());
    let name = is_named.then(|| stream.peer_addr().ok()).flatten();
    let from = name.map_or_else(|| SocketAddr::from_pathname(""), Ok)?;
    Ok((UnixStream::from_nonblocking(stream), from))
}

impl_socket!(UnixListener of std_net::UnixListener, 0);

/// The connections of a listener; see [`UnixListener::incoming`].
#[must_use = "streams do nothing unless polled"]
pub struct Incoming<'a>(Accept<'a, std_net::UnixListener>);

impl Stream for Incoming<'_> {
    type Item = io::Result<UnixStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<UnixStream>>> {
        let result = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(Some(result.and_then(accepted).map(|(stream, _)| stream)))
    }
}

impl fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").finish_non_exhaustive()
    }
}

/// The connections of a listener; see [`UnixListener::into_incoming`].
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct IntoIncoming(UnixListener);

impl IntoIncoming {
    /// Returns the listener.
    #[must_use]
    pub fn into_inner(self) -> UnixListener {
        self.0
    }
}

impl AsRef<UnixListener> for IntoIncoming {
    fn as_ref(&self) -> &UnixListener {
        &self.0
    }
}

impl Stream for IntoIncoming {
    type Item = io::Result<UnixStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<UnixStream>>> {
        let result = ready!(self.0.poll_accept(cx));
        Poll::Ready(Some(result.map(|(stream, _)| stream)))
    }
}
