//! The listener of a simulated network.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::arrivals::{ArrivalWait, Arrivals, Tried};
use super::connect::find;
use super::connection::SimSocket;
use super::network::Network;
use super::options::check_ttl;
use super::stream::TcpStream;
use crate::net::ToAddrs;
use crate::net::error::failed;
use crate::prim::{AtomicU32, Mutex, Ordering, lock};

/// The most connections that wait to be accepted.
const BACKLOG: usize = 1024;

/// An address with a listener.
pub(super) struct SimListener {
    network: Arc<Network>,
    addr: SocketAddr,
    /// The connections to be accepted, each from its moment on, in this order.
    queue: Mutex<Vec<(u64, SimSocket)>>,
    acceptors: Arc<Arrivals>,
}

impl SimListener {
    pub(super) fn new(network: Arc<Network>, addr: SocketAddr) -> SimListener {
        SimListener { network, addr, queue: Mutex::default(), acceptors: Arc::default() }
    }

    pub(super) fn is_full(&self) -> bool {
        lock(&self.queue).len() >= BACKLOG
    }

    /// Queues a connection that arrives at this moment.
    pub(super) fn put(&self, socket: SimSocket, at: u64) {
        let mut queue = lock(&self.queue);
        let index = queue.partition_point(|(other, _)| *other <= at);
        queue.insert(index, (at, socket));
        drop(queue);
        self.acceptors.expect(at);
    }

    /// Removes the connection from this address, whose client has given up.
    pub(super) fn forget(&self, from: SocketAddr) {
        let mut queue = lock(&self.queue);
        let index = queue.iter().position(|(_, socket)| socket.peer_addr() == from);
        let forgotten = index.map(|index| queue.remove(index));
        drop(queue);
        drop(forgotten);
    }

    fn accept(&self) -> io::Result<Tried<SimSocket>> {
        let now = self.network.enter()?;
        let mut queue = lock(&self.queue);
        Ok(match queue.first() {
            Some((at, _)) if *at <= now => Tried::Done(queue.remove(0).1),
            first => Tried::NotYet(first.map(|(at, _)| *at)),
        })
    }

    fn poll_accept(&self, wait: &mut ArrivalWait, cx: &mut Context<'_>) -> Poll<io::Result<SimSocket>> {
        wait.poll(cx, &self.acceptors, &"a connection to accept", || self.accept())
    }
}

/// A TCP socket that listens for connections, in a simulation; as
/// [`dapple::net::TcpListener`](crate::net::TcpListener).
///
/// Any number of tasks may accept at the same time, through a shared reference. Each connection goes
/// to one of them.
///
/// # Examples
///
/// ```
/// use dapple::sim::Sim;
/// use dapple::sim::net::{TcpListener, TcpStream};
///
/// # fn main() -> std::io::Result<()> {
/// Sim::new(1).run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let client = dapple::spawn(TcpStream::connect(listener.local_addr()?));
///     let (stream, from) = listener.accept().await?;
///     assert_eq!(from, client.await.unwrap()?.local_addr()?);
///     drop(stream);
///     Ok(())
/// })
/// # }
/// ```
pub struct TcpListener {
    listening: Arc<SimListener>,
    ttl: AtomicU32,
    /// The wait of the caller with exclusive access.
    wait: ArrivalWait,
}

impl TcpListener {
    /// Listens at an address: the first of those given that is free. Port 0 means the next free port.
    ///
    /// # Errors
    ///
    /// If no address is free, with the error of the last one; if there is a name among them, other than
    /// `localhost`. Outside of a simulation.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**. *Scope cancelled*: returns an error, or the listener.
    pub async fn bind(addrs: impl ToAddrs) -> io::Result<TcpListener> {
        let network = Network::current("sim::net::TcpListener::bind")?;
        let addrs = find(addrs.target()).await?;
        let mut last = None;
        for &addr in addrs.as_slice() {
            match network.listen(addr) {
                Ok(listening) => {
                    return Ok(TcpListener {
                        listening,
                        ttl: AtomicU32::new(64),
                        wait: ArrivalWait::default(),
                    });
                }
                Err(why) => last = Some(failed(format!("cannot listen at {addr}"), why)),
            }
        }
        Err(last.expect("there is an address, or `find` fails"))
    }

