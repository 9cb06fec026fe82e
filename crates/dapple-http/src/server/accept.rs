//! The task of a server: accepting, and the way out.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use dapple::time::sleep;

use super::{connection_task, handshake};
use crate::connection::shared::Connection;
use crate::peer::Peer;
use crate::registry::{Server, ShutdownStage};
use crate::request::service::Handler;
use crate::server::listen::Listener;
use crate::server::serve::{Serve, Served};

/// What an accepting server hears of.
enum AcceptEvent<S> {
    Accepted(S, Peer),
    Shutdown,
    Failed(io::Error),
}

pub(crate) async fn run<L: Listener, H: Handler>(serve: Serve<L, H>) -> io::Result<Served> {
    let Serve { mut listener, handler, settings, limit, counters, tls, mut shutdown } = serve;
    let deadline = settings.shutdown_deadline;
    let server = Arc::new(Server::new(settings, limit, counters));
    server.counters.set_server(&server);
    let leaving = Leaving(server.clone());
    listener.prepare();
    let failed = loop {
        match next(&mut listener, &server, &mut shutdown).await {
            AcceptEvent::Accepted(stream, peer) => {
                server.counters.count_accepted();
                let Some(seat) = server.seat(peer) else {
                    server.counters.count_turned_away();
                    continue;
                };
                let peer = Peer { is_tls: tls.is_some(), ..peer };
                let (handler, shared) = (handler.clone(), Connection::new(server.clone(), peer));
                match &tls {
                    None => server.limit.spawn(connection_task::serve(stream, handler, shared, seat)),
                    Some(tls) => {
                        server.limit.spawn(handshake::serve(stream, tls.clone(), handler, shared, seat));
                    }
                }
            }
            AcceptEvent::Shutdown => break None,
            AcceptEvent::Failed(error) => break Some(error),
        }
    };
    drop(listener);
    let cut = dapple::shield(drain(&server, deadline)).await;
    drop(leaving);
    match failed {
        Some(error) => Err(error),
        None => {
            let counts = server.counters.snapshot();
            Ok(Served { connections: counts.accepted, requests: counts.requests, cut })
        }
    }
}

/// When the task of a server ends, in whatever way, connections go on for what was begun, and no longer.
struct Leaving(Arc<Server>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.go_to(ShutdownStage::Draining);
    }
}

/// Waits for the next connection, if there is room for it, or for the end.
async fn next<L: Listener>(
    listener: &mut L,
    server: &Server,
    shutdown: &mut Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
) -> AcceptEvent<L::Stream> {
    let mut changed = pin!(None);
    poll_fn(|cx| {
        if let Some(shutdown) = shutdown
            && shutdown.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(AcceptEvent::Shutdown);
        }
        loop {
            if server.has_room() {
                let accepted = std::task::ready!(listener.poll_accept(cx));
                return match accepted {
                    Ok((stream, peer)) => Poll::Ready(AcceptEvent::Accepted(stream, peer)),
                    // Nothing is lost, and to try again waits for a moment.
                    Err(error) if is_passing(&error) => continue,
                    Err(error) if dapple::is_cancelled(&error) => Poll::Ready(AcceptEvent::Shutdown),
                    Err(error) => Poll::Ready(AcceptEvent::Failed(error)),
                };
            }
            if changed.is_none() {
                changed.set(Some(server.changed.notified()));
                continue; // look again, now that it will be told
            }
            let waited = std::task::ready!(changed.as_mut().as_pin_mut().expect("set above").poll(cx));
            changed.set(None);
            if waited.is_err() {
                return Poll::Ready(AcceptEvent::Shutdown);
            }
        }
    })
    .await
}

/// Whether file descriptors or memory have run out, for now.
fn is_passing(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM | Errno::CONNABORTED))
}

/// Lets what was begun finish, until the deadline. Returns how many connections were cut.
async fn drain(server: &Server, deadline: Duration) -> usize {
    server.go_to(ShutdownStage::Draining);
    let mut late = sleep(deadline);
    if is_empty_before(server, &mut late).await {
        return 0;
    }
    let cut = server.open();
    server.go_to(ShutdownStage::Cutting);
    // What runs on for those that were cut is given its grace, and what has become something else than HTTP is
    // not the server's any more.
    is_empty_before(server, &mut sleep(server.settings.cancel_grace + Duration::from_millis(100))).await;
    cut
}

/// Whether all connections have ended before that.
async fn is_empty_before(server: &Server, late: &mut dapple::time::Sleep) -> bool {
    loop {
        let changed = server.changed.notified();
        if server.is_empty() {
            return true;
        }
        let mut changed = pin!(changed);
        let is_late = poll_fn(|cx| {
            if changed.as_mut().poll(cx).is_ready() {
                return Poll::Ready(false);
            }
            Pin::new(&mut *late).poll(cx).map(|_| true)
        });
        if is_late.await {
            return server.is_empty();
        }
    }
}
