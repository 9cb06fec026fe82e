//! A connection as its parts see it: the state machine behind its lock, and a handle for each part.
//!
//! With HTTP/1 everything happens in the task of the connection, so that the lock is never contended. With HTTP/2 each
//! stream is a task with a color of its own, which sends events from there.
//!
//! # Invariants
//!
//! * **OWN-EVENTS**: a handle sends only the events of its part: [`StreamHandle`] those of the stream, [`RequestHandle`]
//!   those of one request and its response, [`BodyHandle`] faults of one body, and [`TaskHandle`] the rest.
//! * **TIMER-LOOKS**: the task of a connection looks at its timer after each poll of hyper's. An event from another task
//!   that makes the peer timed (a response that waits for it, the end of the last request) wakes that task.
//! * **RARE-READS**: `has_rare_reads` is set, for good, together with the first event that makes a read of hyper's another
//!   than [`ReadMode::Plain`]. Before that, a read need not ask the state, and neither need a write over TLS.
//! * **STREAMS-COUNTED**: a stream of HTTP/2 counts from when hyper hands it over until its task has dropped it, and so
//!   does the task that discards the rest of a body. The task of the connection ends after the last of them.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use http::{Request, StatusCode};
use http_body_util::Limited;
use hyper::body::Incoming;

pub(crate) use super::phase::LookFor;
use super::phase::{ConnectionEvent, ConnectionPhase, ConnectionState, Timed};
use super::rest;
use super::send_queue::SendQueue;
use crate::observer::{RequestLine, RequestSummary};
use crate::peer::Peer;
use crate::registry::{RequestCount, Server};
use crate::reply::ServerReply;
use crate::strict::framing::{Flaw, Framing};
use crate::waker::CountedWaker;

/// One connection of a server.
pub(crate) struct Connection {
    pub(crate) server: Arc<Server>,
    pub(crate) peer: Peer,
    /// A read of hyper's may be another than `ReadMode::Plain`. RARE-READS
    has_rare_reads: AtomicBool,
    /// HTTP/2: the bytes of responses that hyper holds.
    send_queue: SendQueue,
    inside: Mutex<LockedConnection>,
}

struct LockedConnection {
    state: ConnectionState,
    /// Streams of HTTP/2 that have a task. STREAMS-COUNTED
    streams: u32,
    /// Wakes the task of an HTTP/2 connection. TIMER-LOOKS
    task: Option<CountedWaker>,
}

impl Connection {
    pub(crate) fn new(server: Arc<Server>, peer: Peer) -> Arc<Connection> {
        let inside = LockedConnection { state: ConnectionState::new(), streams: 0, task: None };
        let has_rare_reads = AtomicBool::new(false);
        let send_queue = SendQueue::default();
        Arc::new(Connection { server, peer, has_rare_reads, send_queue, inside: Mutex::new(inside) })
    }

    #[inline]
    fn lock(&self) -> MutexGuard<'_, LockedConnection> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn apply(&self, event: ConnectionEvent) {
        let mut inside = self.lock();
        if inside.state.apply(event) {
            let task = inside.task.clone();
            drop(inside);
            wake(task);
        }
    }

    /// As `apply`, for an event after which a read of hyper's may be another. RARE-READS
    fn apply_to_reads(&self, event: ConnectionEvent) {
        let mut inside = self.lock();
        self.has_rare_reads.store(true, Release);
        inside.state.apply(event);
    }

    /// Whether the server has cut the connection, or it has ended: then no handler begins.
    pub(crate) fn is_over(&self) -> bool {
        is_over(self.lock().state.phase())
    }

    /// Reports to the observer a head that did not become a request, and the status that is answered instead.
    pub(crate) fn tell_unread(&self, status: StatusCode, took: Duration) {
        if let Some(observer) = &self.server.settings.observer {
            let line = RequestLine::new(self.lock().state.heads.begun());
            observer.tell_unread(self.peer, line.as_ref(), status, took);
        }
    }
}

