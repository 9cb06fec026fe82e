//! The built-in site: a page that shows what Dapple is, with numbers that change.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::sync::OnceLock;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{self, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, combinators::MapErr};

use crate::counts::Requests;
use crate::metrics::Numbers;
use crate::work::{self, Begun};

const PAGE: &[u8] = include_bytes!("site/index.html");
const MISSING: &[u8] = include_bytes!("site/missing.html");
const ICON: &[u8] = include_bytes!("site/icon.svg");

/// A body in memory, with the error that bodies of files have.
pub(crate) type Body = MapErr<Full<Bytes>, fn(Infallible) -> io::Error>;

/// A service of a few pages in memory.
#[derive(Clone)]
pub(crate) struct Pages {
    find: fn(&str, &'static Numbers) -> Option<Page>,
    /// Known when the server has started.
    numbers: &'static OnceLock<Numbers>,
}

/// A page in memory.
pub(crate) struct Page {
    pub(crate) kind: &'static str,
    pub(crate) cache: &'static str,
    pub(crate) body: Bytes,
}

impl Page {
    fn html(cache: &'static str, body: &'static [u8]) -> Page {
        Page { kind: "text/html; charset=utf-8", cache, body: Bytes::from_static(body) }
    }

    fn json(body: String) -> Page {
        Page { kind: "application/json", cache: "no-store", body: body.into() }
    }

    pub(crate) fn status(status: StatusCode) -> Page {
        Page { kind: "text/plain; charset=utf-8", cache: "no-store", body: format!("{status}\n").into() }
    }

    pub(crate) fn answer(self, status: StatusCode) -> Response<Body> {
        let map: fn(Infallible) -> io::Error = |never| match never {};
        let mut response = Response::new(Full::new(self.body).map_err(map));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(self.cache));
        response
    }
}

impl Pages {
    /// The built-in site.
    pub(crate) fn site(numbers: &'static OnceLock<Numbers>) -> Pages {
        let find = |path: &str, numbers: &'static Numbers| match path {
            "/" => Some(Page::html("max-age=60", PAGE)),
            "/icon.svg" | "/favicon.ico" => {
                Some(Page { kind: "image/svg+xml", cache: "max-age=3600", body: Bytes::from_static(ICON) })
            }
            "/numbers.json" => Some(Page::json(live(numbers))),
            _ => None,
        };
        Pages { find, numbers }
    }

    fn answer(&self, method: &Method, path: &str) -> Response<Body> {
        let work = path.strip_prefix("/work/");
        let (allowed, is_allowed) = match work {
            Some(_) => ("POST", method == Method::POST),
            None => ("GET, HEAD", method == Method::GET || method == Method::HEAD),
        };
        if !is_allowed {
            let status = StatusCode::METHOD_NOT_ALLOWED;
            let mut response = Page::status(status).answer(status);
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
            return response;
        }
        if let Some(name) = work {
            return match work::begin(name) {
                Begun::InLine(id) => Page::json(format!("{{\"id\":{id}}}")).answer(StatusCode::ACCEPTED),
                Begun::Refused => {
                    let status = StatusCode::SERVICE_UNAVAILABLE;
                    let mut response = Page::status(status).answer(status);
                    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
                    response
                }
                Begun::NoColor => Page::html("no-store", MISSING).answer(StatusCode::NOT_FOUND),
            };
        }
        let (status, page) = match self.numbers.get() {
            None => (StatusCode::SERVICE_UNAVAILABLE, Page::status(StatusCode::SERVICE_UNAVAILABLE)),
            Some(numbers) => match (self.find)(path, numbers) {
                Some(page) => (StatusCode::OK, page),
                None => (StatusCode::NOT_FOUND, Page::html("no-store", MISSING)),
            },
        };
        let len = page.body.len();
        let body = if method == Method::HEAD { Bytes::new() } else { page.body.clone() };
        let mut response = Page { body, ..page }.answer(status);
        response.headers_mut().insert(header::CONTENT_LENGTH, len.into());
        response
    }
}

impl<B> tower_service::Service<Request<B>> for Pages {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        ready(Ok(self.answer(request.method(), request.uri().path())))
    }
}

/// What the page shows.
fn live(numbers: &Numbers) -> String {
    let (sums, counts, runtime) =
        (Requests::ALL.sums(), numbers.server.snapshot(), numbers.runtime.metrics());
    format!(
        "{{\"requests\":{},\"connections\":{},\"workers\":{},\"sleeping\":{},\"tasks\":{},\"median\":{},\"relieved\":{},\"memory\":{},\"uptime\":{},\"work\":{}}}",
        sums.requests(),
        counts.open,
        runtime.workers.len(),
        runtime.sleeping,
        runtime.alive(),
        sums.median().map_or(0, |time| time.as_micros()),
        runtime.spares_sent,
        resident().unwrap_or(0),
        numbers.begun.elapsed().as_secs(),
        work::json(),
    )
}

/// How much memory the program has, in bytes.
fn resident() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = sizes.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
