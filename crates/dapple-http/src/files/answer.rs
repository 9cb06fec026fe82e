//! Answers: from a page and a request to a status, headers and a body.

use std::fmt::Write;
use std::ops::Range;
use std::time::SystemTime;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Response, StatusCode};

use super::body::{BodyPart, FileBody};
use super::conditional::{self, Precondition};
use super::encoding::Taken;
use super::page::{FileContent, FilePage, Form};
use super::path;
use super::range::{self, Wanted};

/// The methods of files, for the header `Allow`.
const ALLOWED: HeaderValue = HeaderValue::from_static("GET, HEAD, OPTIONS");

/// Answers with a page. Most requests have no header that matters here, so all headers are looked through once.
pub(super) fn page(page: &FilePage, method: &Method, headers: &HeaderMap) -> Response<FileBody> {
    let mut is_conditional = false;
    let mut range = None;
    for (name, value) in headers {
        if name == header::RANGE {
            range = Some(value);
        }
        is_conditional |= name == header::IF_NONE_MATCH
            || name == header::IF_MODIFIED_SINCE
            || name == header::IF_MATCH
            || name == header::IF_UNMODIFIED_SINCE;
    }
    let form = page.form(|| taken(headers));
    if is_conditional {
        match conditional::weigh(headers, form.validators()) {
            Precondition::Send => {}
            Precondition::NotModified => return not_modified(form),
            Precondition::Failed => {
                let failed = plain(StatusCode::PRECONDITION_FAILED);
                return if method == Method::HEAD { without_body(failed) } else { failed };
            }
        }
    }
    if method == Method::HEAD {
        return head(form);
    }
    // A request with several `Range` headers is malformed: the header is ignored.
    let range = range.filter(|_| headers.get_all(header::RANGE).iter().count() == 1);
    let if_range = headers.get(header::IF_RANGE);
    match range {
        Some(range) if conditional::range_counts(if_range, form.validators(), SystemTime::now()) => {
            match range::parse(range.as_bytes(), form.len) {
                Wanted::Whole => whole(form),
                Wanted::Nothing => beyond(form),
                Wanted::Parts(parts) => match &parts[..] {
                    [part] => one_part(form, part.clone()),
                    parts => several_parts(form, parts),
                },
            }
        }
        _ => whole(form),
    }
}

/// The codings that the client accepts.
fn taken(headers: &HeaderMap) -> Taken {
    let mut taken = Taken::default();
    headers.get_all(header::ACCEPT_ENCODING).iter().for_each(|value| taken.read(value.as_bytes()));
    taken
}

fn respond(status: StatusCode, headers: HeaderMap, body: FileBody) -> Response<FileBody> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = headers;
    response
}

/// Answers with a page in place of a missing one: the whole page, without the headers that would identify its bytes.
pub(super) fn not_found(page: &FilePage, headers: &HeaderMap) -> Response<FileBody> {
    let mut response = whole(page.form(|| taken(headers)));
    *response.status_mut() = StatusCode::NOT_FOUND;
    for name in [header::ETAG, header::LAST_MODIFIED, header::ACCEPT_RANGES, header::CACHE_CONTROL] {
        response.headers_mut().remove(name);
    }
    response
}

/// The whole body. The server adds the length.
fn whole(form: &Form) -> Response<FileBody> {
    let body = match &form.content {
        FileContent::Memory(bytes) => FileBody::of(bytes.clone()),
        FileContent::File(source) => FileBody::pieces(source.clone(), [BodyPart::File(0..form.len)]),
    };
    respond(StatusCode::OK, form.headers(), body)
}

/// The headers that `whole` would have, with the length that its body would have.
fn head(form: &Form) -> Response<FileBody> {
    let mut headers = form.headers();
    headers.insert(header::CONTENT_LENGTH, form.len.into());
    respond(StatusCode::OK, headers, FileBody::empty())
}

/// The headers of `whole` that RFC 9110, section 15.4.5, requires in a 304. The others are left out.
fn not_modified(form: &Form) -> Response<FileBody> {
    let mut headers = form.headers();
    for name in [header::CONTENT_TYPE, header::CONTENT_ENCODING, header::ACCEPT_RANGES] {
        headers.remove(name);
    }
    respond(StatusCode::NOT_MODIFIED, headers, FileBody::empty())
}

/// 416: none of the requested parts exists.
fn beyond(form: &Form) -> Response<FileBody> {
    let mut response = plain(StatusCode::RANGE_NOT_SATISFIABLE);
    response.headers_mut().insert(header::CONTENT_RANGE, value(format!("bytes */{}", form.len)));
    response
}

