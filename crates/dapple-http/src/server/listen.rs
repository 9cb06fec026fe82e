//! Where connections come from.

use std::io;
use std::task::{Context, Poll};

use dapple::net::{TcpListener, TcpStream, UnixListener, UnixStream};
#[cfg(feature = "sim")]
use dapple::sim::net as sim;

use crate::connection::client_stream::ClientStream;
use crate::peer::Peer;

/// How much of an answer the kernel takes beyond what the client has room for.
///
/// Without a bound the kernel takes 2.5 MiB for a client that reads nothing. To copy that for 500 such clients keeps two
/// processors busy for seconds, in which no other request is served in time. Bytes that are on their way do not count, so
/// a fast client that is far away is not held up. With a quarter of this, large files to fast clients on the same machine
/// cost 14% more processor time: more writes are taken in part.
const UNSENT: u32 = 1 << 20;

/// A listener whose connections [`serve`](crate::serve()) can serve: of TCP, of Unix sockets, simulated
/// ([`sim::net`](dapple::sim::net)), or a `Vec` of several of one kind.
///
/// Sealed: it is implemented for these types only.
///
/// # Examples
///
/// ```
/// use dapple::net::{TcpListener, UnixListener};
/// use dapple_http::{Listener, Served};
///
/// /// Serves on any listener: of TCP, of a Unix socket, simulated, or a `Vec` of one kind.
/// async fn run(listener: impl Listener) -> std::io::Result<Served> {
///     dapple_http::serve(listener, axum::Router::new()).await
/// }
///
/// # async fn example() -> std::io::Result<()> {
/// run(TcpListener::bind("127.0.0.1:8080").await?).await?;
/// run(UnixListener::bind("/run/office.sock")?).await?;
/// run(vec![TcpListener::bind("127.0.0.1:80").await?, TcpListener::bind("[::1]:80").await?]).await?;
/// # Ok(()) }
/// ```
pub trait Listener: sealed::Sealed + Send + 'static {
    /// The stream of an accepted connection.
    type Stream: ClientStream + futures_io::AsyncRead + futures_io::AsyncWrite;

    /// Before the first connection.
    #[doc(hidden)]
    fn prepare(&mut self) {}

    /// The next connection.
    #[doc(hidden)]
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(Self::Stream, Peer)>>;
}

mod sealed {
    use super::{TcpListener, UnixListener};

    pub trait Sealed {}
    impl Sealed for TcpListener {}
    impl Sealed for UnixListener {}
    #[cfg(feature = "sim")]
    impl Sealed for super::sim::TcpListener {}
    impl<L: Sealed> Sealed for Vec<L> {}
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    fn prepare(&mut self) {
        // Accepted sockets inherit TCP_NODELAY: an answer is written whole, and has nothing to wait for. If the option
        // cannot be set, the server goes on without it.
        let _only_slower = rustix::net::sockopt::set_tcp_nodelay(&*self, true);
        // Inherited, too. If the option cannot be set, the kernel alone bounds the bytes held for slow readers.
        let _only_more = socket2::SockRef::from(&*self).set_tcp_notsent_lowat(UNSENT);
    }

    #[inline]
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, Peer)>> {
        self.poll_accept(cx).map_ok(|(stream, address)| (stream, Peer::new(Some(address), false)))
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    #[inline]
    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, Peer)>> {
        self.poll_accept(cx).map_ok(|(stream, _)| (stream, Peer::new(None, false)))
    }
}

/// For simulations: the whole server, in virtual time. Needs the feature `sim`.
#[cfg(feature = "sim")]
impl Listener for sim::TcpListener {
    type Stream = sim::TcpStream;

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(sim::TcpStream, Peer)>> {
        self.poll_accept(cx).map_ok(|(stream, address)| (stream, Peer::new(Some(address), false)))
    }
}

impl<L: Listener> Listener for Vec<L> {
    type Stream = L::Stream;

    fn prepare(&mut self) {
        self.iter_mut().for_each(Listener::prepare);
    }

    fn poll_accept(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<(L::Stream, Peer)>> {
        for listener in &mut *self {
            if let Poll::Ready(accepted) = listener.poll_accept(cx) {
                // The next one goes first, so that a busy one does not hide the others.
                self.rotate_left(1);
                return Poll::Ready(accepted);
            }
        }
        Poll::Pending
    }
}
