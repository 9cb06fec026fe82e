//! What is sent back: a service's response, or one of the server's own.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::watch::Watch;

pin_project! {
    /// The body of a response. When it is dropped, its request is over.
    pub(crate) struct Answer<B> {
        #[pin]
        content: Content<B>,
        under_way: Option<UnderWay>,
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
pub(crate) struct UnderWay(pub(crate) Arc<Watch>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.end_request();
    }
}

impl<B> Answer<B> {
    pub(crate) fn of_service(response: Response<B>, under_way: Option<UnderWay>) -> Response<Answer<B>> {
        response.map(|body| Answer { content: Content::Service { body }, under_way })
    }

    /// An answer of the server's own.
    pub(crate) fn own(own: Own, under_way: Option<UnderWay>) -> Response<Answer<B>> {
        let mut response =
            Response::new(Answer { content: Content::Own { text: Some(own.text) }, under_way });
        *response.status_mut() = own.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
        if own.closes {
            headers.insert(CONNECTION, HeaderValue::from_static("close"));
        }
        if own.status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(http::header::RETRY_AFTER, HeaderValue::from_static("1"));
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
}

impl Own {
    pub(crate) const fn bad(text: &'static str) -> Own {
        Own { status: StatusCode::BAD_REQUEST, text, closes: true }
    }

    pub(crate) const TOO_LARGE: Own =
        Own { status: StatusCode::PAYLOAD_TOO_LARGE, text: "the body is too large\n", closes: true };
    pub(crate) const OVERLOADED: Own =
        Own { status: StatusCode::SERVICE_UNAVAILABLE, text: "too busy, try again\n", closes: false };
    pub(crate) const TOOK_TOO_LONG: Own =
        Own { status: StatusCode::SERVICE_UNAVAILABLE, text: "this took too long\n", closes: false };
    pub(crate) const LATE_BODY: Own =
        Own { status: StatusCode::REQUEST_TIMEOUT, text: "the body did not come in time\n", closes: true };
    pub(crate) const PANICKED: Own =
        Own { status: StatusCode::INTERNAL_SERVER_ERROR, text: "something went wrong\n", closes: false };
}

impl<B: Body> Body for Answer<B> {
    type Data = Piece<B::Data>;
    type Error = B::Error;

    #[inline]
    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece<B::Data>>, B::Error>>> {
        match self.project().content.project() {
            ContentProjection::Service { body } => body
                .poll_frame(cx)
                .map(|frame| frame.map(|frame| frame.map(|frame| frame.map_data(Piece::Service)))),
            ContentProjection::Own { text } => Poll::Ready(
                text.take().map(|text| Ok(Frame::data(Piece::Own(Bytes::from_static(text.as_bytes()))))),
            ),
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

/// A piece of a body.
pub(crate) enum Piece<D> {
    Service(D),
    Own(Bytes),
}

impl<D: Buf> Buf for Piece<D> {
    #[inline]
    fn remaining(&self) -> usize {
        match self {
            Piece::Service(data) => data.remaining(),
            Piece::Own(text) => text.remaining(),
        }
    }

    #[inline]
    fn chunk(&self) -> &[u8] {
        match self {
            Piece::Service(data) => data.chunk(),
            Piece::Own(text) => text.chunk(),
        }
    }

    #[inline]
    fn chunks_vectored<'a>(&'a self, slices: &mut [std::io::IoSlice<'a>]) -> usize {
        match self {
            Piece::Service(data) => data.chunks_vectored(slices),
            Piece::Own(text) => text.chunks_vectored(slices),
        }
    }

    #[inline]
    fn advance(&mut self, count: usize) {
        match self {
            Piece::Service(data) => data.advance(count),
            Piece::Own(text) => text.advance(count),
        }
    }

    #[inline]
    fn copy_to_bytes(&mut self, length: usize) -> Bytes {
        match self {
            Piece::Service(data) => data.copy_to_bytes(length),
            Piece::Own(text) => text.copy_to_bytes(length),
        }
    }
}