impl RequestCount for Connection {
    fn requests(&self) -> u64 {
        self.lock().state.requests()
    }
}

fn is_over(phase: ConnectionPhase) -> bool {
    matches!(phase, ConnectionPhase::Cut | ConnectionPhase::Ended)
}

/// Wakes the task of a connection; outside of its lock.
fn wake(task: Option<CountedWaker>) {
    if let Some(task) = task {
        task.wake();
    }
}

/// The part of the stream that hyper reads and writes. OWN-EVENTS
pub(crate) struct StreamHandle(Arc<Connection>);

impl StreamHandle {
    pub(crate) fn new(connection: &Arc<Connection>) -> StreamHandle {
        StreamHandle(connection.clone())
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.0.server
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.0.peer.is_tls
    }

    /// Bytes were read. On an error, the request that they belong to gets a reply that names the flaw.
    #[inline]
    pub(crate) fn read(&self, bytes: &[u8]) -> Result<(), Flaw> {
        let state = &mut self.0.lock().state;
        if !state.is_http2()
            && let Err(flaw) = state.heads.push(bytes)
        {
            state.note_fault(state.requests(), flaw.into());
            return Err(flaw);
        }
        state.apply(ConnectionEvent::Read);
        Ok(())
    }

    /// The result of a write to the socket.
    #[inline]
    pub(crate) fn wrote(&self, polled: &Poll<std::io::Result<usize>>) -> Written {
        let event = match polled {
            Poll::Ready(Ok(count)) => ConnectionEvent::Wrote(*count),
            Poll::Pending => ConnectionEvent::WriteBlocked,
            Poll::Ready(Err(_)) => return Written { next_look: None, is_ended: false, asks_kernel: false },
        };
        let state = &mut self.0.lock().state;
        state.apply(event); // changes nothing that another task waits for
        let next_look = polled.is_ready().then(|| state.look_for());
        Written {
            next_look,
            is_ended: state.phase() == ConnectionPhase::Ended,
            asks_kernel: polled.is_pending() && state.is_kernel_asked(),
        }
    }

    /// How much the peer has not received, after [`Written::asks_kernel`].
    pub(crate) fn unacknowledged(&self, count: Option<usize>) {
        if let Some(count) = count {
            self.0.lock().state.note_unacknowledged(count);
        }
    }

    /// The connection was reset.
    pub(crate) fn peer_gone(&self) {
        self.0.apply(ConnectionEvent::PeerGone);
    }

    pub(crate) fn peer_finished(&self) {
        self.0.apply(ConnectionEvent::PeerFinished);
    }

    /// A bare body was read.
    pub(crate) fn bare_read(&self, count: usize) {
        self.0.apply(ConnectionEvent::BareRead(count));
    }

    pub(crate) fn body_unread(&self) {
        self.0.apply(ConnectionEvent::BodyUnread);
    }

    pub(crate) fn closing(&self) {
        self.0.apply(ConnectionEvent::Closing);
    }

    /// How hyper's next read goes. RARE-READS
    #[inline]
    pub(crate) fn reading(&self) -> ReadMode {
        if self.0.has_rare_reads.load(Acquire) { self.rare_reading() } else { ReadMode::Plain }
    }

    fn rare_reading(&self) -> ReadMode {
        let state = &self.0.lock().state;
        match state.bare() {
            _ if state.is_head_late() => ReadMode::HeadLate,
            _ if state.phase() == ConnectionPhase::Ended => ReadMode::Ended,
            (_, true) => ReadMode::BodyLate,
            (true, false) => ReadMode::Bare,
            (false, false) => ReadMode::Plain,
        }
    }

    /// The sign that a flush has to look for.
    pub(crate) fn look_for(&self) -> LookFor {
        self.0.lock().state.look_for()
    }

    pub(crate) fn is_peer_sending(&self) -> bool {
        self.0.lock().state.is_peer_sending()
    }

