//! The TCP listener.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::socket::TcpSocket;
use super::stream::TcpStream;
use crate::net::accept::{Accept, AcceptedFd, ListeningSocket};
use crate::net::error::failed;
use crate::net::lookup::{ToAddrs, resolve};
use crate::net::socket_traits::impl_socket;
use crate::world;

/// The default for the most connections that wait to be accepted.
const BACKLOG: u32 = 1024;

/// A TCP socket that listens for connections.
///
/// Any number of tasks may accept at the same time, through a shared reference. Each connection goes
/// to one of them.
///
/// # Examples
///
/// ```
/// use dapple::net::{TcpListener, TcpStream};
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let client = dapple::spawn(TcpStream::connect(listener.local_addr()?));
///     let (stream, from) = listener.accept().await?;
///     assert_eq!(from, client.await.unwrap()?.local_addr()?);
///     drop(stream);
///     Ok(())
/// })
/// # }
/// ```
pub struct TcpListener(ListeningSocket<std::net::TcpListener>);

impl TcpListener {
    /// Listens at an address: the first of those given that is free. Port 0 means any free port.
    ///
    /// The address may have been in use a moment ago (`SO_REUSEADDR`), and 1024 connections may wait
    /// to be accepted. For other settings use a [`TcpSocket`].
    ///
    /// # Errors
    ///
    /// If no address is free, with the error of the last one; those of [`lookup`](crate::net::lookup).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or the listener, if the
    /// address was known.
    pub async fn bind(addrs: impl ToAddrs) -> io::Result<TcpListener> {
        world::outside("TcpListener::bind")?;
        let addrs = resolve(addrs.target()).await?;
        let mut last = None;
        for &addr in addrs.as_slice() {
            let bound = (|| {
                let socket = TcpSocket::new_for(addr)?;
                socket.set_reuseaddr(true)?;
                socket.bind(addr)?;
                socket.listen(BACKLOG)
            })();
            match bound {
                Ok(listener) => return Ok(listener),
                Err(why) => last = Some(failed(format!("cannot listen at {addr}"), why)),
            }
        }
        Err(last.expect("there is an address, or `resolve` fails"))
    }

