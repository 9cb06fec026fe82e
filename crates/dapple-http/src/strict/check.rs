//! What a request must be, beyond what hyper asks of it: nothing that servers behind each other could read in two
//! ways.

use std::sync::Arc;

use http::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Version};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::connection::shared::{Connection, RequestHandle};
use crate::reply::ServerReply;
use crate::strict::framing::Framing;
use crate::strict::host::{self, KnownHost};

/// Begins a request, and says whether it may reach a service.
#[inline]
pub(crate) fn begin(
    request: &Request<Incoming>,
    connection: &Arc<Connection>,
    known: &KnownHost,
) -> (RequestHandle, Result<(), ServerReply>) {
    let (headers, body) = (request.headers(), request.body());
    if request.version() == Version::HTTP_2 {
        let handle = RequestHandle::http2(connection);
        let verdict = host::check_authority(request.uri(), headers);
        return (handle, verdict.and_then(|()| check_size(body, connection)));
    }
    let framing = framing(headers, body);
    let (handle, mut verdict) = RequestHandle::http1(connection, request.method().as_str(), framing);
    if framing == Framing::Chunked {
        verdict = verdict.and_then(|()| check_encoding(headers));
    }
    (handle, verdict.and_then(|()| host::check(request, known)).and_then(|()| check_size(body, connection)))
}

fn check_size(body: &Incoming, connection: &Connection) -> Result<(), ServerReply> {
    match body.size_hint().lower() > connection.server.settings.max_body_size as u64 {
        true => Err(ServerReply::TOO_LARGE),
        false => Ok(()),
    }
}

#[inline]
fn framing(headers: &HeaderMap, body: &Incoming) -> Framing {
    if body.is_end_stream() {
        // To compare all names takes less than to look up two.
        let is_said = headers.keys().any(|name| name == CONTENT_LENGTH || name == TRANSFER_ENCODING);
        return if is_said { Framing::Nothing } else { Framing::Unsaid };
    }
    match body.size_hint().exact() {
        Some(length) if !headers.contains_key(TRANSFER_ENCODING) => Framing::Length(length),
        _ => Framing::Chunked,
    }
}

/// One coding, the one that is understood: of several, hyper undoes the last alone, and a service would take what
/// is left for the body.
fn check_encoding(headers: &HeaderMap) -> Result<(), ServerReply> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = encodings.next().is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if is_chunked && encodings.next().is_none() {
        return Ok(());
    }
    Err(ServerReply::NOT_CHUNKED)
}