    pub(crate) fn is_closed(&self) -> bool {
        let phase = self.0.lock().state.phase();
        phase == ConnectionPhase::Closed || is_over(phase)
    }
}

/// The state of a connection after a write, from the same turn of the lock.
pub(crate) struct Written {
    /// The sign that a flush that follows at once has to look for.
    pub(crate) next_look: Option<LookFor>,
    /// HTTP is over.
    pub(crate) is_ended: bool,
    /// The time of a blocked peer is over, unless the kernel knows of progress.
    pub(crate) asks_kernel: bool,
}

/// How a read of hyper's goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadMode {
    Plain,
    /// The service holds the body as hyper gave it: the connection keeps its time.
    Bare,
    /// The head did not come in time: hyper gets an error, and the peer 408.
    HeadLate,
    /// A bare body did not come in time: hyper gets an error.
    BodyLate,
    /// HTTP is over; the bytes are another protocol's.
    Ended,
}

/// One request that is under way, until it is dropped. OWN-EVENTS
pub(crate) struct RequestHandle {
    connection: Arc<Connection>,
    /// The number of the request among those of its connection.
    number: u64,
    is_http2: bool,
    /// HTTP/2: its method is HEAD.
    is_head: bool,
    /// Its response has begun.
    is_answered: bool,
    /// A summary for the observer, if there is one.
    summary: Option<Box<RequestSummary>>,
}

impl RequestHandle {
    /// A request of HTTP/1 begins; its head is looked at as it came.
    #[inline]
    pub(crate) fn http1(
        connection: &Arc<Connection>,
        method: &str,
        framing: Framing,
    ) -> (RequestHandle, Result<(), ServerReply>) {
        let state = &mut connection.lock().state;
        state.apply(ConnectionEvent::RequestBegan);
        let verdict = state.heads.next(method, framing, connection.server.settings.max_body_size);
        state.apply(ConnectionEvent::Read); // a part of the next head may be left
        (RequestHandle::new(connection, state, false), verdict)
    }

    /// A request of HTTP/2 begins.
    pub(crate) fn http2(connection: &Arc<Connection>, is_head: bool) -> RequestHandle {
        let state = &mut connection.lock().state;
        state.apply(ConnectionEvent::RequestBegan);
        RequestHandle::new(connection, state, is_head)
    }

    #[inline]
    fn new(connection: &Arc<Connection>, state: &ConnectionState, is_head: bool) -> RequestHandle {
        RequestHandle {
            connection: connection.clone(),
            number: state.requests(),
            is_http2: state.is_http2(),
            is_head,
            is_answered: false,
            summary: None,
        }
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.connection.server
    }

    /// Keeps a summary of the request for the observer, before the service gets it.
    #[inline]
    pub(crate) fn summarize<B>(&mut self, request: &Request<B>) {
        if self.connection.server.settings.observer.is_some() {
            self.summary = Some(Box::new(RequestSummary::new(request)));
        }
    }

    /// Tells the observer of a reply in place of the service's.
    pub(crate) fn tell_replaced(&self, reply: &ServerReply) {
        if let (Some(observer), Some(summary)) = (&self.connection.server.settings.observer, &self.summary) {
            observer.tell_replaced(self.connection.peer, summary, reply);
        }
    }

    /// The response begins: from here on a peer that shuts down its side still gets all of it. Returns the reply that
    /// is sent instead, if the body could not be received.
    #[inline]
    pub(crate) fn response_begins(&mut self) -> Option<ServerReply> {
        if std::mem::replace(&mut self.is_answered, true) {
            return None;
        }
        let state = &mut self.connection.lock().state;
        state.apply(ConnectionEvent::ResponseBegan);
        state.take_fault(self.number)
    }

    /// HTTP/2: the response to a HEAD. With HTTP/1 hyper knows, and sends no body.
    pub(crate) fn is_head(&self) -> bool {
        self.is_head
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2
    }

