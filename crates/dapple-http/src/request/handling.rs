//! One request: the future of its service, polled in the task of the connection (HTTP/1) or of the stream (HTTP/2).
//!
//! hyper drops the future of a request when the client goes away. Here that does not drop the service's future: it is
//! moved to a task of its own, in the same color, in which it is cancelled from the first poll on, so that its waits
//! return `Cancelled` and it comes to an end by itself. The same happens if its time is up. A future that has not ended
//! after a grace is dropped.
//!
//! It costs the box that the future lies in, since a future that was polled cannot be moved without one; there is no
//! task and no scope for a request of HTTP/1 whose client stays.
//!
//! # Invariants
//!
//! * **BEGINS-IN-ITS-TASK**: with HTTP/2 the service is called in the task of the stream, so that a service that blocks
//!   holds up its stream alone. It is not called any more once the connection is over.
//! * **BOUNDED-TURNS**: of the handlers of one HTTP/2 connection at most
//!   [`max_parallel_streams`](crate::Serve::max_parallel_streams) are polled at a time, so that one client cannot
//!   occupy all workers.

use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dapple::limit::Admitted;
use dapple::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use dapple::time::Sleep;
use dapple::{Color, scope::Shield};
use http::{Method, Request, Response, Version};
use hyper::body::Incoming;

use super::body::ResponseBody;
use super::service::{Handler, Within};
use crate::connection::shared::{Connection, RequestHandle};
use crate::error::{BoxError, Error};
use crate::registry::RunsOn;
use crate::reply::ServerReply;
use crate::strict::heads::{self, KnownHost};

/// The service that hyper calls: looks at a request, and hands it to the user's service.
pub(crate) struct RequestService<H> {
    handler: H,
    connection: Arc<Connection>,
    known_host: KnownHost,
    /// HTTP/2: the handlers that may be polled at a time. BOUNDED-TURNS
    turns: Option<Arc<Semaphore>>,
}

impl<H: Handler> RequestService<H> {
    pub(crate) fn http1(handler: H, connection: &Arc<Connection>) -> RequestService<H> {
        RequestService {
            handler,
            connection: connection.clone(),
            known_host: KnownHost::default(),
            turns: None,
        }
    }

    #[cfg(feature = "http2")]
    pub(crate) fn http2(handler: H, connection: &Arc<Connection>) -> RequestService<H> {
        let turns = Arc::new(Semaphore::new(connection.server.settings.max_parallel_streams));
        RequestService {
            handler,
            connection: connection.clone(),
            known_host: KnownHost::default(),
            turns: Some(turns),
        }
    }

    /// Tells the connection that a request has begun, and says whether it may reach the service.
    #[inline]
    fn register(&self, request: &Request<Incoming>) -> (RequestHandle, Result<(), ServerReply>) {
        let connection = &self.connection;
        let max_body_size = connection.server.settings.max_body_size;
        if request.version() == Version::HTTP_2 {
            let handle = RequestHandle::http2(connection, request.method() == Method::HEAD);
            return (handle, heads::check_http2(request, max_body_size));
        }
        let framing = heads::framing(request.headers(), request.body());
        let (handle, verdict) = RequestHandle::http1(connection, request.method().as_str(), framing);
        let check = |()| heads::check_http1(request, framing, &self.known_host, max_body_size);
        (handle, verdict.and_then(check))
    }
}

impl<H: Handler> hyper::service::Service<Request<Incoming>> for RequestService<H> {
    type Response = Response<ResponseBody<H::Body>>;
    type Error = BoxError;
    type Future = Handling<H>;

    #[inline]
    fn call(&self, request: Request<Incoming>) -> Handling<H> {
        let (handle, verdict) = self.register(&request);
        if let Err(reply) = verdict {
            handle.server().counters.count_bad();
            let state = refuse(reply, &handle, request);
            return Handling { state, request: Some(handle), admitted: None, sleep: None, turn: None };
        }
        match &self.turns {
            None => {
                let (state, handle, admitted) = begin(&self.handler, request, handle);
                Handling { state, request: Some(handle), admitted, sleep: None, turn: None }
            }
            Some(turns) => Handling {
                state: HandlingState::New(Box::new((self.handler.clone(), request))),
                request: Some(handle),
                admitted: None,
                sleep: None,
                turn: Some(Box::new(HandlerTurn { turns: turns.clone(), waiting: None })),
            },
        }
    }
}

