//! Without the feature `tls`: no server has a certificate, and no connection is encrypted.

use std::sync::Arc;

use crate::connection::shared::Connection;
use crate::connection::tls::Tls;
use crate::registry::ConnectionPermit;

/// In place of `handshake::serve`, which cannot be called.
pub(super) async fn serve<S, H>(
    _stream: S,
    tls: Tls,
    _handler: H,
    _connection: Arc<Connection>,
    _permit: ConnectionPermit,
) {
    match tls {}
}
