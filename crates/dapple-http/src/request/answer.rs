//! What is sent back: a service's response, or one of the server's own.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::connection::phase::Watch;
use crate::request::observer::Seen;

pin_project! {
    /// The body of a response. When it is dropped, its request is over.
    pub(crate) struct Answer<B> {
        #[pin]
        content: Content<B>,
        sending: Sending,
    }
}

pin_project! {
    #[project = ContentProjection]
    enum Content<B> {
        Service { #[pin] body: B },
        Own { text: Option<&'static str> },
    }
}

/// A request that is under way, until it is dropped.
pub(crate) struct UnderWay {
    pub(crate) watch: Arc<Watch>,
    /// Its number among those of its connection.
    number: u64,
    /// What it was, if somebody is told of what the server answers itself.
    seen: Option<Box<Seen>>,
}

impl UnderWay {
    pub(crate) fn new(watch: &Arc<Watch>) -> UnderWay {
        UnderWay { watch: watch.clone(), number: watch.begin_request(), seen: None }
    }

    /// Before its service gets it.
    #[inline]
    pub(crate) fn see<B>(&mut self, request: &Request<B>) {
        if self.watch.hub.settings.observer.is_some() {
            self.seen = Some(Box::new(Seen::new(request)));
        }
    }

    /// Tells of an answer in place of its service's.
    fn tell(&self, own: &Own) {
        if let (Some(observer), Some(seen)) = (&self.watch.hub.settings.observer, &self.seen) {
            observer.tell_replaced(self.watch.peer, seen, own);
        }
    }

    /// What has to be answered, since its body could not be received.
    #[inline]
    pub(crate) fn fault(&self) -> Option<Own> {
        self.watch.faults.take(self.number)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.watch.end_request(self.number);
    }
}

/// A response that is being sent, until it is dropped. What it is waiting for is noted for HTTP/2 only, where the
/// stream does not show it.
struct Sending {
    under_way: Option<UnderWay>,
    is_noted: bool,
    is_sourcing: bool,
}

impl Sending {
    fn new(under_way: Option<UnderWay>) -> Sending {
        let is_noted = under_way.as_ref().is_some_and(|under_way| under_way.watch.is_http2());
        let sending = Sending { under_way, is_noted, is_sourcing: false };
        sending.note(|watch| watch.note_sending(1));
        sending
    }

    #[inline]
    fn note(&self, note: impl FnOnce(&Watch)) {
        if self.is_noted
            && let Some(under_way) = &self.under_way
        {
            note(&under_way.watch);
        }
    }

    /// What is with a piece of it.
    #[inline]
    fn queued(&self) -> Option<Queued> {
        let under_way = self.under_way.as_ref().filter(|_| self.is_noted)?;
        under_way.watch.note_queued(1);
        Some(Queued(under_way.watch.clone()))
    }

    /// Whether it waits for its service now.
    #[inline]
    fn source(&mut self, is_sourcing: bool) {
        if self.is_sourcing != is_sourcing {
            self.is_sourcing = is_sourcing;
            self.note(|watch| watch.note_sourcing(if is_sourcing { 1 } else { -1 }));
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.source(false);
        self.note(|watch| watch.note_sending(-1));
    }
}

impl<B> Answer<B> {
    pub(crate) fn of_service(response: Response<B>, under_way: Option<UnderWay>) -> Response<Answer<B>> {
        response.map(|body| Answer { content: Content::Service { body }, sending: Sending::new(under_way) })
    }

    /// An answer of the server's own.
    pub(crate) fn own(own: Own, under_way: Option<UnderWay>) -> Response<Answer<B>> {
        if let Some(under_way) = &under_way {
            under_way.tell(&own);
        }
        let content = Content::Own { text: Some(own.text) };
        let mut response = Response::new(Answer { content, sending: Sending::new(under_way) });
        *response.status_mut() = own.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if own.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(seconds) = own.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// What the server itself has to say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) status: StatusCode,
    pub(crate) text: &'static str,
    /// Nothing more can be read from this connection with confidence.
    pub(crate) closes: bool,
    /// In how many seconds it may be worth another try.
    pub(crate) retry_after: Option<u64>,
}

impl Own {
    pub(crate) const fn new(status: StatusCode, text: &'static str) -> Own {
        Own { status, text, closes: false, retry_after: None }
    }

    const fn closing(status: StatusCode, text: &'static str) -> Own {
        Own { closes: true, ..Own::new(status, text) }
    }

    pub(crate) const fn bad(text: &'static str) -> Own {
        Own::closing(StatusCode::BAD_REQUEST, text)
    }

    pub(crate) fn overloaded(retry_after: u64) -> Own {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Own { retry_after: Some(retry_after), ..Own::new(status, "too busy, try again later\n") }
    }

    pub(crate) const NOT_CHUNKED: Own = Own::closing(
        StatusCode::NOT_IMPLEMENTED,
        "the only transfer coding that is understood is chunked, once\n",
    );
    pub(crate) const TOO_LARGE: Own = Own::closing(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large\n");
    pub(crate) const TOOK_TOO_LONG: Own = Own::new(StatusCode::SERVICE_UNAVAILABLE, "this took too long\n");
    pub(crate) const LATE_BODY: Own =
        Own::closing(StatusCode::REQUEST_TIMEOUT, "the body did not come in time\n");
    pub(crate) const PANICKED: Own = Own::new(StatusCode::INTERNAL_SERVER_ERROR, "something went wrong\n");
}

impl<B: Body> Body for Answer<B> {
    type Data = Piece<B::Data>;
    type Error = B::Error;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece<B::Data>>, B::Error>>> {
        let this = self.project();
        match this.content.project() {
            ContentProjection::Service { body } => {
                let polled = body.poll_frame(cx);
                this.sending.source(polled.is_pending());
                let piece = |data| Piece { data: Data::Service(data), _queued: this.sending.queued() };
                polled.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(piece))))
            }
            ContentProjection::Own { text } => Poll::Ready(text.take().map(|text| {
                let data = Data::Own(Bytes::from_static(text.as_bytes()));
                Ok(Frame::data(Piece { data, _queued: this.sending.queued() }))
            })),
        }
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Service { body } => body.is_end_stream(),
            Content::Own { text } => text.is_none(),
        }
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Service { body } => body.size_hint(),
            Content::Own { text } => SizeHint::with_exact(text.map_or(0, str::len) as u64),
        }
    }
}

