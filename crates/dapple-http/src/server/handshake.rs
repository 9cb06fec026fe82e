//! The beginning of an encrypted connection: the TLS handshake, in which the protocol is agreed on.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, ready};

use futures_io::{AsyncRead, AsyncWrite};
use futures_rustls::TlsAcceptor;

use super::tasks::{ConnectionTimer, Protocol, begin, refuse};
use crate::connection::client_stream::ClientStream;
use crate::connection::encrypted::{Encrypted, Wire};
use crate::connection::io::ConnectionIo;
use crate::connection::shared::{Connection, StreamHandle, TaskHandle};
use crate::connection::tls::Tls;
use crate::registry::{ConnectionPermit, ShutdownStage};
use crate::request::service::Handler;

/// Serves an encrypted connection until it ends.
pub(super) async fn serve<S, H>(
    stream: S,
    tls: Tls,
    handler: H,
    connection: Arc<Connection>,
    permit: ConnectionPermit,
) where
    S: ClientStream + AsyncRead + AsyncWrite,
    H: Handler,
{
    let _listed = poll_fn(|cx| Poll::Ready(connection.server.enter(connection.clone(), cx.waker()))).await;
    let task = TaskHandle::new(connection);
    let mut timer = ConnectionTimer::default();
    let wire = Wire::new(stream, StreamHandle::new(task.connection()));
    let mut handshake = TlsAcceptor::from(tls.0).accept(wire).into_fallible();
    let shaken = poll_fn(|cx| {
        if task.server().stage() != ShutdownStage::Serving {
            return Poll::Ready(None);
        }
        if let Poll::Ready(shaken) = Pin::new(&mut handshake).poll(cx) {
            return Poll::Ready(Some(shaken.map_err(|(_, wire)| wire)));
        }
        ready!(timer.poll_late(&task, cx));
        task.server().counters.count_timeout();
        Poll::Ready(None)
    });
    let stream = match shaken.await {
        Some(Ok(stream)) => stream,
        Some(Err(wire)) if wire.is_plain() => {
            let io = ConnectionIo::new(wire.into_inner(), StreamHandle::new(task.connection()), permit);
            return refuse(io, timer, &task, "this port speaks HTTPS: use https:// in the address\n").await;
        }
        Some(Err(_)) | None => return,
    };
    let protocol = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Some(Protocol::Http2),
        Some(b"http/1.1") => Some(Protocol::Http1),
        _ => None,
    };
    let io = ConnectionIo::new(Encrypted::new(stream), StreamHandle::new(task.connection()), permit);
    begin(io, protocol, timer, handler, &task).await;
}
