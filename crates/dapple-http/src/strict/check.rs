//! What a request must be, beyond what hyper asks of it: nothing that servers behind each other could read in two
//! ways.

use http::header::{HOST, TRANSFER_ENCODING};
use http::{HeaderMap, Request, Version};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::connection::phase::Watch;
use crate::request::answer::Own;
use crate::strict::framing::Framing;

/// Whether a request may reach a service.
#[inline]
pub(crate) fn check(request: &Request<Incoming>, max_body_size: usize, watch: &Watch) -> Result<(), Own> {
    let (headers, body) = (request.headers(), request.body());
    if request.version() == Version::HTTP_2 {
        check_authority(request)?;
    } else {
        let framing = if body.is_end_stream() { Framing::Nothing } else { framing(headers, body) };
        watch.next_head(request.method().as_str(), framing)?;
        if framing == Framing::Chunked {
            check_encoding(headers)?;
        }
        check_host(headers, request.version())?;
    }
    if body.size_hint().lower() > max_body_size as u64 {
        return Err(Own::TOO_LARGE);
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
fn check_encoding(headers: &HeaderMap) -> Result<(), Own> {
    let mut encodings = headers.get_all(TRANSFER_ENCODING).iter();
    let is_chunked = encodings.next().is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"chunked"));
    if is_chunked && encodings.next().is_none() {
        return Ok(());
    }
    Err(Own::NOT_CHUNKED)
}

fn check_host(headers: &HeaderMap, version: Version) -> Result<(), Own> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => Err(Own::bad("a request has one Host header, not several\n")),
        (Some(host), None) if !host.as_bytes().iter().all(|byte| is_of_host(*byte)) => {
            Err(Own::bad("the Host header has to be a name or an address, and perhaps a port\n"))
        }
        (None, _) if version == Version::HTTP_11 => {
            Err(Own::bad("a request of HTTP/1.1 needs a Host header\n"))
        }
        _ => Ok(()),
    }
}

#[inline]
fn is_of_host(byte: u8) -> bool {
    OF_HOST[usize::from(byte)]
}

/// What names, addresses and ports consist of (RFC 3986, section 3.2.2).
static OF_HOST: [bool; 256] = {
    let (mut table, mut byte) = ([false; 256], 0);
    while byte < 256 {
        table[byte] = may_be_in_host(byte as u8);
        byte += 1;
    }
    table
};

const fn may_be_in_host(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':' | b'[' | b']' | b'%' | b'!' | b'$' | b'&' | b'\'')
        || matches!(byte, b'(' | b')' | b'*' | b'+' | b';' | b'=')
}

/// With HTTP/2 the authority is said apart from the headers; a Host header must not say something else.
fn check_authority(request: &Request<Incoming>) -> Result<(), Own> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let Some(host) = hosts.next() else { return Ok(()) };
    let authority = request.uri().authority().map_or("", |authority| authority.as_str());
    let is_same = authority.is_empty() || host.as_bytes().eq_ignore_ascii_case(authority.as_bytes());
    match is_same && hosts.next().is_none() {
        true => Ok(()),
        false => Err(Own::bad("the Host header and the authority of the request are not the same\n")),
    }
}