    /// The body of this request was refused unread.
    pub(crate) fn body_unread(&self, body: Incoming) {
        self.connection.apply(ConnectionEvent::BodyUnread);
        if self.is_http2 {
            rest::discard(body, &self.connection);
        }
    }

    /// The body of this request, as its service gets it.
    pub(crate) fn body(&self) -> BodyHandle {
        BodyHandle { connection: self.connection.clone(), number: self.number, is_http2: self.is_http2 }
    }

    /// The service holds the body as hyper gave it.
    pub(crate) fn body_is_bare(&self) {
        self.connection.apply_to_reads(ConnectionEvent::BodyIsBare);
    }

    /// A response of HTTP/2 that is being sent; `None` with HTTP/1, where the stream shows it.
    pub(crate) fn sending(&self) -> Option<SendingHandle> {
        self.is_http2.then(|| {
            self.connection.apply(ConnectionEvent::SendingBegan);
            self.connection.send_queue.response_began();
            SendingHandle { connection: self.connection.clone(), is_sourcing: false }
        })
    }
}

impl Drop for RequestHandle {
    fn drop(&mut self) {
        let mut inside = self.connection.lock();
        inside.state.take_fault(self.number);
        if !self.is_answered {
            inside.state.apply(ConnectionEvent::ResponseBegan);
        }
        let task = match inside.state.apply(ConnectionEvent::RequestEnded) {
            true => inside.task.clone(),
            false => None,
        };
        drop(inside);
        wake(task); // TIMER-LOOKS
    }
}

/// The body of one request. OWN-EVENTS
pub(crate) struct BodyHandle {
    connection: Arc<Connection>,
    number: u64,
    is_http2: bool,
}

impl BodyHandle {
    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.connection.server
    }

    /// The body could not be received: the request gets this reply.
    pub(crate) fn fail(&self, reply: ServerReply) {
        self.connection.lock().state.note_fault(self.number, reply);
    }

    /// The service has let the body go before its end.
    pub(crate) fn let_go(&self, body: Limited<Incoming>) {
        if self.is_http2 {
            rest::discard(body, &self.connection);
        }
    }
}

/// A response of HTTP/2 that is being sent, until it is dropped. OWN-EVENTS
pub(crate) struct SendingHandle {
    connection: Arc<Connection>,
    is_sourcing: bool,
}

impl SendingHandle {
    /// Whether the response waits for its service now.
    pub(crate) fn source_waits(&mut self, waits: bool) {
        if self.is_sourcing != waits {
            self.is_sourcing = waits;
            self.connection.apply(if waits {
                ConnectionEvent::SourceWaits
            } else {
                ConnectionEvent::SourceReady
            });
        }
    }

    /// A piece of the response is handed to hyper.
    pub(crate) fn piece(&self, bytes: usize) -> PieceHandle {
        self.connection.apply(ConnectionEvent::PieceQueued);
        self.connection.send_queue.piece_queued(bytes);
        PieceHandle { connection: self.connection.clone(), bytes }
    }

    /// The most bytes that the next piece should have. QUEUE-BOUNDED in `send_queue`
    pub(crate) fn piece_limit(&self) -> usize {
        self.connection.send_queue.piece_limit()
    }
}

impl Drop for SendingHandle {
    fn drop(&mut self) {
        self.source_waits(false);
        self.connection.send_queue.response_ended();
        self.connection.apply(ConnectionEvent::SendingEnded);
    }
}

/// A piece of a response of HTTP/2, until it was written or given up. OWN-EVENTS
pub(crate) struct PieceHandle {
    connection: Arc<Connection>,
    bytes: usize,
}

impl PieceHandle {
    /// The peer has taken this many bytes of it.
    pub(crate) fn taken(&self, count: usize) {
        self.connection.apply(ConnectionEvent::PieceTaken(count));
    }
}

impl Drop for PieceHandle {
    fn drop(&mut self) {
        self.connection.send_queue.piece_gone(self.bytes);
        self.connection.apply(ConnectionEvent::PieceGone);
    }
}