fn one_part(form: &Form, part: Range<u64>) -> Response<FileBody> {
    let mut headers = form.headers();
    headers.insert(header::CONTENT_RANGE, value(content_range(&part, form.len)));
    let body = match &form.content {
        FileContent::Memory(bytes) => FileBody::of(cut(bytes, part)),
        FileContent::File(source) => FileBody::pieces(source.clone(), [BodyPart::File(part)]),
    };
    respond(StatusCode::PARTIAL_CONTENT, headers, body)
}

/// `multipart/byteranges`: RFC 9110, section 14.6.
fn several_parts(form: &Form, parts: &[Range<u64>]) -> Response<FileBody> {
    let mut headers = form.headers();
    // The boundary may be easy to guess: parts are also delimited by their lengths, and the file is the server's own.
    let mut boundary = String::from("dapple-");
    for byte in form.validators().etag.iter().filter(|byte| byte.is_ascii_alphanumeric()) {
        boundary.push(char::from(*byte));
    }
    let multipart = value(format!("multipart/byteranges; boundary={boundary}"));
    let content_type = headers.insert(header::CONTENT_TYPE, multipart);
    let mut pieces = Vec::with_capacity(parts.len() * 2 + 1);
    for part in parts {
        let mut text = format!("\r\n--{boundary}\r\n");
        if let Some(kind) = content_type.as_ref().and_then(|kind| kind.to_str().ok()) {
            let _ = write!(text, "content-type: {kind}\r\n");
        }
        let _ = write!(text, "content-range: {}\r\n\r\n", content_range(part, form.len));
        pieces.extend([BodyPart::Text(text.into()), BodyPart::File(part.clone())]);
    }
    pieces.push(BodyPart::Text(format!("\r\n--{boundary}--\r\n").into()));
    let body = match &form.content {
        FileContent::File(source) => FileBody::pieces(source.clone(), pieces),
        FileContent::Memory(bytes) => {
            let mut body = Vec::new();
            for piece in pieces {
                match piece {
                    BodyPart::Text(text) => body.extend_from_slice(&text),
                    BodyPart::File(part) => body.extend_from_slice(&cut(bytes, part)),
                }
            }
            FileBody::of(body.into())
        }
    };
    respond(StatusCode::PARTIAL_CONTENT, headers, body)
}

fn cut(bytes: &Bytes, part: Range<u64>) -> Bytes {
    // A file in memory has a length that fits.
    bytes.slice(part.start as usize..part.end as usize)
}

fn content_range(part: &Range<u64>, len: u64) -> String {
    format!("bytes {}-{}/{len}", part.start, part.end - 1)
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("made of plain text")
}

/// An answer that says its status in words.
pub(super) fn plain(status: StatusCode) -> Response<FileBody> {
    let text = format!("{} {}\n", status.as_str(), status.canonical_reason().unwrap_or_default());
    let mut response = Response::new(FileBody::of(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}

/// Answer for a folder that has no index and is not listed.
pub(super) fn no_index(page: Option<&Bytes>) -> Response<FileBody> {
    let Some(page) = page else { return plain(StatusCode::NOT_FOUND) };
    let kind = HeaderValue::from_static("text/html; charset=utf-8");
    let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, kind)]);
    respond(StatusCode::NOT_FOUND, headers, FileBody::of(page.clone()))
}

/// Answer for a failure that may pass: try again later.
pub(super) fn busy() -> Response<FileBody> {
    let mut response = plain(StatusCode::SERVICE_UNAVAILABLE);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Answer for a method that is not for files.
pub(super) fn not_allowed() -> Response<FileBody> {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED);
    response.headers_mut().insert(header::ALLOW, ALLOWED);
    response
}

/// Answer for `OPTIONS`.
pub(super) fn options() -> Response<FileBody> {
    let headers = HeaderMap::from_iter([(header::ALLOW, ALLOWED)]);
    respond(StatusCode::NO_CONTENT, headers, FileBody::empty())
}

/// Redirect to the same folder, with a slash. The address is relative, so it is right wherever the service is mounted,
/// and cannot lead to another host.
pub(super) fn with_slash(folder: &[u8], query: Option<&str>) -> Response<FileBody> {
    let name = folder.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    let mut location = String::from("./");
    path::encode(name, &mut location);
    location.push('/');
    if let Some(query) = query {
        let _ = write!(location, "?{query}");
    }
    let mut response = plain(StatusCode::MOVED_PERMANENTLY);
    if let Ok(location) = HeaderValue::try_from(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

/// Answer for `HEAD`: without the body, but with its length.
pub(super) fn without_body(response: Response<FileBody>) -> Response<FileBody> {
    let (mut parts, body) = response.into_parts();
    if let Some(len) = http_body::Body::size_hint(&body).exact().filter(|&len| len > 0) {
        parts.headers.insert(header::CONTENT_LENGTH, len.into());
    }
    Response::from_parts(parts, FileBody::empty())
}