/// The future of one request.
pub(crate) struct Handling<H: Handler> {
    state: HandlingState<H>,
    request: Option<RequestHandle>,
    admitted: Option<Admitted>,
    /// The timer of `request_timeout`. There is none before the service first has to wait.
    sleep: Option<Box<Sleep>>,
    /// HTTP/2 alone. BOUNDED-TURNS
    turn: Option<Box<HandlerTurn>>,
}

enum HandlingState<H: Handler> {
    /// The server replies itself.
    Reply(ServerReply),
    /// The service was not called. BEGINS-IN-ITS-TASK
    New(Box<(H, Request<Incoming>)>),
    Running(Pin<Box<H::Future>>),
    Done,
}

/// The right of a handler to be polled. BOUNDED-TURNS
struct HandlerTurn {
    turns: Arc<Semaphore>,
    waiting: Option<Pin<Box<Acquire>>>,
}

type Acquire = dyn Future<Output = Result<OwnedSemaphorePermit, AcquireError>> + Send;

impl HandlerTurn {
    /// Ready with a permit for this poll, or without one if the task was cancelled.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<OwnedSemaphorePermit>> {
        if self.waiting.is_none()
            && let Ok(permit) = self.turns.clone().try_acquire_owned()
        {
            return Poll::Ready(Some(permit));
        }
        let turns = &self.turns;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(turns.clone().acquire_owned()));
        let permit = ready!(waiting.as_mut().poll(cx)).ok();
        self.waiting = None;
        Poll::Ready(permit)
    }
}

/// Asks the limit, and calls the service.
#[inline]
fn begin<H: Handler>(
    handler: &H,
    mut request: Request<Incoming>,
    mut handle: RequestHandle,
) -> (HandlingState<H>, RequestHandle, Option<Admitted>) {
    let server = handle.server();
    let admitted = match server.limit.admit() {
        Ok(admitted) => admitted,
        Err(retry_after) => {
            server.counters.count_refused();
            let state = refuse(ServerReply::overloaded(retry_after), &handle, request);
            return (state, handle, None);
        }
    };
    if server.settings.has_peer_info {
        request.extensions_mut().insert(handle.connection().peer);
    }
    handle.summarize(&request);
    // The future is in its box at once: it is large, and a move is a copy.
    let called = catch_unwind(AssertUnwindSafe(|| Box::pin(handler.handle(request, Within(&handle)))));
    let state = match called {
        Ok(future) => HandlingState::Running(future),
        Err(_panic) => {
            handle.server().counters.count_panic();
            HandlingState::Reply(ServerReply::PANICKED)
        }
    };
    (state, handle, admitted)
}

/// The server replies itself, and leaves the body unread.
#[cold]
fn refuse<H: Handler>(
    reply: ServerReply,
    handle: &RequestHandle,
    request: Request<Incoming>,
) -> HandlingState<H> {
    if let Some(observer) = &handle.server().settings.observer {
        observer.tell_refused(handle.connection().peer, &request, &reply);
    }
    if !http_body::Body::is_end_stream(request.body()) {
        handle.body_unread(request.into_body());
    }
    HandlingState::Reply(reply)
}

impl<H: Handler> Handling<H> {
    fn server(&self) -> Option<&Arc<crate::registry::Server>> {
        self.request.as_ref().map(RequestHandle::server)
    }

    /// The server replies itself.
    fn end(&mut self, reply: ServerReply) -> Poll<Result<Response<ResponseBody<H::Body>>, BoxError>> {
        self.admitted = None;
        if let Some(request) = &mut self.request {
            request.response_begins();
        }
        Poll::Ready(Ok(ResponseBody::own(reply, self.request.take())))
    }

    /// Whether the request has taken too long.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.server().map_or(Duration::MAX, |server| server.settings.request_timeout);
        if limit == Duration::MAX {
            return Poll::Pending;
        }
        let sleep = self.sleep.get_or_insert_with(|| Box::new(dapple::time::sleep(limit)));
        match Pin::new(&mut **sleep).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(()),
            // If the sleep is cancelled, so is the connection, which reports that itself.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }

