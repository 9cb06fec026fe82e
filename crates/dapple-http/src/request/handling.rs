//! One request: the service's future, polled in place, in the task of its connection.
//!
//! hyper drops what handles a request when the client goes away. Here that does not drop the service's future: what
//! is left of it is moved to a task of the connection's color, in which it is cancelled from the first poll on, so
//! that its waits return `Cancelled` and it comes to an end by itself. The same happens if its time is up. A future
//! that has not ended after a grace is dropped at last.
//!
//! It costs the box that the future lies in, since what was polled cannot be moved without one; there is no task
//! and no scope for a request whose client stays.

use std::error::Error as StdError;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use dapple::sched::Admitted;
use dapple::time::Sleep;
use dapple::{Color, Shield};
use http::{Request, Response};
use hyper::body::Incoming;

use crate::connection::phase::Watch;
use crate::error::{BoxError, Error};
use crate::request::answer::{Answer, Own, UnderWay};
use crate::request::service::{Handler, Within};
use crate::server::RunsOn;
use crate::strict;

/// What hyper calls: looks at a request, and hands it to the service.
pub(crate) struct Front<H> {
    pub(crate) handler: H,
    pub(crate) watch: Arc<Watch>,
}

impl<H: Handler> hyper::service::Service<Request<Incoming>> for Front<H> {
    type Response = Response<Answer<H::Body>>;
    type Error = BoxError;
    type Future = Handling<H>;

    #[inline]
    fn call(&self, mut request: Request<Incoming>) -> Handling<H> {
        let watch = &self.watch;
        let hub = &watch.hub;
        let mut under_way = UnderWay::new(watch);
        if let Err(own) = strict::check(&request, hub.settings.max_body_size, watch) {
            hub.counters.count_bad();
            return Handling::answer(own, under_way, &request);
        }
        let admitted = match hub.gate.admit() {
            Ok(admitted) => admitted,
            Err(retry_after) => {
                hub.counters.count_refused();
                return Handling::answer(Own::overloaded(retry_after), under_way, &request);
            }
        };
        if hub.settings.has_peer_info {
            request.extensions_mut().insert(watch.peer);
        }
        under_way.see(&request);
        let future = self.handler.handle(request, Within(watch));
        Handling {
            state: State::Running(Box::pin(future)),
            under_way: Some(under_way),
            admitted,
            sleep: None,
        }
    }
}

/// The future of one request.
pub(crate) struct Handling<H: Handler> {
    state: State<H>,
    under_way: Option<UnderWay>,
    admitted: Option<Admitted>,
    /// Until its time is up; there is none before it first has to wait.
    sleep: Option<Box<Sleep>>,
}

enum State<H: Handler> {
    /// The server answers itself.
    Answer(Own),
    Running(Pin<Box<H::Future>>),
    Done,
}

impl<H: Handler> Handling<H> {
    /// The server answers itself, and leaves the body unread.
    #[cold]
    fn answer(own: Own, under_way: UnderWay, request: &Request<Incoming>) -> Handling<H> {
        let watch = &under_way.watch;
        if !http_body::Body::is_end_stream(request.body()) {
            watch.note_unread();
        }
        if let Some(observer) = &watch.hub.settings.observer {
            observer.tell_refused(watch.peer, request, &own);
        }
        Handling { state: State::Answer(own), under_way: Some(under_way), admitted: None, sleep: None }
    }

    fn watch(&self) -> Option<&Arc<Watch>> {
        self.under_way.as_ref().map(|under_way| &under_way.watch)
    }

    /// The server answers itself.
    fn end(&mut self, own: Own) -> Poll<Result<Response<Answer<H::Body>>, BoxError>> {
        self.admitted = None;
        Poll::Ready(Ok(Answer::own(own, self.under_way.take())))
    }

    /// Whether the request has taken too long.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.watch().map_or(Duration::MAX, |watch| watch.hub.settings.request_timeout);
        if limit == Duration::MAX {
            return Poll::Pending;
        }
        let sleep = self.sleep.get_or_insert_with(|| Box::new(dapple::time::sleep(limit)));
        match Pin::new(&mut **sleep).poll(cx) {
            Poll::Ready(Ok(())) => Poll::Ready(()),
            // If this is cancelled, so is the connection, which tells of it.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }

    /// Lets what is running come to its end in a task of its own, cancelled.
    fn cancel(&mut self) {
        let State::Running(future) = std::mem::replace(&mut self.state, State::Done) else { return };
        let Some(watch) = self.watch() else { return };
        watch.hub.counters.count_cancelled();
        // Where there is no task, there is no runtime any more that could run it on.
        if dapple::task::try_current().is_none() {
            return;
        }
        let grace = dapple::shield(dapple::time::sleep(watch.hub.settings.cancel_grace));
        let runs_on = watch.hub.remainder();
        let admitted = self.admitted.take();
        let remainder = Remainder { future, grace: Box::pin(grace), _admitted: admitted, _runs_on: runs_on };
        let task = Color::current().spawn(remainder);
        task.cancel();
        task.detach();
    }
}

impl<H: Handler> Future for Handling<H> {
    type Output = Result<Response<Answer<H::Body>>, BoxError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let polled = match &mut this.state {
            State::Running(future) => catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))),
            State::Answer(own) => {
                let own = *own;
                this.state = State::Done;
                return this.end(own);
            }
            State::Done => panic!("a request was polled after its end"),
        };
        let result = match polled {
            Ok(Poll::Ready(result)) => result,
            Ok(Poll::Pending) => {
                std::task::ready!(this.poll_late(cx));
                if let Some(watch) = this.watch() {
                    watch.hub.counters.count_timeout();
                }
                this.cancel();
                return this.end(Own::TOOK_TOO_LONG);
            }
            Err(_panic) => {
                // Its message has gone where messages of panics go.
                this.state = State::Done;
                if let Some(watch) = this.watch() {
                    watch.hub.counters.count_panic();
                }
                return this.end(Own::PANICKED);
            }
        };
        this.state = State::Done;
        if let Some(own) = this.under_way.as_ref().and_then(UnderWay::fault) {
            return this.end(own);
        }
        match result {
            Ok(response) => {
                this.admitted = None;
                Poll::Ready(Ok(Answer::of_service(response, this.under_way.take())))
            }
            Err(error) => match own_answer(&*error) {
                Some(own) => this.end(own),
                None => Poll::Ready(Err(error)),
            },
        }
    }
}

/// What is answered to an error of a service that has handed on an error of the server's own body.
fn own_answer(error: &(dyn StdError + 'static)) -> Option<Own> {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<http_body_util::LengthLimitError>() {
            return Some(Own::TOO_LARGE);
        }
        if error.downcast_ref::<Error>().is_some_and(Error::is_timeout) {
            return Some(Own::LATE_BODY);
        }
        next = error.source();
    }
    None
}

impl<H: Handler> Drop for Handling<H> {
    fn drop(&mut self) {
        if matches!(self.state, State::Running(_)) {
            self.cancel();
        }
    }
}

/// What is left of a request whose client is gone: runs to its end in a task that is cancelled, or until the grace
/// is over.
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
