//! The tasks of a server: the one that accepts, and one for each connection.
//!
//! A connection is a task with a color of its own that drives hyper, keeps the timeouts, and is woken for shutdown.
//!
//! First the task finds out which protocol the client speaks: from the TLS handshake, or from the first bytes, which
//! hyper is given again. Then hyper takes over. With HTTP/1 all requests are polled in this very task; with HTTP/2 each
//! stream is a task with a color of its own.
//!
//! A connection has one timer, whatever its client is slow at. The timer is entered for the deadline of the moment, and stays
//! there when the client makes progress. If the timer fires before the deadline that holds then, it is entered again. So a
//! request costs a look at the clock, and no timer.
//!
//! # Invariants
//!
//! * **ENTERED**: a timer that stays where it is was polled while the task's budget was not spent. (A timer that is polled
//!   with a spent budget does not enter itself, but wakes the task.) So after the timer was set, the task polls it once more,
//!   before anything else.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dapple::time::{Instant, Sleep, sleep};
use http::StatusCode;
use hyper::rt::{Read, Write};
use hyper::server::conn::http1;

use super::listen::Listener;
use super::serve::{Serve, Served};
use super::{handshake, http2};
use crate::connection::client_stream::ClientStream;
use crate::connection::io::ConnectionIo;
use crate::connection::phase::Timed;
use crate::connection::shared::{Connection, StreamHandle, TaskHandle};
use crate::peer::Peer;
use crate::registry::{ConnectionPermit, Server, ShutdownStage};
use crate::request::handling::RequestService;
use crate::request::service::Handler;

/// An event for the task that accepts connections.
enum AcceptEvent<S> {
    Accepted(S, Peer),
    Shutdown,
    Failed(io::Error),
}

/// The task that accepts, until the server has ended.
pub(super) async fn accept<L: Listener, H: Handler>(serve: Serve<L, H>) -> io::Result<Served> {
    let Serve { mut listener, handler, settings, limit, counters, tls, mut shutdown } = serve;
    let deadline = settings.shutdown_deadline;
    let server = Arc::new(Server::new(settings, limit, counters));
    server.counters.set_server(&server);
    let leaving = Leaving(server.clone());
    listener.prepare();
    let failed = loop {
        match next(&mut listener, &server, &mut shutdown).await {
            AcceptEvent::Accepted(stream, peer) => {
                server.counters.count_accepted();
                let Some(permit) = server.admit(peer) else {
                    server.counters.count_turned_away();
                    continue;
                };
                let peer = Peer { is_tls: tls.is_some(), ..peer };
                let (handler, shared) = (handler.clone(), Connection::new(server.clone(), peer));
                match &tls {
                    None => server.limit.spawn(serve_plain(stream, handler, shared, permit)),
                    Some(tls) => {
                        server.limit.spawn(handshake::serve(stream, tls.clone(), handler, shared, permit));
                    }
                }
            }
            AcceptEvent::Shutdown => break None,
            AcceptEvent::Failed(error) => break Some(error),
        }
    };
    drop(listener);
    let cut = dapple::shield(drain(&server, deadline)).await;
    drop(leaving);
    match failed {
        Some(error) => Err(error),
        None => {
            let counts = server.counters.snapshot();
            Ok(Served { connections: counts.accepted, requests: counts.requests, cut })
        }
    }
}

/// Starts draining when the task of a server ends, in whatever way: connections finish the requests that they have
/// begun, and are closed.
struct Leaving(Arc<Server>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.go_to(ShutdownStage::Draining);
    }
}

