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
/// *Dropped early*: nothing more is accepted; connections finish what was begun, and are closed. *Scope cancelled*:
/// shuts down gracefully, as by [`shutdown_on`](Serve::shutdown_on), and returns the totals.
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
    /// Overload: bounds how long requests wait for a worker, and how many run. Requests beyond that are answered with
    /// 503 and `Retry-After`, and the service does not see them. Give one limit to several servers, colors and tasks
    /// to bound them together.
    ///
    /// The default is a limit of [50 ms over 500 ms](Limit::delay). [`Limit::depth`] has no effect here, because requests
    /// do not wait in a queue of the limit. To stop accepting connections while there is no room, give the same limit to
    /// the listener as well.
    pub fn limit(mut self, limit: Limit) -> Self {
        self.limit = RequestLimit::new(Some(limit));
        self
    }

    /// Switches the limit against overload off: no request is refused, however long it has waited. Use it behind a
    /// proxy that sheds load by itself, or to measure.
    pub fn no_limit(mut self) -> Self {
        self.limit = RequestLimit::new(None);
        self
    }

    /// Serves HTTPS: encrypts all connections with these certificates. A client that speaks plain HTTP to the port
    /// gets a 400; one whose handshake fails is disconnected. Keep a clone of the [`Tls`] to renew its certificate
    /// while the server runs.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: impl Into<Tls>) -> Self {
        self.tls = Some(tls.into());
        self
    }

    /// Timeout for the head of a request. 30 seconds by default. A client that needs longer gets a 408, and its
    /// connection is closed.
    ///
    /// The time counts from the first byte of the head. For the first request it counts from the connect, so it
    /// includes a TLS handshake.
    pub fn header_timeout(mut self, limit: Duration) -> Self {
        self.settings.header_timeout = limit;
        self
    }

    /// Timeout for each 8 KiB of a request's body, or its end, while the service reads it. 30 seconds by default.
    /// Then the body ends with an error, and the client gets a 408 if no response has begun.
    pub fn body_timeout(mut self, limit: Duration) -> Self {
        self.settings.body_timeout = limit;
        self
    }

    /// Timeout for idle connections: one without an open request for this long is closed. 75 seconds by default.
    pub fn idle_timeout(mut self, limit: Duration) -> Self {
        self.settings.idle_timeout = limit;
        self
    }

    /// Timeout for a handler, from the end of the request's head to the first byte of the response. Then the handler
    /// is cancelled, and the client gets a 503. No timeout by default, since receiving a large body may rightly take
    /// long.
    pub fn request_timeout(mut self, limit: Duration) -> Self {
        self.settings.request_timeout = limit;
        self
    }

    /// Timeout for slow readers: a client that takes longer than this to receive 8 KiB while the server waits for it
    /// is disconnected. 30 seconds by default.
    ///
    /// The server checks at the end of each half of this time. From the second half on, a client that has received less
    /// than 4 KiB in a half is disconnected. Over TCP the system reports the bytes received. Over a Unix socket the server
    /// sees progress only when the socket has room again, and with HTTP/2 when a window opens that was shut.
    pub fn write_timeout(mut self, limit: Duration) -> Self {
        self.settings.write_timeout = limit;
        self
    }

    /// Time that a handler may go on after its HTTP/1 client has shut down the sending side before the response
    /// began. Two seconds by default. Then the request is cancelled. Zero cancels it at once.
    ///
    /// A client that closes its connection looks the same as one that only ends its input (`shutdown(SHUT_WR)`, as
    /// `nc -N` does): the server learns the difference when it writes. A client that resets its connection has its
    /// request cancelled at once. A client that has the head of its response gets all of it.
    pub fn half_close_grace(mut self, limit: Duration) -> Self {
        self.settings.half_close_grace = limit;
        self
    }

    /// Maximum number of streams, and so of open requests, of one HTTP/2 connection. 100 by default. The client is
    /// told the number; a stream beyond it is refused.
    pub fn max_streams(mut self, count: u32) -> Self {
        self.settings.max_streams = count.max(1);
        self
    }

    /// Maximum number of handlers of one HTTP/2 connection that run at the same moment; others wait for their turn.
    /// 16 by default. Handlers that await something do not count, so this only bounds the number of workers that one
    /// client can occupy by blocking or computing.
    pub fn max_parallel_streams(mut self, count: usize) -> Self {
        self.settings.max_parallel_streams = count.max(1);
        self
    }

    /// Time that a cancelled handler may take to end. One second by default. Then it is dropped, also inside a
    /// [`shield`](dapple::shield). Spawn clean-up that takes longer as a task of its own.
    pub fn cancel_grace(mut self, limit: Duration) -> Self {
        self.settings.cancel_grace = limit;
        self
    }

    /// Maximum size of the head of a request, in bytes. 32 KiB by default. A larger one is answered with 431.
    pub fn max_header_size(mut self, bytes: usize) -> Self {
        self.settings.max_header_size = bytes;
        self
    }

    /// Maximum size of the body of a request, in bytes. 16 MiB by default. A larger one is answered with 413, and the
    /// service's read of it ends with an error.
    pub fn max_body_size(mut self, bytes: usize) -> Self {
        self.settings.max_body_size = bytes;
        self
    }

    /// Maximum number of open connections; further clients wait to be accepted. By default three quarters of the file
    /// descriptors that the process may have, and at most 65,536.
    pub fn max_connections(mut self, count: usize) -> Self {
        self.settings.max_connections = count.max(1);
        self
    }

    /// Maximum number of open connections per client address; further ones are closed at once. No maximum by default,
    /// since all clients of a proxy have one address.
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

    /// Calls the closure with each response that the server makes itself: to requests that are malformed, too large,
    /// too late or refused, or whose handler panicked or took too long. Use it for an access log, as the service does
    /// not see these requests.
    ///
    /// The closure is called on the task of the connection, so it must not block. HTTP/2 resets of a stream or a
    /// connection are no responses, and are not reported.
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

    /// Time limit for a graceful shutdown. 30 seconds by default. Connections that have open requests after it are
    /// cut, and counted in [`Served::cut`].
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
