//! What a request must be, beyond what hyper asks of it.

use std::sync::Arc;

use http::header::HOST;
use http::{Request, Version};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::answer::Own;
use crate::watch::Watch;

/// Whether a request may reach a service.
#[inline]
pub(crate) fn check(
    request: &Request<Incoming>,
    max_body_size: usize,
    _watch: &Arc<Watch>,
) -> Result<(), Own> {
    if request.version() == Version::HTTP_11 {
        let mut hosts = request.headers().get_all(HOST).iter();
        match (hosts.next(), hosts.next()) {
            (Some(_), None) => {}
            (None, _) => return Err(Own::bad("a request of HTTP/1.1 needs a Host header\n")),
            (Some(_), Some(_)) => return Err(Own::bad("a request has one Host header, not several\n")),
        }
    }
    if request.body().size_hint().lower() > max_body_size as u64 {
        return Err(Own::TOO_LARGE);
    }
    Ok(())
}
