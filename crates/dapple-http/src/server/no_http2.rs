//! Without the feature `http2`: a client that begins with the preface of HTTP/2 is refused.

use super::tasks::{ConnectionTimer, refuse};
use crate::connection::client_stream::ClientStream;
use crate::connection::io::ConnectionIo;
use crate::connection::shared::TaskHandle;

/// In place of serving it.
pub(super) async fn serve<S, H>(io: ConnectionIo<S>, timer: ConnectionTimer, _handler: H, task: &TaskHandle)
where
    S: ClientStream,
{
    refuse(io, timer, task, "this server speaks HTTP/1.1, and not HTTP/2\n").await;
}