    /// Lets the running future come to its end in a task of its own, cancelled.
    fn cancel(&mut self) {
        let HandlingState::Running(future) = std::mem::replace(&mut self.state, HandlingState::Done) else {
            return;
        };
        let Some(server) = self.server() else { return };
        server.counters.count_cancelled();
        // Where there is no task, there is no runtime any more that could run it on.
        if dapple::task::try_current().is_none() {
            return;
        }
        let grace = dapple::shield(dapple::time::sleep(server.settings.cancel_grace));
        let runs_on = server.remainder();
        let admitted = self.admitted.take();
        let remainder = Remainder { future, grace: Box::pin(grace), _admitted: admitted, _runs_on: runs_on };
        let task = Color::current().spawn(remainder);
        task.cancel();
        task.detach();
    }

    /// A stream of HTTP/2 begins, in its own task. BEGINS-IN-ITS-TASK
    fn begin_stream(&mut self) -> Result<(), BoxError> {
        let HandlingState::New(new) = std::mem::replace(&mut self.state, HandlingState::Done) else {
            return Ok(());
        };
        let Some(handle) = self.request.take() else { return Ok(()) };
        if handle.connection().is_over() {
            return Err(Error::late("the connection was closed before the request began").into());
        }
        let (handler, request) = *new;
        let (state, handle, admitted) = begin(&handler, request, handle);
        (self.state, self.request, self.admitted) = (state, Some(handle), admitted);
        Ok(())
    }
}

impl<H: Handler> Future for Handling<H> {
    type Output = Result<Response<ResponseBody<H::Body>>, BoxError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let _permit = match &mut this.turn {
            None => None,
            Some(turn) => ready!(turn.poll(cx)),
        };
        if matches!(this.state, HandlingState::New(_)) {
            this.begin_stream()?;
        }
        let polled = match &mut this.state {
            HandlingState::Running(future) => catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))),
            HandlingState::Reply(reply) => {
                let reply = *reply;
                this.state = HandlingState::Done;
                return this.end(reply);
            }
            HandlingState::New(_) | HandlingState::Done => panic!("a request was polled after its end"),
        };
        let result = match polled {
            Ok(Poll::Ready(result)) => result,
            Ok(Poll::Pending) => {
                ready!(this.poll_late(cx));
                if let Some(server) = this.server() {
                    server.counters.count_timeout();
                }
                this.cancel();
                return this.end(ServerReply::TOOK_TOO_LONG);
            }
            Err(_panic) => {
                // Its message has gone where messages of panics go.
                this.state = HandlingState::Done;
                if let Some(server) = this.server() {
                    server.counters.count_panic();
                }
                return this.end(ServerReply::PANICKED);
            }
        };
        this.state = HandlingState::Done;
        if let Some(reply) = this.request.as_mut().and_then(RequestHandle::response_begins) {
            return this.end(reply);
        }
        match result {
            Ok(response) => {
                this.admitted = None;
                Poll::Ready(Ok(ResponseBody::of_service(response, this.request.take())))
            }
            Err(error) => match own_answer(&*error) {
                Some(reply) => this.end(reply),
                None => Poll::Ready(Err(error)),
            },
        }
    }
}

/// The reply to a service's error, if the service has passed on an error of the server's own request body.
fn own_answer(error: &(dyn StdError + 'static)) -> Option<ServerReply> {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<http_body_util::LengthLimitError>() {
            return Some(ServerReply::TOO_LARGE);
        }
        if error.downcast_ref::<Error>().is_some_and(Error::is_timeout) {
            return Some(ServerReply::LATE_BODY);
        }
        next = error.source();
    }
    None
}

impl<H: Handler> Drop for Handling<H> {
    fn drop(&mut self) {
        if matches!(self.state, HandlingState::Running(_)) {
            self.cancel();
        }
    }
}

/// The rest of a request whose client is gone: runs to its end in a task that is cancelled, or until the grace is
/// over.
struct Remainder<F> {
    future: Pin<Box<F>>,
    grace: Pin<Box<Shield<Sleep>>>,
    /// It is under way for as long as it runs.
    _admitted: Option<Admitted>,
    _runs_on: RunsOn,
}

impl<F: Future> Future for Remainder<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.future.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        self.grace.as_mut().poll(cx).map(drop)
    }
}