/// A piece of a body, until it was written, or is not needed any more.
pub(crate) struct Piece<D> {
    data: Data<D>,
    _queued: Option<Queued>,
}

enum Data<D> {
    Service(D),
    Own(Bytes),
}

/// With HTTP/2 a response may be over for its service, and wait for its client: while this is there, it does.
struct Queued(Arc<Watch>);

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.note_queued(-1);
    }
}

/// Goes by what the data is.
macro_rules! of_data {
    ($piece:expr, $data:ident => $then:expr) => {
        match $piece {
            Data::Service($data) => $then,
            Data::Own($data) => $then,
        }
    };
}

impl<D: Buf> Buf for Piece<D> {
    #[inline]
    fn remaining(&self) -> usize {
        of_data!(&self.data, data => data.remaining())
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        of_data!(&self.data, data => data.chunk())
    }

    #[inline]
    fn chunks_vectored<'a>(&'a self, slices: &mut [std::io::IoSlice<'a>]) -> usize {
        of_data!(&self.data, data => data.chunks_vectored(slices))
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        of_data!(&mut self.data, data => data.advance(count));
    }

    #[inline]
    fn copy_to_bytes(&mut self, length: usize) -> Bytes {
        of_data!(&mut self.data, data => data.copy_to_bytes(length))
    }
}
