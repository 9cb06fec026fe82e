//! The bodies of a request and of its response.
//!
//! The body of a request, as a service gets it, is bounded in size, and given up if it does not come. An empty body,
//! which most requests have, watches nothing and allocates nothing.
//!
//! The body of a response is a service's, or one of the server's own. It holds the handle of its request.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use dapple::time::{Instant, Sleep};
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use pin_project_lite::pin_project;

use crate::connection::send_queue::with_piece_limit;
use crate::connection::shared::{BodyHandle, PieceHandle, RequestHandle, SendingHandle};
use crate::error::{BoxError, Error};
use crate::reply::ServerReply;

/// The bytes of a body that have to come within [`body_timeout`](crate::Serve::body_timeout), unless the body ends.
const PROGRESS: u64 = 8 * 1024;

/// Body of a request, as services get it.
///
/// Reading it ends with an error if the body is longer than [`max_body_size`](crate::Serve::max_body_size) (axum's
/// extractors answer that with 413), if it comes too slowly ([`body_timeout`](crate::Serve::body_timeout)), and if
/// the client goes away.
///
/// # Examples
///
/// ```
/// use axum::body::Bytes;
/// use dapple_http::Body;
/// use http::{Request, Response, StatusCode};
/// use http_body_util::Full;
///
/// /// Sends the body of the request back.
/// async fn echo(request: Request<Body>) -> Result<Response<Full<Bytes>>, std::convert::Infallible> {
///     Ok(match request.into_body().bytes().await {
///         Ok(bytes) => Response::new(Full::new(bytes)),
///         Err(_too_long_or_gone) => {
///             let mut refused = Response::new(Full::default());
///             *refused.status_mut() = StatusCode::BAD_REQUEST;
///             refused
///         }
///     })
/// }
///
/// # let listener = dapple::sim::net::TcpListener::bind("10.0.0.1:80");
/// # async fn example(listener: dapple::net::TcpListener) -> std::io::Result<()> {
/// dapple_http::serve(listener, hyper::service::service_fn(echo)).await?;
/// # Ok(()) }
/// # drop(listener);
/// ```
pub struct Body(Option<Box<Live>>);

/// A body of which something may come.
struct Live {
    incoming: Limited<Incoming>,
    handle: BodyHandle,
    /// How much has come, and when of that what is worth mentioning did.
    came: u64,
    noted: u64,
    since: Option<Instant>,
    sleep: Option<Sleep>,
    is_over: bool,
}

impl Body {
    pub(crate) fn new(incoming: Incoming, request: &RequestHandle) -> Body {
        if incoming.is_end_stream() {
            return Body(None);
        }
        let most = request.server().settings.max_body_size;
        Body(Some(Box::new(Live {
            incoming: Limited::new(incoming, most),
            handle: request.body(),
            came: 0,
            noted: 0,
            since: None,
            sleep: None,
            is_over: false,
        })))
    }
}

/// A body that a service lets go before its end is read on, with HTTP/2. With HTTP/1 the connection does that.
impl Drop for Body {
    fn drop(&mut self) {
        if let Some(live) = self.0.take()
            && !live.is_over
        {
            let Live { incoming, handle, .. } = *live;
            handle.let_go(incoming);
        }
    }
}

impl Live {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            ready!(self.poll_late(cx));
            self.is_over = true;
            self.handle.server().counters.count_timeout();
            self.handle.fail(ServerReply::LATE_BODY);
            return Poll::Ready(Some(
                Err(Error::late("the body of the request did not come in time").into()),
            ));
        };
        match &frame {
            Some(Ok(frame)) => self.came += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(error)) => {
                self.is_over = true;
                if error.is::<LengthLimitError>() {
                    self.handle.fail(ServerReply::TOO_LARGE);
                }
            }
            None => self.is_over = true,
        }
        self.is_over |= self.incoming.is_end_stream();
        Poll::Ready(frame)
    }

    /// Ready if too little has come for too long.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.handle.server().settings.body_timeout;
        let now = Instant::now();
        if self.since.is_none() || self.came - self.noted >= PROGRESS {
            self.since = Some(now);
            self.noted = self.came;
        }
        let Some(due) = self.since.and_then(|since| since.checked_add(limit)) else { return Poll::Pending };
        if now >= due {
            return Poll::Ready(());
        }
        let sleep = self.sleep.get_or_insert_with(|| dapple::time::sleep_until(due));
        loop {
            match ready!(Pin::new(&mut *sleep).poll(cx)) {
                Ok(()) if Instant::now() >= due => return Poll::Ready(()),
                Ok(()) => sleep.reset(due),
                // The connection is cancelled, and reports that itself.
                Err(_cancelled) => return Poll::Pending,
            }
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.as_mut().map_or(Poll::Ready(None), |live| live.poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|live| live.is_over)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |live| live.incoming.size_hint())
    }
}

impl Body {
    /// Reads the whole body into memory. [`max_body_size`](crate::Serve::max_body_size) bounds its size.
    ///
    /// # Errors
    ///
    /// If it is too long, does not come, or the client goes away.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: what had been read is gone. *Scope cancelled*: goes on until the body ends or
    /// its time is up; wrap it in [`dapple::or_cancelled`] to end at once.
    pub async fn bytes(self) -> Result<Bytes, BoxError> {
        Ok(self.collect().await?.to_bytes())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("is_empty", &self.0.is_none()).finish_non_exhaustive()
    }
}

pin_project! {
    /// The body of a response. When it is dropped, its request is over.
    pub(crate) struct ResponseBody<B> {
        #[pin]
        content: ResponseContent<B>,
        sending: SendingGuard,
    }
}