/// Waits for the next connection, if there is room for it, or for the end.
async fn next<L: Listener>(
    listener: &mut L,
    server: &Server,
    shutdown: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
) -> AcceptEvent<L::Stream> {
    let mut changed = pin!(None);
    poll_fn(|cx| {
        if let Some(shutdown) = shutdown
            && shutdown.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(AcceptEvent::Shutdown);
        }
        loop {
            if server.has_room() {
                let accepted = std::task::ready!(listener.poll_accept(cx));
                return match accepted {
                    Ok((stream, peer)) => Poll::Ready(AcceptEvent::Accepted(stream, peer)),
                    // Nothing is lost, and to try again waits for a moment.
                    Err(error) if is_passing(&error) => continue,
                    Err(error) if dapple::is_cancelled(&error) => Poll::Ready(AcceptEvent::Shutdown),
                    Err(error) => Poll::Ready(AcceptEvent::Failed(error)),
                };
            }
            if changed.is_none() {
                changed.set(Some(server.changed.notified()));
                continue; // look again, now that changes are notified
            }
            let waited = std::task::ready!(changed.as_mut().as_pin_mut().expect("set above").poll(cx));
            changed.set(None);
            if waited.is_err() {
                return Poll::Ready(AcceptEvent::Shutdown);
            }
        }
    })
    .await
}

/// Whether file descriptors or memory have run out, for now.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::CONNABORTED))
}

/// Lets requests under way finish, until the deadline. Returns how many connections were cut.
async fn drain(server: &Server, deadline: Duration) -> usize {
    server.go_to(ShutdownStage::Draining);
    let mut late = sleep(deadline);
    if is_empty_before(server, &mut late).await {
        return 0;
    }
    let cut = server.open();
    server.go_to(ShutdownStage::Cutting);
    // Handlers of connections that were cut have their grace to end. Connections that were upgraded to another
    // protocol do not belong to the server any more.
    is_empty_before(server, &mut sleep(server.settings.cancel_grace + Duration::from_millis(100))).await;
    cut
}

/// Whether all connections have ended before that.
async fn is_empty_before(server: &Server, late: &mut dapple::time::Sleep) -> bool {
    loop {
        let changed = server.changed.notified();
        if server.is_empty() {
            return true;
        }
        let mut changed = pin!(changed);
        let is_late = poll_fn(|cx| {
            if changed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(false);
            }
            Pin::new(&mut *late).poll(cx).map(|_| true)
        });
        if is_late.await {
            return server.is_empty();
        }
    }
}

/// How a client begins that knows that the server speaks HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How a client begins that means HTTP/2, whatever follows.
const MEANS_HTTP2: usize = b"PRI * HTTP/2.0\r\n".len();

/// The protocol that a client speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Serves a connection until it ends, by itself or because it took too long or was cut.
async fn serve_plain<S, H>(stream: S, handler: H, connection: Arc<Connection>, permit: ConnectionPermit)
where
    S: ClientStream,
    H: Handler,
{
    let _listed = poll_fn(|cx| Poll::Ready(connection.server.enter(connection.clone(), cx.waker()))).await;
    let io = ConnectionIo::new(stream, StreamHandle::new(&connection), permit);
    begin(io, None, ConnectionTimer::default(), handler, &TaskHandle::new(connection)).await;
}

/// Finds out what the client speaks, and goes on with that.
pub(super) async fn begin<S, H>(
    mut io: ConnectionIo<S>,
    protocol: Option<Protocol>,
    mut timer: ConnectionTimer,
    handler: H,
    task: &TaskHandle,
) where
    S: ClientStream,
    H: Handler,
{
    let protocol = match protocol {
        Some(protocol) => protocol,
        None => match poll_fn(|cx| poll_protocol(&mut io, &mut timer, task, cx)).await {
            Ok(Some(protocol)) => protocol,
            Ok(None) => {
                let text = "the connection preface of HTTP/2 is malformed\n";
                return refuse(io, timer, task, text).await;
            }
            Err(_nothing_came) => return,
        },
    };
    match protocol {
        Protocol::Http1 => {
            let service = RequestService::http1(handler, task.connection());
            let http = pin!(task.server().http1.serve_connection(io, service).with_upgrades());
            drive(http, &mut timer, task).await;
        }
        Protocol::Http2 => http2::serve(io, timer, handler, task).await,
    }
    task.ended();
}