    /// Accepts a connection.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled ([`is_cancelled`](crate::is_cancelled)); outside of its simulation.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**: no connection is lost. *Scope cancelled*: returns an error, or a
    /// connection if one was ready.
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let mut wait = ArrivalWait::default();
        let socket = poll_fn(|cx| self.listening.poll_accept(&mut wait, cx)).await?;
        Ok(self.accepted(socket))
    }

    /// As [`accept`](Self::accept), for futures written by hand. One task may use it, and is woken when it
    /// should poll again.
    ///
    /// # Errors
    ///
    /// As for [`accept`](Self::accept).
    pub fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let socket = ready!(self.listening.poll_accept(&mut self.wait, cx))?;
        Poll::Ready(Ok(self.accepted(socket)))
    }

    fn accepted(&self, socket: SimSocket) -> (TcpStream, SocketAddr) {
        lock(&socket.options).ttl = self.ttl.load(Ordering::Relaxed);
        let from = socket.peer_addr();
        (TcpStream::new(socket), from)
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
    /// use dapple::sim::Sim;
    /// use dapple::sim::net::{TcpListener, TcpStream};
    /// use futures_lite::StreamExt;
    ///
    /// # Sim::new(1).run(async {
    /// let listener = TcpListener::bind("10.0.0.1:80").await?;
    /// let client = TcpStream::connect("10.0.0.1:80").await?;
    /// let served = listener.incoming().next().await.unwrap()?; // a stream of connections
    /// assert_eq!(served.peer_addr()?, client.local_addr()?);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self, wait: ArrivalWait::default() }
    }

    /// Converts the listener to a `Stream` of its connections, which owns the listener; see [`incoming`](Self::incoming).
    /// Use it for a stream that is moved into a task.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::sim::Sim;
    /// use dapple::sim::net::{TcpListener, TcpStream};
    /// use futures_lite::StreamExt;
    ///
    /// # Sim::new(1).run(async {
    /// let mut incoming = TcpListener::bind("10.0.0.1:80").await?.into_incoming(); // borrows nothing
    /// let client = TcpStream::connect("10.0.0.1:80").await?;
    /// let served = incoming.next().await.unwrap()?;
    /// assert_eq!(served.peer_addr()?, client.local_addr()?);
    /// # std::io::Result::Ok(()) }).unwrap();
    /// ```
    pub fn into_incoming(self) -> IntoIncoming {
        IntoIncoming(self)
    }

    /// The address of the listener.
    ///
    /// # Errors
    ///
    /// None.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.listening.addr)
    }

    /// The most routers that a packet may pass. It has no effect here.
    ///
    /// # Errors
    ///
    /// None.
    pub fn ttl(&self) -> io::Result<u32> {
        Ok(self.ttl.load(Ordering::Relaxed))
    }

    /// Sets the [`ttl`](Self::ttl). Accepted connections inherit it.
    ///
    /// # Errors
    ///
    /// If it is 0 or more than 255.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.ttl.store(check_ttl(ttl)?, Ordering::Relaxed);
        Ok(())
    }

    /// The pending socket error (`SO_ERROR`): none here.
    ///
    /// # Errors
    ///
    /// None.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(None)
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        self.listening.network.hang_up(self.listening.addr);
        let queue = std::mem::take(&mut *lock(&self.listening.queue));
        queue.iter().for_each(|(_, socket)| socket.reset_on_drop());
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpListener").field("addr", &self.listening.addr).finish_non_exhaustive()
    }
}

/// The connections of a listener; see [`TcpListener::incoming`].
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
    wait: ArrivalWait,
}

impl Stream for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<TcpStream>>> {
        let listener = self.listener;
        let result = ready!(listener.listening.poll_accept(&mut self.wait, cx));
        Poll::Ready(Some(result.map(|socket| listener.accepted(socket).0)))
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
