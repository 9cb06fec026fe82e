//! The peer of a connection, as users see it.

use std::net::SocketAddr;

/// Client at the other end of a connection. [`Serve::peer_info`](crate::Serve::peer_info) puts it into the extensions
/// of each request.
///
/// # Examples
///
/// ```
/// use axum::{Extension, Router, routing::get};
/// use dapple_http::Peer;
///
/// async fn address(Extension(peer): Extension<Peer>) -> String {
///     peer.address.map_or_else(|| "a Unix socket".to_owned(), |address| address.to_string())
/// }
///
/// let router: Router = Router::new().route("/address", get(address));
/// // dapple_http::serve(listener, router).peer_info().await
/// # let _ = router;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// Address of the client, or of the proxy in front of the server. `None` for a Unix socket.
    pub address: Option<SocketAddr>,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
}

impl Peer {
    pub(crate) fn new(address: Option<SocketAddr>, is_tls: bool) -> Peer {
        Peer { address, is_tls }
    }
}