/// Waits for the first bytes of a client, as many as are needed to know its protocol. None: it is malformed.
fn poll_protocol<S>(
    io: &mut ConnectionIo<S>,
    timer: &mut ConnectionTimer,
    task: &TaskHandle,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Option<Protocol>>>
where
    S: ClientStream,
{
    match task.server().stage() {
        ShutdownStage::Serving => {}
        // The bytes that have come may be a part of a head.
        ShutdownStage::Draining if !io.first().is_empty() => {}
        ShutdownStage::Draining | ShutdownStage::Cutting => {
            return Poll::Ready(Err(io::ErrorKind::Interrupted.into()));
        }
    }
    loop {
        let first = io.first();
        if first.starts_with(PREFACE) {
            return Poll::Ready(Ok(Some(Protocol::Http2)));
        }
        if !PREFACE.starts_with(first) || io.is_ended() && !first.is_empty() {
            let means_http2 = first.len() >= MEANS_HTTP2 && first[..MEANS_HTTP2] == PREFACE[..MEANS_HTTP2];
            return Poll::Ready(Ok((!means_http2).then_some(Protocol::Http1)));
        }
        match io.poll_more(cx) {
            Poll::Ready(Ok(())) if io.is_ended() && io.first().is_empty() => {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {
                ready!(timer.poll_late(task, cx));
                task.server().counters.count_timeout();
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
    }
}

/// Replies 400 to a client that speaks no HTTP that is understood here, and closes.
pub(super) async fn refuse<S>(
    mut io: ConnectionIo<S>,
    mut timer: ConnectionTimer,
    task: &TaskHandle,
    text: &str,
) where
    S: ClientStream,
{
    task.server().counters.count_bad();
    task.connection().tell_unread(StatusCode::BAD_REQUEST, Duration::ZERO);
    let reply = format!(
        "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{text}",
        text.len()
    );
    let mut rest = reply.as_bytes();
    poll_fn(|cx| {
        loop {
            let polled = match rest.is_empty() {
                true => Pin::new(&mut io).poll_shutdown(cx).map_ok(|()| 0),
                false => Pin::new(&mut io).poll_write(cx, rest),
            };
            match polled {
                Poll::Ready(Ok(count @ 1..)) => rest = &rest[count..],
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => match ready!(timer.poll_late(task, cx)) {
                    Timed::Closing if task.linger_over() => {}
                    _ => return Poll::Ready(()),
                },
            }
        }
    })
    .await;
}

/// A connection of hyper's.
pub(super) trait Http: Future<Output = hyper::Result<()>> {
    const IS_HTTP2: bool;

    /// Finishes what was begun, and ends.
    fn finish(self: Pin<&mut Self>);
}

impl<I, H> Http for http1::UpgradeableConnection<I, RequestService<H>>
where
    I: Read + Write + Unpin + Send + 'static,
    H: Handler,
{
    const IS_HTTP2: bool = false;

    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Drives a connection to its end.
pub(super) async fn drive<C: Http>(mut http: Pin<&mut C>, timer: &mut ConnectionTimer, task: &TaskHandle) {
    let server = task.server();
    let mut is_told = false;
    poll_fn(|cx| {
        timer.enter(cx);
        let stage = server.stage();
        if stage == ShutdownStage::Cutting {
            return Poll::Ready(());
        }
        loop {
            if let Poll::Ready(result) = http.as_mut().poll(cx) {
                if let Err(error) = result {
                    tell_unread(&error, task);
                }
                return Poll::Ready(());
            }
            // After hyper has read: a head that has come in part is begun, and hyper would close over it.
            if stage == ShutdownStage::Draining && !is_told && !task.has_head() {
                is_told = true;
                task.draining();
                http.as_mut().finish();
                continue;
            }
            if C::IS_HTTP2 {
                task.keep_waker(cx.waker());
            }
            match ready!(timer.poll(task, cx)) {
                Timed::Head(_) if task.has_head() => {
                    server.counters.count_timeout();
                    task.connection()
                        .tell_unread(StatusCode::REQUEST_TIMEOUT, server.settings.header_timeout);
                    // hyper reads again, and gets an error.
                    task.head_late();
                }
                Timed::Body(_) => {
                    server.counters.count_timeout();
                    // The same.
                    task.bare_body_late();
                }
                // hyper writes again, and the stream asks the kernel what the client has received.
                Timed::Blocked { .. } if task.half_is_over() => {}
                Timed::Head(_) | Timed::Blocked { .. } => {
                    server.counters.count_timeout();
                    return Poll::Ready(());
                }
                // A GOAWAY announces the end, and the client has a moment to notice.
                Timed::Idle(_) if task.is_http2() && !is_told => {
                    is_told = true;
                    task.draining();
                    http.as_mut().finish();
                }
                // hyper closes, and says why.
                Timed::Closing if task.linger_over() => {}
                Timed::Idle(_) | Timed::HalfClosed(_) | Timed::Gone | Timed::Closing => {
                    return Poll::Ready(());
                }
            }
        }
    })
    .await;
}

/// The timer of a connection: one for all that a client can be slow at.
#[derive(Default)]
pub(super) struct ConnectionTimer {
    sleep: Option<Sleep>,
    /// ENTERED
    is_entered: bool,
    /// The operation that was timed at the last look, and since when.
    last: Option<(Timed, Instant)>,
}

impl ConnectionTimer {
    /// At the beginning of each poll of the task. ENTERED
    #[inline]
    fn enter(&mut self, cx: &mut Context<'_>) {
        if !self.is_entered
            && let Some(sleep) = &mut self.sleep
        {
            // If it has fired, that is seen when it is next looked at.
            let _ = Pin::new(sleep).poll(cx);
            self.is_entered = true;
        }
    }

    /// As [`poll`](Self::poll), where the kernel is not asked.
    pub(super) fn poll_late(&mut self, task: &TaskHandle, cx: &mut Context<'_>) -> Poll<Timed> {
        loop {
            match ready!(self.poll(task, cx)) {
                Timed::Blocked { .. } if task.half_is_over() => {}
                timed => return Poll::Ready(timed),
            }
        }
    }

    /// Ready with the operation that takes too long; [`Timed::Blocked`] after each half of its limit.
    fn poll(&mut self, task: &TaskHandle, cx: &mut Context<'_>) -> Poll<Timed> {
        let Some((timed, limit)) = task.timed().filter(|(_, limit)| *limit != Duration::MAX) else {
            self.last = None;
            return Poll::Pending;
        };
        let (is_new, since) = match self.last {
            Some((last, since)) if last == timed => (false, since),
            _ => (true, Instant::now()),
        };
        self.last = Some((timed, since));
        if limit.is_zero() {
            return Poll::Ready(timed);
        }
        let Some(due) = since.checked_add(limit) else { return Poll::Pending };
        let sleep = match &mut self.sleep {
            // It fires before that, and then this is looked at again. Its waker is this task's, now and then. ENTERED
            Some(sleep) if is_new && since < sleep.deadline() && sleep.deadline() <= due => {
                return Poll::Pending;
            }
            Some(sleep) => {
                if is_new {
                    sleep.reset(due);
                    self.is_entered = false;
                }
                sleep
            }
            sleep @ None => sleep.insert(dapple::time::sleep_until(due)),
        };
        loop {
            match ready!(Pin::new(&mut *sleep).poll(cx)) {
                Ok(()) if Instant::now() >= due => return Poll::Ready(timed),
                Ok(()) => {
                    sleep.reset(due);
                    self.is_entered = false;
                }
                // The task itself is cancelled, and its stream reports that.
                Err(_cancelled) => return Poll::Pending,
            }
        }
    }
}

/// Tells the observer of a reply that hyper has given by itself.
fn tell_unread(error: &hyper::Error, task: &TaskHandle) {
    if !error.is_parse() || task.is_http2() {
        return;
    }
    task.server().counters.count_bad();
    let status = match error.is_parse_too_large() {
        // Which of the two it was, hyper says in words only.
        true if error.to_string().contains("URI") => StatusCode::URI_TOO_LONG,
        true => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        false => StatusCode::BAD_REQUEST,
    };
    task.connection().tell_unread(status, Duration::ZERO);
}
