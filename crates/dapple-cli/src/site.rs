//! The built-in site: a page that shows what Dapple is, with numbers that change; and the page of metrics.

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
use crate::metrics::{self, Numbers};

const PAGE: &[u8] = include_bytes!("site/index.html");
const ICON: &[u8] = include_bytes!("site/icon.svg");

/// Where metrics are, on their own address.
pub(crate) const METRICS: &str = "/_dapple/metrics";

/// A body in memory, with the error that bodies of files have.
pub(crate) type Body = MapErr<Full<Bytes>, fn(Infallible) -> io::Error>;

/// A service of a few pages in memory.
#[derive(Clone)]
pub(crate) struct Pages {
    find: fn(&str, &'static Numbers) -> Option<Page>,
    /// Known when the server has started.
    numbers: &'static OnceLock<Numbers>,
}

struct Page {
    kind: &'static str,
    cache: &'static str,
    body: Bytes,
}

impl Pages {
    /// The built-in site.
    pub(crate) fn site(numbers: &'static OnceLock<Numbers>) -> Pages {
        let find = |path: &str, numbers: &'static Numbers| match path {
            "/" => Some(Page {
                kind: "text/html; charset=utf-8",
                cache: "max-age=60",
                body: Bytes::from_static(PAGE),
            }),
            "/icon.svg" | "/favicon.ico" => {
                Some(Page { kind: "image/svg+xml", cache: "max-age=3600", body: Bytes::from_static(ICON) })
            }
            "/numbers.json" => {
                Some(Page { kind: "application/json", cache: "no-store", body: live(numbers).into() })
            }
            _ => None,
        };
        Pages { find, numbers }
    }

    /// What Prometheus asks for.
    pub(crate) fn metrics(numbers: &'static OnceLock<Numbers>) -> Pages {
        let find = |path: &str, numbers: &'static Numbers| {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            let body = (path == METRICS).then(|| metrics::page(numbers).ok()).flatten()?;
            Some(Page { kind, cache: "no-store", body: body.into() })
        };
        Pages { find, numbers }
    }

    fn answer(&self, method: &Method, path: &str) -> Response<Body> {
        let text = |status: StatusCode| Page {
            kind: "text/plain; charset=utf-8",
            cache: "no-store",
            body: format!("{status}\n").into(),
        };
        let (status, page) = match self.numbers.get() {
            _ if method != Method::GET && method != Method::HEAD => {
                (StatusCode::METHOD_NOT_ALLOWED, text(StatusCode::METHOD_NOT_ALLOWED))
            }
            None => (StatusCode::SERVICE_UNAVAILABLE, text(StatusCode::SERVICE_UNAVAILABLE)),
            Some(numbers) => match (self.find)(path, numbers) {
                Some(page) => (StatusCode::OK, page),
                None => (StatusCode::NOT_FOUND, text(StatusCode::NOT_FOUND)),
            },
        };
        let len = page.body.len();
        let body = if method == Method::HEAD { Bytes::new() } else { page.body };
        let map: fn(Infallible) -> io::Error = |never| match never {};
        let mut response = Response::new(Full::new(body).map_err(map));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(page.kind));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(page.cache));
        headers.insert(header::CONTENT_LENGTH, len.into());
        if status == StatusCode::METHOD_NOT_ALLOWED {
            headers.insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
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
    let runs: u64 = runtime.workers.iter().map(|worker| worker.runs).sum();
    format!(
        "{{\"requests\":{},\"connections\":{},\"workers\":{},\"sleeping\":{},\"tasks\":{},\"runs\":{runs},\"memory\":{},\"uptime\":{}}}",
        sums.requests(),
        counts.open,
        runtime.workers.len(),
        runtime.sleeping,
        runtime.alive(),
        resident().unwrap_or(0),
        numbers.begun.elapsed().as_secs(),
    )
}

/// How much memory the program has, in bytes.
fn resident() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = sizes.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
