//! What a request must be, beyond what hyper asks of it: nothing that servers behind each other could read in two
//! ways.

use http::header::TRANSFER_ENCODING;
use http::{HeaderMap, Request, Version};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::connection::shared::RequestHandle;
use crate::request::reply::ServerReply;
use crate::strict::framing::Framing;
use crate::strict::host;

/// Whether a request may reach a service.
#[inline]
pub(crate) fn check(request: &Request<Incoming>, handle: &RequestHandle) -> Result<(), ServerReply> {
    let (headers, body) = (request.headers(), request.body());
    if request.version() == Version::HTTP_2 {
        host::check_authority(request.uri(), headers)?;
    } else {
        let framing = if body.is_end_stream() { Framing::Nothing } else { framing(headers, body) };
        handle.check_head(request.method().as_str(), framing)?;
        if framing == Framing::Chunked {
            check_encoding(headers)?;
        }
        host::check(request)?;
    }
    if body.size_hint().lower() > handle.server().settings.max_body_size as u64 {
        return Err(ServerReply::TOO_LARGE);
    }
    Ok(())
}

fn framing(headers: &HeaderMap, body: &Incoming) -> Framing {
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