/// The part of the task that drives a connection. OWN-EVENTS
pub(crate) struct TaskHandle(Arc<Connection>);

impl TaskHandle {
    pub(crate) fn new(connection: Arc<Connection>) -> TaskHandle {
        TaskHandle(connection)
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.0
    }

    pub(crate) fn server(&self) -> &Arc<Server> {
        &self.0.server
    }

    /// The operation that the peer may be slow at, and for how long.
    #[inline]
    pub(crate) fn timed(&self) -> Option<(Timed, Duration)> {
        self.0.lock().state.timed(&self.0.server.settings)
    }

    #[cfg(feature = "http2")]
    pub(crate) fn speaks_http2(&self) {
        self.0.apply(ConnectionEvent::SpeaksHttp2);
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.0.lock().state.is_http2()
    }

    /// The server has announced to the peer that it will serve no further request.
    pub(crate) fn draining(&self) {
        self.0.apply(ConnectionEvent::Draining);
    }

    /// Whether a part of a head has come that is not a request yet.
    pub(crate) fn has_head(&self) -> bool {
        self.0.lock().state.phase() == ConnectionPhase::Head
    }

    pub(crate) fn head_late(&self) {
        self.0.apply_to_reads(ConnectionEvent::HeadLate);
    }

    /// A half of the time of a blocked peer is over. Returns whether it has more time: after the first half, and until the
    /// stream has asked the kernel, which it does when hyper writes again.
    pub(crate) fn half_is_over(&self) -> bool {
        self.0.lock().state.half_is_over()
    }

    /// A bare body did not come in time: hyper's next read fails, and the request gets 408.
    pub(crate) fn bare_body_late(&self) {
        let state = &mut self.0.lock().state;
        state.apply(ConnectionEvent::BareBodyLate);
        state.note_fault(state.requests(), ServerReply::LATE_BODY);
    }

    /// The peer has had its time to notice that the connection is closing. `false`: that was known.
    pub(crate) fn linger_over(&self) -> bool {
        let state = &mut self.0.lock().state;
        let was_known = state.phase() != ConnectionPhase::Closing;
        state.apply(ConnectionEvent::LingerOver);
        !was_known
    }

    #[cfg(feature = "http2")]
    pub(crate) fn cut(&self) {
        self.0.apply(ConnectionEvent::Cut);
    }

    pub(crate) fn ended(&self) {
        self.0.apply_to_reads(ConnectionEvent::Ended);
    }

    /// Keeps the waker of the task, at the beginning of each poll of an HTTP/2 connection. TIMER-LOOKS
    pub(crate) fn keep_waker(&self, waker: &Waker) {
        if self.0.lock().task.as_ref().is_some_and(|old| old.will_wake(waker)) {
            return;
        }
        let new = CountedWaker::of(waker); // foreign code, not under the lock
        let old = self.0.lock().task.replace(new);
        drop(old);
    }

    /// Ready when the tasks of all streams have ended. STREAMS-COUNTED
    #[cfg(feature = "http2")]
    pub(crate) fn poll_streams(&self, cx: &std::task::Context<'_>) -> Poll<()> {
        self.keep_waker(cx.waker());
        if self.0.lock().streams == 0 { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// A stream of HTTP/2 that has a task, until it is dropped. STREAMS-COUNTED
pub(crate) struct StreamTask(Arc<Connection>);

impl StreamTask {
    pub(crate) fn new(connection: &Arc<Connection>) -> StreamTask {
        connection.lock().streams += 1;
        StreamTask(connection.clone())
    }
}

impl Drop for StreamTask {
    fn drop(&mut self) {
        let mut inside = self.0.lock();
        inside.streams -= 1;
        let is_awaited = inside.streams == 0 && is_over(inside.state.phase());
        let task = if is_awaited { inside.task.clone() } else { None };
        drop(inside);
        wake(task);
    }
}
