//! A connection of HTTP/2: each stream is a task with a color of its own.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;

use hyper::rt::{Read, Write};
use hyper::server::conn::http2;

use super::tasks::{ConnectionTimer, Http, drive};
use crate::connection::client_stream::ClientStream;
use crate::connection::io::ConnectionIo;
use crate::connection::shared::{Connection, StreamTask, TaskHandle};
use crate::request::handling::RequestService;
use crate::request::service::Handler;

/// Serves a connection whose client speaks HTTP/2, until all of its streams have ended.
pub(super) async fn serve<S, H>(
    io: ConnectionIo<S>,
    mut timer: ConnectionTimer,
    handler: H,
    task: &TaskHandle,
) where
    S: ClientStream,
    H: Handler,
{
    let connection = task.connection();
    task.speaks_http2();
    let service = RequestService::http2(handler, connection);
    // It is large, and a task of HTTP/1 should not be.
    let mut http = Box::pin(builder(connection).serve_connection(io, service));
    drive(http.as_mut(), &mut timer, task).await;
    task.cut();
    // Its streams end now, all at once: those that run are cancelled, the others do not begin.
    drop(http);
    poll_fn(|cx| task.poll_streams(cx)).await;
}

/// How many bytes of a response h2 takes for a client whose windows are open and whose socket is full. With h2's own
/// bound of 400 KiB a client that reads none of 100 streams would hold 40 MiB.
const UNSENT: usize = 64 << 10;

/// How hyper serves HTTP/2.
fn builder(connection: &Arc<Connection>) -> http2::Builder<Streams> {
    let settings = &connection.server.settings;
    let mut http2 = http2::Builder::new(Streams(connection.clone()));
    http2
        .max_header_list_size(u32::try_from(settings.max_header_size).unwrap_or(u32::MAX))
        .max_send_buf_size(UNSENT)
        .max_concurrent_streams(settings.max_streams);
    http2
}

impl<I, H> Http for http2::Connection<I, RequestService<H>, Streams>
where
    I: Read + Write + Unpin + Send + 'static,
    H: Handler,
{
    const IS_HTTP2: bool = true;

    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Runs each stream of HTTP/2 in a task with a color of its own.
#[derive(Clone)]
struct Streams(Arc<Connection>);

impl<F> hyper::rt::Executor<F> for Streams
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let counted = StreamTask::new(&self.0);
        self.0.server.limit.spawn(async move {
            stream.await;
            drop(counted);
        });
    }
}
