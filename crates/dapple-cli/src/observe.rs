//! Wrapper around a service: counts, times and logs each response when the last of its body has been handed over.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dapple::time::Instant;
use dapple_http::Peer;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};

use crate::counts::Requests;
use crate::log::{AccessLog, AccessRecord};

/// Service whose responses are counted, timed and logged. Its parts live as long as the program, so that requests need no
/// reference counts.
#[derive(Clone)]
pub(crate) struct ObservedService<S> {
    service: S,
    requests: &'static Requests,
    log: Option<&'static AccessLog>,
}

impl<S> ObservedService<S> {
    pub(crate) fn new(
        service: S,
        requests: &'static Requests,
        log: Option<&'static AccessLog>,
    ) -> ObservedService<S> {
        ObservedService { service, requests, log }
    }
}

impl<S, B, A> tower_service::Service<Request<B>> for ObservedService<S>
where
    S: tower_service::Service<Request<B>, Response = Response<A>, Error = Infallible>,
    S::Future: Unpin,
{
    type Response = Response<Counted<A>>;
    type Error = Infallible;
    type Future = Answering<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Answering<S::Future> {
        let line = self.log.map(|log| {
            let peer = request.extensions().get::<Peer>().and_then(|peer| peer.address);
            (log, Box::new(AccessRecord::new(peer, &request)))
        });
        let record = Record { requests: self.requests, line, begun: Instant::now(), status: 0, bytes: 0 };
        Answering { future: self.service.call(request), record: Some(record) }
    }
}

/// Future of a response of an [`ObservedService`].
pub(crate) struct Answering<F> {
    future: F,
    record: Option<Record>,
}

impl<F, A> Future for Answering<F>
where
    F: Future<Output = Result<Response<A>, Infallible>> + Unpin,
{
    type Output = Result<Response<Counted<A>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Ok(response) = ready!(Pin::new(&mut self.future).poll(cx));
        let mut record = self.record.take().expect("polled after its end");
        record.status = response.status().as_u16();
        Poll::Ready(Ok(response.map(|body| Counted { body, record })))
    }
}

/// Record of a request. When it is dropped, it is counted and logged if there was a response.
struct Record {
    requests: &'static Requests,
    line: Option<(&'static AccessLog, Box<AccessRecord>)>,
    begun: Instant,
    status: u16,
    bytes: u64,
}

impl Drop for Record {
    fn drop(&mut self) {
        if self.status == 0 {
            return; // the client left before the answer: the server counts that
        }
        let took = self.begun.elapsed();
        self.requests.note(self.status, self.bytes, took);
        if let Some((log, line)) = self.line.take() {
            log.write(&line, self.status, self.bytes, took);
        }
    }
}

/// Response body that counts its bytes.
pub(crate) struct Counted<B> {
    body: B,
    record: Record,
}

impl<B: Body<Data = Bytes, Error = io::Error> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
        {
            self.record.bytes += bytes.len() as u64;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
