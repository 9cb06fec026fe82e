//! What is sent back: a service's response, or one of the server's own.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::Response;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::connection::shared::{PieceHandle, RequestHandle, SendingHandle};
use crate::reply::ServerReply;

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
    fn piece(&self) -> Option<PieceHandle> {
        self.handle.as_ref().map(SendingHandle::piece)
    }

    /// Whether it waits for its service now.
    #[inline]
    fn source_waits(&mut self, waits: bool) {
        if let Some(handle) = &mut self.handle {
            handle.source_waits(waits);
        }
    }
}

impl<B> ResponseBody<B> {
    pub(crate) fn of_service(
        response: Response<B>,
        request: Option<RequestHandle>,
    ) -> Response<ResponseBody<B>> {
        response.map(|body| ResponseBody {
            content: ResponseContent::Service { body },
            sending: SendingGuard::new(request),
        })
    }

    /// An answer of the server's own.
    pub(crate) fn own(reply: ServerReply, request: Option<RequestHandle>) -> Response<ResponseBody<B>> {
        if let Some(request) = &request {
            request.tell_replaced(&reply);
        }
        let content = ResponseContent::ServerReply { text: Some(reply.text) };
        let mut response = Response::new(ResponseBody { content, sending: SendingGuard::new(request) });
        *response.status_mut() = reply.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if reply.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if let Some(seconds) = reply.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

impl<B: Body> Body for ResponseBody<B> {
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
                let polled = body.poll_frame(cx);
                this.sending.source_waits(polled.is_pending());
                let piece = |data| BodyPiece { data: Data::Service(data), handle: this.sending.piece() };
                polled.map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(piece))))
            }
            ContentProjection::ServerReply { text } => Poll::Ready(text.take().map(|text| {
                let data = Data::ServerReply(Bytes::from_static(text.as_bytes()));
                Ok(Frame::data(BodyPiece { data, handle: this.sending.piece() }))
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

/// Goes by what the data is.
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
