//! `serve`: how a server is configured and awaited.

use std::fmt;
use std::io;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::time::Duration;

use dapple::limit::Limit;
use dapple::{JoinError, JoinHandle};

use super::tasks;
use crate::connection::tls::Tls;
use crate::observer::{OwnAnswer, ReplyObserver};
use crate::registry::RequestLimit;
use crate::registry::settings::ServerSettings;
use crate::registry::stats::{ServerCounters, StatsReader};
use crate::request::service::{Handler, IntoHandler};
use crate::server::listen::Listener;

/// Serves the connections of a listener with a service: an axum `Router`, or any other service of tower or hyper.
///
/// Configure the returned [`Serve`], then await it.
///
/// # Errors
///
/// When it is awaited: fatal errors of `accept`. Running out of file descriptors is not one: `accept` is tried again.
///
/// # Panics
///
/// When it is awaited outside of a runtime.
///
/// # Cancellation
///
/// *Dropped early*: nothing more is accepted; connections finish what was begun, and are closed. *Scope cancelled*: as
/// if [`shutdown_on`](Serve::shutdown_on) had said so; returns what was served.
///
/// # Examples
///
/// A service of hyper's, asked once:
///
/// ```
/// use bytes::Bytes;
/// use dapple::channel::oneshot;
/// use dapple::io::{AsyncReadExt, AsyncWriteExt};
/// use dapple::net::{TcpListener, TcpStream};
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use hyper::{body::Incoming, service::service_fn};
/// use std::convert::Infallible;
///
/// async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
///     Ok(Response::new(Full::new("hello".into())))
/// }
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let address = listener.local_addr()?;
///     let (stop, stopped) = oneshot::channel::<()>();
///     let server = dapple_http::serve(listener, service_fn(hello)).shutdown_on(stopped);
///     let server = dapple::spawn(server.into_future());
///
///     let mut client = TcpStream::connect(address).await?;
///     client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
///     let mut answer = Vec::new();
///     client.read_to_end(&mut answer).await?;
///     assert!(answer.ends_with(b"hello"));
///
///     drop(stop);
///     let served = server.await.unwrap()?;
///     assert_eq!((served.requests, served.cut), (1, 0));
///     Ok(())
/// })
/// # }
/// ```
pub fn serve<L, S, M>(listener: L, service: S) -> Serve<L, S::Handler>
where
    L: Listener,
    S: IntoHandler<M>,
{
    Serve {
        listener,
        handler: service.into_handler(),
        settings: ServerSettings::default(),
        limit: RequestLimit::default(),
        counters: ServerCounters::default(),
        tls: None,
        shutdown: None,
    }
}

/// A server that was not started yet: await it.
#[must_use = "a server does nothing unless it is awaited"]
pub struct Serve<L, H> {
    pub(crate) listener: L,
    pub(crate) handler: H,
    pub(crate) settings: ServerSettings,
    pub(crate) limit: RequestLimit,
    pub(crate) counters: ServerCounters,
    pub(crate) tls: Option<Tls>,
    pub(crate) shutdown: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// The totals of a server that has ended.
///
/// # Examples
///
/// ```
/// # async fn example(listener: dapple::net::TcpListener, router: axum::Router) -> std::io::Result<()> {
/// let served: dapple_http::Served =
///     dapple_http::serve(listener, router).shutdown_on(dapple::signal::shutdown()).await?;
/// println!("{} requests on {} connections; {} were cut", served.requests, served.connections, served.cut);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Served {
    /// Connections that were accepted.
    pub connections: u64,
    /// Requests that were begun, whatever the answer.
    pub requests: u64,
    /// Connections that were still there at the deadline, and were cut.
    pub cut: usize,
}

