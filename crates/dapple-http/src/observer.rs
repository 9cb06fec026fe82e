//! Observer of the server's own answers: a service does not see them, and an access log should.
//!
//! Without an observer, nothing is stored for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use dapple::time::Instant;
use http::{HeaderMap, Method, Request, StatusCode, Uri, Version};

use crate::peer::Peer;
use crate::reply::ServerReply;

/// Response that the server has made itself, without the service or in its place. Reported to
/// [`Serve::on_own_answer`](crate::Serve::on_own_answer).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct OwnAnswer<'a> {
    /// The client's end of the connection.
    pub peer: Peer,
    /// The method of the request. `None` if the first line of the head was malformed or did not come.
    pub method: Option<&'a Method>,
    /// The target of the request. `None` if the first line of the head was malformed or did not come.
    pub uri: Option<&'a Uri>,
    /// The version of the request. `None` if the first line of the head was malformed or did not come.
    pub version: Option<Version>,
    /// The headers of the request. `None` if they were not read, or were handed to the service.
    pub headers: Option<&'a HeaderMap>,
    /// The status of the answer.
    pub status: StatusCode,
    /// Length of the response's body, in bytes.
    pub bytes: u64,
    /// Time from the end of the request's head to the response; or for a head that did not come whole, the time that
    /// the server waited for it.
    pub took: Duration,
}

/// The closure that [`Serve::on_own_answer`](crate::Serve::on_own_answer) was given.
#[derive(Clone)]
pub(crate) struct ReplyObserver(Arc<dyn Fn(&OwnAnswer<'_>) + Send + Sync>);

impl fmt::Debug for ReplyObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

impl ReplyObserver {
    pub(crate) fn new(tell: impl Fn(&OwnAnswer<'_>) + Send + Sync + 'static) -> ReplyObserver {
        ReplyObserver(Arc::new(tell))
    }

    /// Reports a request that does not reach its service.
    pub(crate) fn tell_refused<B>(&self, peer: Peer, request: &Request<B>, reply: &ServerReply) {
        (self.0)(&OwnAnswer {
            peer,
            method: Some(request.method()),
            uri: Some(request.uri()),
            version: Some(request.version()),
            headers: Some(request.headers()),
            status: reply.status,
            bytes: reply.text.len() as u64,
            took: Duration::ZERO,
        });
    }

    /// Tells of a request that its service had.
    pub(crate) fn tell_replaced(&self, peer: Peer, seen: &RequestSummary, reply: &ServerReply) {
        (self.0)(&OwnAnswer {
            peer,
            method: Some(&seen.method),
            uri: Some(&seen.uri),
            version: Some(seen.version),
            headers: None,
            status: reply.status,
            bytes: reply.text.len() as u64,
            took: seen.begun.elapsed(),
        });
    }

    /// Tells of a head that did not become a request.
    pub(crate) fn tell_unread(
        &self,
        peer: Peer,
        line: Option<&RequestLine>,
        status: StatusCode,
        took: Duration,
    ) {
        (self.0)(&OwnAnswer {
            peer,
            method: line.map(|line| &line.method),
            uri: line.map(|line| &line.uri),
            version: line.map(|line| line.version),
            headers: None,
            status,
            bytes: 0,
            took,
        });
    }
}

/// The parts of a request that were recorded before its service got it.
pub(crate) struct RequestSummary {
    method: Method,
    uri: Uri,
    version: Version,
    begun: Instant,
}

impl RequestSummary {
    pub(crate) fn new<B>(request: &Request<B>) -> RequestSummary {
        let (method, uri) = (request.method().clone(), request.uri().clone());
        RequestSummary { method, uri, version: request.version(), begun: Instant::now() }
    }
}

/// The first line of a head that was not parsed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RequestLine {
    method: Method,
    uri: Uri,
    version: Version,
}

impl RequestLine {
    /// Nothing, if it is no such line, or not all of it.
    pub(crate) fn new(head: &[u8]) -> Option<RequestLine> {
        let head = head.trim_ascii_start();
        let end = memchr::memchr(b'\n', head)?;
        let line = std::str::from_utf8(&head[..end]).ok()?;
        let mut words = line.trim_end_matches('\r').split(' ');
        let (method, uri, version) = (words.next()?, words.next()?, words.next()?);
        let version = match version {
            "HTTP/1.1" => Version::HTTP_11,
            "HTTP/1.0" => Version::HTTP_10,
            _ => return None,
        };
        let is_all = words.next().is_none();
        is_all.then_some(RequestLine { method: method.parse().ok()?, uri: uri.parse().ok()?, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_request_line_is_parsed() {
        let line = RequestLine::new(b"\r\nGET /a?b HTTP/1.1\r\nhost").unwrap();
        assert_eq!(
            (line.method, line.uri, line.version),
            (Method::GET, "/a?b".parse().unwrap(), Version::HTTP_11)
        );
        for other in [
            "",
            "GET",
            "GET / HTTP/1.1",
            "GET /\r\n",
            "GET / HTTP/9\r\n",
            "GET / x HTTP/1.1\r\n",
            "\x16\x03\n",
        ] {
            assert_eq!(RequestLine::new(other.as_bytes()), None, "{other:?}");
        }
    }
}
