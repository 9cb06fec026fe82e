//! The other end of a connection, as users see it.

use std::net::SocketAddr;

/// The other end of a connection, in the extensions of a request if the server was asked to put it there
/// ([`peer_info`](crate::Serve::peer_info)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The address; a client of a Unix socket has none.
    pub address: Option<SocketAddr>,
    /// Whether the connection is encrypted.
    pub is_tls: bool,
}

impl Peer {
    pub(crate) fn new(address: Option<SocketAddr>, is_tls: bool) -> Peer {
        Peer { address, is_tls }
    }
}
