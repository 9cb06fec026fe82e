//! The built-in site: a page that shows what Dapple is, with numbers that change.

use std::sync::{LazyLock, OnceLock};

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode, Uri};

use crate::counts::Requests;
use crate::metrics::Numbers;
use crate::page::{Page, PageBody, Pages, not_found};
use crate::work::{self, Submission};

const PAGE: &[u8] = include_bytes!("site/index.html");
const ICON: &[u8] = include_bytes!("site/icon.svg");

static MISSING: LazyLock<Bytes> = LazyLock::new(|| {
    let text = "<p>There is no page at this address. <a href=\"/\">Go to the start page</a></p>";
    not_found("<title>404: page not found</title>\n<link rel=\"icon\" href=\"/icon.svg\">", text).into()
});

/// The built-in site: a page that shows colors at work, and its live numbers.
#[derive(Clone)]
pub(crate) struct Site {
    /// Sources of the live numbers; set when the server has started.
    pub(crate) numbers: &'static OnceLock<Numbers>,
}

impl Site {
    fn find(path: &str, numbers: &'static Numbers) -> Option<Page> {
        match path {
            "/" => Some(Page::html("max-age=60", Bytes::from_static(PAGE))),
            "/icon.svg" | "/favicon.ico" => {
                Some(Page { kind: "image/svg+xml", cache: "max-age=3600", body: Bytes::from_static(ICON) })
            }
            "/numbers.json" => Some(Page::json(live(numbers))),
            _ => None,
        }
    }
}

impl Pages for Site {
    fn answer(&self, method: &Method, uri: &Uri, _: &HeaderMap) -> Response<PageBody> {
        if let Some(name) = uri.path().strip_prefix("/work/") {
            return if method == Method::POST { begin_work(name) } else { Page::not_allowed("POST") };
        }
        if method != Method::GET && method != Method::HEAD {
            return Page::not_allowed("GET, HEAD");
        }
        let Some(numbers) = self.numbers.get() else {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            return Page::status(status).answer_to(method, status);
        };
        match Site::find(uri.path(), numbers) {
            Some(page) => page.answer_to(method, StatusCode::OK),
            None => missing().answer_to(method, StatusCode::NOT_FOUND),
        }
    }
}

fn missing() -> Page {
    Page::html("no-store", MISSING.clone())
}

fn begin_work(name: &str) -> Response<PageBody> {
    match work::begin(name) {
        Submission::InLine(id) => Page::json(format!("{{\"id\":{id}}}")).answer(StatusCode::ACCEPTED),
        Submission::Refused => {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let mut response = Page::status(status).answer(status);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
        Submission::NoColor => missing().answer(StatusCode::NOT_FOUND),
    }
}

/// Returns the live numbers of the page, as JSON.
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

/// Returns the resident memory of the program, in bytes; `None` if the system does not report it.
fn resident() -> Option<u64> {
    let sizes = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = sizes.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}
