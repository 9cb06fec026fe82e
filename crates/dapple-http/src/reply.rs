//! Replies of the server itself: refusals, timeouts and panics of handlers.

use http::StatusCode;

/// A reply that the server gives itself, without its service or in its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerReply {
    pub(crate) status: StatusCode,
    pub(crate) text: &'static str,
    /// The connection is closed after the reply, because the start of the next request cannot be found with
    /// confidence.
    pub(crate) closes: bool,
    /// Seconds after which a retry may succeed.
    pub(crate) retry_after: Option<u64>,
}

impl ServerReply {
    pub(crate) const fn new(status: StatusCode, text: &'static str) -> ServerReply {
        ServerReply { status, text, closes: false, retry_after: None }
    }

    const fn closing(status: StatusCode, text: &'static str) -> ServerReply {
        ServerReply { closes: true, ..ServerReply::new(status, text) }
    }

    pub(crate) const fn bad(text: &'static str) -> ServerReply {
        ServerReply::closing(StatusCode::BAD_REQUEST, text)
    }

    pub(crate) fn overloaded(retry_after: u64) -> ServerReply {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        ServerReply {
            retry_after: Some(retry_after),
            ..ServerReply::new(status, "too busy, try again later\n")
        }
    }

    pub(crate) const NOT_CHUNKED: ServerReply = ServerReply::closing(
        StatusCode::NOT_IMPLEMENTED,
        "the only supported transfer coding is chunked, applied once\n",
    );
    pub(crate) const TOO_LARGE: ServerReply =
        ServerReply::closing(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large\n");
    pub(crate) const TOOK_TOO_LONG: ServerReply =
        ServerReply::new(StatusCode::SERVICE_UNAVAILABLE, "the request took too long\n");
    pub(crate) const LATE_BODY: ServerReply =
        ServerReply::closing(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n");
    pub(crate) const PANICKED: ServerReply =
        ServerReply::new(StatusCode::INTERNAL_SERVER_ERROR, "internal server error\n");
}