impl<L, H> Serve<L, H> {
    /// Bounds how long requests wait for their turn, and how many are under way: beyond that, they are answered with
    /// 503 and `Retry-After`, before the service has seen them. Give one limit to several servers, colors and tasks to
    /// bound them together.
    ///
    /// Unless it is set, there is one of [50 ms over 500 ms](Limit::delay). With [`Limit::depth`] nothing is bounded
    /// here, for requests wait on their connections, one each. To not accept while there is no room, give the same
    /// limit to the listener, too.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limit = RequestLimit::new(Some(limit));
        self
    }

    /// Every request is begun, however late.
    pub fn no_limit(mut self) -> Self {
        self.limit = RequestLimit::new(None);
        self
    }

    /// Encrypts all connections.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: impl Into<Tls>) -> Self {
        self.tls = Some(tls.into());
        self
    }

    /// How long the head of a request may take, from its first byte on, and the first one from when the client
    /// has connected; a TLS handshake is part of it. After that the client gets a 408. 30 seconds.
    pub fn header_timeout(mut self, limit: Duration) -> Self {
        self.settings.header_timeout = limit;
        self
    }

    /// How long a client may take for each 8 KiB of a body, or its end, while the service waits for it. After that the
    /// body ends with an error, and the client gets a 408 if no answer has begun. 30 seconds.
    pub fn body_timeout(mut self, limit: Duration) -> Self {
        self.settings.body_timeout = limit;
        self
    }

    /// How long a connection on which nothing was begun is kept. 75 seconds.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.settings.idle_timeout = limit;
        self
    }

    /// How long a service may take for its response, from the end of the head to the first byte: then it is
    /// cancelled, and 503 is answered. There is no such limit unless it is set, since to receive a large body may
    /// rightly take long.
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.settings.request_timeout = limit;
        self
    }

    /// How long a client may take to receive each 8 KiB while the server waits for it. Then the connection is closed. 30
    /// seconds.
    ///
    /// The server looks twice in that time: in each half after the first one the client has to receive 4 KiB. With TCP
    /// the system tells how much was received. With Unix sockets progress is seen when the socket has room again, and
    /// with HTTP/2 when a shut window is opened.
    pub fn write_timeout(mut self, limit: Duration) -> Self {
        self.settings.write_timeout = limit;
        self
    }

    /// How long a handler may go on for a client that has shut down its side before the answer has begun, in HTTP/1.
    /// Then the request is cancelled. Two seconds.
    ///
    /// A client that closes its connection looks the same as one that only says that it will not send more
    /// (`shutdown(SHUT_WR)`, as `nc -N` does at the end of its input): the server learns the difference when it
    /// writes. With zero the request is cancelled at once. A client that resets its connection is gone, and its request
    /// is cancelled at once; one that has the head of its response gets all of it.
    pub fn half_close_grace(mut self, limit: Duration) -> Self {
        self.settings.half_close_grace = limit;
        self
    }

    /// How many streams an HTTP/2 client may have open at a time. 100.
    pub fn max_streams(mut self, count: u32) -> Self {
        self.settings.max_streams = count.max(1);
        self
    }

    /// How many handlers of one HTTP/2 connection may run at the same moment: the others wait for their turn. Handlers
    /// that await something do not count, so this bounds only how many workers one client can occupy by blocking or
    /// computing. 16.
    pub fn max_parallel_streams(mut self, count: usize) -> Self {
        self.settings.max_parallel_streams = count.max(1);
        self
    }

    /// How long a handler that was cancelled may take to come to its end; then it is dropped, also in a
    /// [`shield`](dapple::shield). Spawn clean-up that takes longer as a task of its own. A second.
    pub fn cancel_grace(mut self, limit: Duration) -> Self {
        self.settings.cancel_grace = limit;
        self
    }

    /// How many bytes the head of a request may have: more is answered with 431. 32 KiB.
    pub fn max_header_size(mut self, bytes: usize) -> Self {
        self.settings.max_header_size = bytes;
        self
    }

    /// How many bytes the body of a request may have: more is answered with 413. 16 MiB.
    pub fn max_body_size(mut self, bytes: usize) -> Self {
        self.settings.max_body_size = bytes;
        self
    }

    /// How many connections may be open: beyond that, clients wait to be accepted. Three quarters of the file
    /// descriptors that the process may have, and 65,536 at most.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.settings.max_connections = count.max(1);
        self
    }

    /// How many connections of one address may be open: another is closed at once. There is no such limit unless
    /// it is set, since all clients of a proxy have one address.
    pub fn max_connections_per_address(mut self, count: usize) -> Self {
        self.settings.max_connections_per_address = count.max(1);
        self
    }

    /// Puts a [`Peer`](crate::Peer) into the extensions of each request: the client's address, and whether it came by TLS.
    /// In axum's handlers it is `Extension<Peer>`, in place of `ConnectInfo<SocketAddr>`.
    pub fn peer_info(mut self) -> Self {
        self.settings.has_peer_info = true;
        self
    }

    /// Calls this with each answer that the server gives itself: to requests that are malformed, too large, too late
    /// or refused, or whose handler panicked or took too long. A service sees nothing of them, and an access log
    /// should. It is called where the connection is handled, so it must not block. HTTP/2 resets of a stream or of a
    /// connection are no answers, and are not reported.
    ///
    /// ```
    /// # async fn example(listener: dapple::net::TcpListener, router: axum::Router) -> std::io::Result<()> {
    /// dapple_http::serve(listener, router)
    ///     .on_own_answer(|answer| eprintln!("{:?} {:?}: {}", answer.method, answer.uri, answer.status))
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_own_answer(mut self, tell: impl Fn(&OwnAnswer<'_>) + Send + Sync + 'static) -> Self {
        self.settings.observer = Some(ReplyObserver::new(tell));
        self
    }

    /// Graceful shutdown: begins when the future ends, whatever its output is, an error included. No more connections are
    /// accepted, idle ones are closed, and requests that were begun are finished, until the
    /// [deadline](Self::shutdown_deadline).
    ///
    /// [`signal::shutdown`](dapple::signal::shutdown()) waits for SIGINT, which a terminal sends, and for SIGTERM, which service
    /// managers and containers send:
    ///
    /// ```no_run
    /// # async fn example(listener: dapple::net::TcpListener, router: axum::Router) -> std::io::Result<()> {
    /// dapple_http::serve(listener, router).shutdown_on(dapple::signal::shutdown()).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// WebSockets and bodies that never end (server-sent events) keep the server until the deadline, unless their own
    /// code ends them: [WebSockets at shutdown](crate::ws#shutdown).
    pub fn shutdown_on(mut self, signal: impl Future<Output: Send> + Send + 'static) -> Self {
        self.shutdown = Some(Box::pin(async move {
            signal.await;
        }));
        self
    }

    /// How long what was begun may take to finish, once the server is to end: then it is cut. 30 seconds.
    pub fn shutdown_deadline(mut self, limit: Duration) -> Self {
        self.settings.shutdown_deadline = limit;
        self
    }

    /// Returns a reader for the statistics of the server: requests, connections, refusals, panics. Call it before the
    /// server is awaited.
    ///
    /// # Examples
    ///
    /// ```
    /// use axum::{Router, routing::get};
    /// use dapple::io::{AsyncReadExt, AsyncWriteExt};
    /// use dapple::sim::net::{TcpListener, TcpStream};
    ///
    /// dapple::sim::Sim::new(1).run(async {
    ///     let router: Router = Router::new().route("/", get(|| async { "hello" }));
    ///     let listener = TcpListener::bind("10.0.0.1:80").await.unwrap();
    ///     let server = dapple_http::serve(listener, router);
    ///     let stats = server.stats(); // before the server is awaited
    ///     let server = dapple::spawn(server.into_future());
    ///
    ///     let mut client = TcpStream::connect("10.0.0.1:80").await.unwrap();
    ///     client.write_all(b"GET / HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").await.unwrap();
    ///     client.read_to_end(&mut Vec::new()).await.unwrap();
    ///     let now: dapple_http::ServerStats = stats.snapshot();
    ///     assert_eq!((now.accepted, now.requests, now.refused), (1, 1, 0));
    ///     server.abort();
    /// });
    /// ```
    #[must_use]
    pub fn stats(&self) -> StatsReader {
        StatsReader(self.counters.clone())
    }
}

impl<L: Listener, H: Handler> IntoFuture for Serve<L, H> {
    type Output = io::Result<Served>;
    type IntoFuture = Pin<Box<dyn Future<Output = io::Result<Served>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async {
            // In a color of its own: the main color's thread may be kept by a connection that blocks.
            let accepting = dapple::task::Builder::new().name("dapple-http").measure_wait();
            let mut task = ServerTask(accepting.spawn(tasks::accept(self)));
            let result = match (&mut task.0).await {
                Err(error) if error.is_cancelled() => {
                    task.0.cancel();
                    dapple::shield(&mut task.0).await
                }
                result => result,
            };
            match result.map_err(JoinError::try_into_panic) {
                Ok(served) => served,
                Err(Ok(panic)) => resume_unwind(panic),
                Err(Err(gone)) => Err(io::Error::other(gone)),
            }
        })
    }
}

/// The task of a server. Dropping this handle aborts the task.
struct ServerTask(JoinHandle<io::Result<Served>>);

impl Drop for ServerTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl<L, H> fmt::Debug for Serve<L, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serve").field("settings", &self.settings).finish_non_exhaustive()
    }
}
