//! Pages in memory, and the service that answers with them.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body_util::{BodyExt, Full, combinators::MapErr};

/// Body of a page in memory. It has the error type of file bodies, and never fails.
pub(crate) type PageBody = MapErr<Full<Bytes>, fn(Infallible) -> io::Error>;

/// Page in memory: content type, caching and text.
pub(crate) struct Page {
    pub(crate) kind: &'static str,
    pub(crate) cache: &'static str,
    pub(crate) body: Bytes,
}

impl Page {
    pub(crate) fn html(cache: &'static str, body: Bytes) -> Page {
        Page { kind: "text/html; charset=utf-8", cache, body }
    }

    pub(crate) fn json(body: String) -> Page {
        Page { kind: "application/json", cache: "no-store", body: body.into() }
    }

    pub(crate) fn text(body: impl Into<Bytes>) -> Page {
        Page { kind: "text/plain; charset=utf-8", cache: "no-store", body: body.into() }
    }

    pub(crate) fn status(status: StatusCode) -> Page {
        Page::text(format!("{status}\n"))
    }

    /// Returns a 405 for a method that the page does not have, with the allowed methods.
    pub(crate) fn not_allowed(allowed: &'static str) -> Response<PageBody> {
        let status = StatusCode::METHOD_NOT_ALLOWED;
        let mut response = Page::status(status).answer(status);
        response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
        response
    }

    pub(crate) fn answer(self, status: StatusCode) -> Response<PageBody> {
        let map: fn(Infallible) -> io::Error = |never| match never {};
        let mut response = Response::new(Full::new(self.body).map_err(map));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(self.cache));
        response
    }

    /// As [`answer`](Self::answer), for any method. A response to HEAD has no body, only the length of one.
    pub(crate) fn answer_to(mut self, method: &Method, status: StatusCode) -> Response<PageBody> {
        let length = self.body.len();
        if method == Method::HEAD {
            self.body = Bytes::new();
        }
        let mut response = self.answer(status);
        response.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        response
    }
}

/// Returns the HTML of a 404 page that has `text`, and additional lines in its `<head>`.
pub(crate) fn not_found(head: &str, text: &str) -> String {
    include_str!("site/404.html").replace("{head}", head).replace("{text}", text)
}

/// Pages that answer without waiting, and ignore the body of the request.
pub(crate) trait Pages {
    fn answer(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Response<PageBody>;
}

/// Service that answers with [`Pages`].
#[derive(Clone)]
pub(crate) struct PageService<P>(pub(crate) P);

impl<P: Pages, B> tower_service::Service<Request<B>> for PageService<P> {
    type Response = Response<PageBody>;
    type Error = Infallible;
    type Future = Ready<Result<Response<PageBody>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ready(Ok(self.0.answer(request.method(), request.uri(), request.headers())))
    }
}