pin_project! {
    #[project = ContentProjection]
    enum ResponseContent<B> {
        Service { #[pin] body: B },
        ServerReply { text: Option<&'static str> },
    }
}

/// A response that is being sent, until it is dropped.
struct SendingGuard {
    /// HTTP/2 alone, where the stream does not show what a response waits for. Dropped before the request.
    handle: Option<SendingHandle>,
    _request: Option<RequestHandle>,
}

impl SendingGuard {
    fn new(request: Option<RequestHandle>) -> SendingGuard {
        SendingGuard { handle: request.as_ref().and_then(RequestHandle::sending), _request: request }
    }

    /// The handle of a piece of it.
    #[inline]
    fn piece(&self, data: &impl Buf) -> Option<PieceHandle> {
        self.handle.as_ref().map(|handle| handle.piece(data.remaining()))
    }

    /// The most bytes that the next piece should have.
    #[inline]
    fn piece_limit(&self) -> usize {
        self.handle.as_ref().map_or(usize::MAX, SendingHandle::piece_limit)
    }

    /// Whether it waits for its service now.
    #[inline]
    fn source_waits(&mut self, waits: bool) {
        if let Some(handle) = &mut self.handle {
            handle.source_waits(waits);
        }
    }
}

impl<B: http_body::Body> ResponseBody<B> {
    pub(crate) fn of_service(
        response: Response<B>,
        request: Option<RequestHandle>,
    ) -> Response<ResponseBody<B>> {
        if request.as_ref().is_some_and(|request| is_bodiless(request, response.status())) {
            return ResponseBody::without_body(response, request);
        }
        response.map(|body| ResponseBody {
            content: ResponseContent::Service { body },
            sending: SendingGuard::new(request),
        })
    }

    /// A response of which only the head is sent. The head of one to HEAD says how long the body would be.
    #[cold]
    fn without_body(response: Response<B>, request: Option<RequestHandle>) -> Response<ResponseBody<B>> {
        let (mut parts, body) = response.into_parts();
        let length = body.size_hint().exact().filter(|&length| length > 0);
        if let Some(length) = length
            && request.as_ref().is_some_and(RequestHandle::is_head)
        {
            parts.headers.entry(CONTENT_LENGTH).or_insert_with(|| length.into());
        }
        let content = ResponseContent::ServerReply { text: None };
        Response::from_parts(parts, ResponseBody { content, sending: SendingGuard::new(request) })
    }

    /// An answer of the server's own.
    pub(crate) fn own(reply: ServerReply, request: Option<RequestHandle>) -> Response<ResponseBody<B>> {
        if let Some(request) = &request {
            request.tell_replaced(&reply);
        }
        let is_head = request.as_ref().is_some_and(RequestHandle::is_head);
        let content = ResponseContent::ServerReply { text: (!is_head).then_some(reply.text) };
        let mut response = Response::new(ResponseBody { content, sending: SendingGuard::new(request) });
        *response.status_mut() = reply.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if is_head {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(reply.text.len()));
        }
        if reply.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(seconds) = reply.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Whether a response has no body whatever its service says (RFC 9110, section 6.4.1). hyper sees to that with HTTP/1, and
/// would send the body with HTTP/2.
#[inline]
fn is_bodiless(request: &RequestHandle, status: StatusCode) -> bool {
    let has_none = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    request.is_head() || request.is_http2() && has_none
}

impl<B: http_body::Body> http_body::Body for ResponseBody<B> {
    type Data = BodyPiece<B::Data>;
    type Error = B::Error;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BodyPiece<B::Data>>, B::Error>>> {
        let this = self.project();
        match this.content.project() {
            ContentProjection::Service { body } => {
                let polled = with_piece_limit(this.sending.piece_limit(), || body.poll_frame(cx));
                this.sending.source_waits(polled.is_pending());
                let piece = |data| BodyPiece { handle: this.sending.piece(&data), data: Data::Service(data) };
                polled.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(piece))))
            }
            ContentProjection::ServerReply { text } => Poll::Ready(text.take().map(|text| {
                let data = Bytes::from_static(text.as_bytes());
                let handle = this.sending.piece(&data);
                Ok(Frame::data(BodyPiece { data: Data::ServerReply(data), handle }))
            })),
        }
    }

    #[inline]
    fn is_end_stream(&self) -> bool {
        match &self.content {
            ResponseContent::Service { body } => body.is_end_stream(),
            ResponseContent::ServerReply { text } => text.is_none(),
        }
    }

    #[inline]
    fn size_hint(&self) -> SizeHint {
        match &self.content {
            ResponseContent::Service { body } => body.size_hint(),
            ResponseContent::ServerReply { text } => SizeHint::with_exact(text.map_or(0, str::len) as u64),
        }
    }
}

/// A piece of a body, until it was written, or is not needed any more.
pub(crate) struct BodyPiece<D> {
    data: Data<D>,
    handle: Option<PieceHandle>,
}

enum Data<D> {
    Service(D),
    ServerReply(Bytes),
}

/// Evaluates an expression with the data of either kind.
macro_rules! of_data {
    ($piece:expr, $data:ident => $then:expr) => {
        match $piece {
            Data::Service($data) => $then,
            Data::ServerReply($data) => $then,
        }
    };
}

impl<D: Buf> Buf for BodyPiece<D> {
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
        if let Some(handle) = &self.handle {
            handle.taken(count);
        }
        of_data!(&mut self.data, data => data.advance(count));
    }

    #[inline]
    fn copy_to_bytes(&mut self, length: usize) -> Bytes {
        if let Some(handle) = &self.handle {
            handle.taken(length);
        }
        of_data!(&mut self.data, data => data.copy_to_bytes(length))
    }
}