    /// Wraps a listener of the standard library, and puts it in non-blocking mode.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn from_std(listener: std::net::TcpListener) -> io::Result<TcpListener> {
        world::outside("TcpListener::from_std")?;
        listener.set_nonblocking(true)?;
        Ok(TcpListener::from_nonblocking(listener))
    }

    pub(super) fn from_nonblocking(listener: std::net::TcpListener) -> TcpListener {
        TcpListener(ListeningSocket::new(listener))
    }

    /// Sets a limit on accepting. While `limit` has no room ([`Limit::has_room`](crate::limit::Limit::has_room)), nothing
    /// is accepted, and connections wait in the kernel's queue, whose length
    /// [`listen`](crate::net::TcpSocket::listen) sets. Accepting resumes by itself.
    ///
    /// Use it to bring in no more work during overload. It counts no connections: only other work with the same limit
    /// fills the limit, and a task counts when it has begun, so some more may be accepted before. To bound the number of
    /// connections, take a permit of a [`Semaphore`](crate::sync::Semaphore), or of
    /// [`Limit::admit`](crate::limit::Limit::admit), before each `accept`.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::limit::Limit;
    /// use dapple::net::{TcpListener, TcpStream};
    /// use dapple::time::{Duration, timeout};
    ///
    /// dapple::run(async {
    ///     let limit = Limit::new().concurrency(1);
    ///     let mut listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     listener.set_limit(limit.clone());
    ///     let _client = TcpStream::connect(listener.local_addr()?).await?;
    ///     let work = limit.try_admit().expect("there is room"); // the handler of a request, say
    ///     assert!(timeout(Duration::from_millis(10), listener.accept()).await.is_err());
    ///     drop(work);
    ///     listener.accept().await?; // there is room again
    /// #   Ok::<(), std::io::Error>(())
    /// })
    /// # .unwrap();
    /// ```
    pub fn set_limit(&mut self, limit: crate::limit::Limit) {
        self.0.set_limit(limit);
    }

    /// Converts it to a listener of the standard library. It stays in non-blocking mode.
    ///
    /// # Errors
    ///
    /// None today.
    pub fn into_std(self) -> io::Result<std::net::TcpListener> {
        Ok(self.0.into_inner())
    }

    /// Accepts a connection.
    ///
    /// # Errors
    ///
    /// If file descriptors or memory have run out. The connection is not lost, so accept
    /// again: that first waits a moment (1 ms, then longer, up to 100 ms), so that a loop
    /// does not spin. A connection that breaks before it is accepted is not an error, and is
    /// skipped.
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)); if the runtime has ended;
    /// outside of a runtime, if it has to wait.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: no connection is lost. *Scope cancelled*: returns an error, or a
    /// connection if one was ready.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::net::{TcpListener, TcpStream};
    ///
    /// # dapple::run(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?; // port 0: any that is free
    /// let client = TcpStream::connect(listener.local_addr()?).await?;
    /// let (stream, peer) = listener.accept().await?;
    /// assert_eq!(peer, client.local_addr()?);
    /// # drop(stream);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.0.accept().await.and_then(accepted)
    }

    /// As [`accept`](Self::accept), for futures written by hand. One task may use it, and is woken when it
    /// should poll again.
    ///
    /// # Errors
    ///
    /// As for [`accept`](Self::accept).
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
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
    /// use dapple::net::{TcpListener, TcpStream};
    /// use futures_lite::StreamExt;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// dapple::run(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let client = dapple::spawn(TcpStream::connect(listener.local_addr()?));
    ///     let mut incoming = listener.incoming();
    ///     while let Some(stream) = incoming.next().await {
    ///         println!("a connection from {}", stream?.peer_addr()?);
    /// #       break;
    ///     }
    /// #   client.await.unwrap()?;
    ///     Ok(())
    /// })
    /// # }
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
    /// use dapple::net::{TcpListener, TcpStream};
    /// use futures_lite::StreamExt;
    ///
    /// # dapple::run(async {
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let address = listener.local_addr()?;
    /// let mut incoming = listener.into_incoming(); // borrows nothing
    /// let client = dapple::spawn(async move { TcpStream::connect(address).await });
    /// let served = incoming.next().await.unwrap()?;
    /// assert_eq!(served.local_addr()?, address);
    /// # drop(client);
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

    /// The most routers that a packet may pass.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get().ttl()
    }

    /// Sets the [`ttl`](Self::ttl). Accepted connections inherit it.
    ///
    /// # Errors
    ///
    /// If it is 0 or more than 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.get().set_ttl(ttl)
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

fn accepted((fd, from): AcceptedFd) -> io::Result<(TcpStream, SocketAddr)> {
    let stream = TcpStream::from_nonblocking(std::net::TcpStream::from(fd));
    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
    // The listener was made from a socket that is not a TCP socket.
    let from =
        from.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the listener is not a TCP socket"))?;
    Ok((stream, from))
}

impl_socket!(TcpListener of std::net::TcpListener, 0);

/// The connections of a listener; see [`TcpListener::incoming`].
#[must_use = "streams do nothing unless polled"]
pub struct Incoming<'a>(Accept<'a, std::net::TcpListener>);

impl Stream for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<TcpStream>>> {
        let result = ready!(Pin::new(&mut self.0).poll(cx));
        Poll::Ready(Some(result.and_then(accepted).map(|(stream, _)| stream)))
    }
}

impl fmt::Debug for Incoming<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Incoming").finish_non_exhaustive()
    }
}

/// The connections of a listener; see [`TcpListener::into_incoming`].
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct IntoIncoming(TcpListener);

impl IntoIncoming {
    /// Returns the listener.
    #[must_use]
    pub fn into_inner(self) -> TcpListener {
        self.0
    }
}

impl AsRef<TcpListener> for IntoIncoming {
    fn as_ref(&self) -> &TcpListener {
        &self.0
    }
}

impl Stream for IntoIncoming {
    type Item = io::Result<TcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<TcpStream>>> {
        let result = ready!(self.0.poll_accept(cx));
        Poll::Ready(Some(result.map(|(stream, _)| stream)))
    }
}
