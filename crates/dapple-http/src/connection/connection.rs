//! One connection: a task with a color of its own that drives hyper, keeps the time, and hears of the way out.
//!
//! First it finds out what the client speaks: by what was agreed on in the TLS handshake, or by the first bytes,
//! which hyper is given again. Then hyper has it. With HTTP/1 all requests are polled in this very task; with HTTP/2
//! each is a task of hyper's, in the same color.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dapple::Color;
use futures_io::{AsyncRead, AsyncWrite};
use futures_rustls::TlsAcceptor;
use http::StatusCode;
use hyper::rt::{Read, Write};
use hyper::server::conn::{http1, http2};

use crate::connection::encrypted::{Encrypted, Wire};
use crate::connection::io::{InHand, Io};
use crate::connection::phase::{Phase, Watch};
use crate::connection::timer::Alarm;
use crate::connection::tls::Tls;
use crate::request::handling::Front;
use crate::request::service::Handler;
use crate::server::{Seat, Stage};

/// How a client begins that knows that the server speaks HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What a client speaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// Serves a connection until it ends, by itself or because it took too long or was cut.
pub(crate) async fn serve<S, H>(stream: S, handler: H, watch: Arc<Watch>, seat: Seat)
where
    S: Read + Write + Unpin + Send + 'static,
    H: Handler,
{
    let _listed = poll_fn(|cx| Poll::Ready(watch.hub.enter(&watch, cx.waker()))).await;
    let io = Io::new(stream, watch.clone(), seat);
    begin(io, None, Alarm::default(), handler, &watch).await;
}

/// The same, encrypted.
pub(crate) async fn serve_tls<S, H>(stream: S, tls: Tls, handler: H, watch: Arc<Watch>, seat: Seat)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Handler,
{
    let _listed = poll_fn(|cx| Poll::Ready(watch.hub.enter(&watch, cx.waker()))).await;
    let mut alarm = Alarm::default();
    let mut handshake = pin!(TlsAcceptor::from(tls.0).accept(Wire::new(stream, watch.clone())));
    let shaken = poll_fn(|cx| {
        if watch.hub.stage() != Stage::Serving {
            return Poll::Ready(None);
        }
        if let Poll::Ready(shaken) = handshake.as_mut().poll(cx) {
            return Poll::Ready(shaken.ok());
        }
        ready!(alarm.poll(&watch, cx));
        watch.hub.counters.count_timeout();
        Poll::Ready(None)
    });
    let Some(stream) = shaken.await else { return };
    let protocol = match stream.get_ref().1.alpn_protocol() {
        Some(b"h2") => Some(Protocol::Http2),
        Some(b"http/1.1") => Some(Protocol::Http1),
        _ => None,
    };
    let io = Io::new(Encrypted::new(stream), watch.clone(), seat);
    begin(io, protocol, alarm, handler, &watch).await;
}

/// Finds out what the client speaks, and goes on with that.
async fn begin<S, H>(
    mut io: Io<S>,
    protocol: Option<Protocol>,
    mut alarm: Alarm,
    handler: H,
    watch: &Arc<Watch>,
) where
    S: Read + Write + Unpin + Send + 'static,
    H: Handler,
{
    let protocol = match protocol {
        Some(protocol) => protocol,
        None => match poll_fn(|cx| poll_protocol(&mut io, &mut alarm, watch, cx)).await {
            Ok(protocol) => protocol,
            Err(_nothing_came) => return,
        },
    };
    let front = Front { handler, watch: watch.clone() };
    match protocol {
        Protocol::Http1 => {
            let io = InHand::new(io);
            let http = pin!(watch.hub.http1.serve_connection(io.clone(), front).with_upgrades());
            drive(http, &mut alarm, watch, |cx| io.poll_gone(cx)).await;
        }
        Protocol::Http2 => {
            watch.set_http2();
            watch.hub.gate.watch_color();
            // It is large, and a task of HTTP/1 should not be.
            let mut http = Box::pin(watch.hub.http2.serve_connection(io, front));
            drive(http.as_mut(), &mut alarm, watch, |_| Poll::Pending).await;
            // Its requests are tasks of this color, and hear of that now: they are in line before this one, and count
            // as what runs on before the connection counts as closed.
            drop(http);
            dapple::task::yield_now().await;
        }
    }
    watch.set_ended();
}

/// Waits for the first bytes of a client, as many as are needed to tell.
fn poll_protocol<S>(
    io: &mut Io<S>,
    alarm: &mut Alarm,
    watch: &Watch,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Protocol>>
where
    S: Read + Write + Unpin,
{
    if watch.hub.stage() != Stage::Serving && io.first().is_empty() {
        return Poll::Ready(Err(io::ErrorKind::Interrupted.into()));
    }
    loop {
        let first = io.first();
        if first.starts_with(PREFACE) {
            return Poll::Ready(Ok(Protocol::Http2));
        }
        if !PREFACE.starts_with(first) || io.is_ended() && !first.is_empty() {
            return Poll::Ready(Ok(Protocol::Http1));
        }
        match io.poll_more(cx) {
            Poll::Ready(Ok(())) if io.is_ended() && io.first().is_empty() => {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {
                ready!(alarm.poll(watch, cx));
                watch.hub.counters.count_timeout();
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
    }
}

/// A connection of hyper's.
trait Http: Future<Output = hyper::Result<()>> {
    /// Finishes what was begun, and ends.
    fn finish(self: Pin<&mut Self>);
}

impl<I, H> Http for http1::UpgradeableConnection<I, Front<H>>
where
    I: Read + Write + Unpin + Send + 'static,
    H: Handler,
{
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

impl<I, H> Http for http2::Connection<I, Front<H>, InColor>
where
    I: Read + Write + Unpin + Send + 'static,
    H: Handler,
{
    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Drives a connection to its end; `poll_gone` says that the client is gone, if hyper does not look.
async fn drive<C: Http>(
    mut http: Pin<&mut C>,
    alarm: &mut Alarm,
    watch: &Watch,
    mut poll_gone: impl FnMut(&mut Context<'_>) -> Poll<()>,
) {
    let mut is_told = false;
    poll_fn(|cx| {
        alarm.enter(cx);
        match watch.hub.stage() {
            Stage::Serving => {}
            Stage::Draining if is_told => {}
            Stage::Draining => {
                is_told = true;
                http.as_mut().finish();
            }
            Stage::Cutting => return Poll::Ready(()),
        }
        loop {
            if let Poll::Ready(result) = http.as_mut().poll(cx) {
                if let Err(error) = result {
                    tell_unread(&error, watch);
                }
                return Poll::Ready(());
            }
            if poll_gone(cx).is_ready() {
                return Poll::Ready(());
            }
            match ready!(alarm.poll(watch, cx)) {
                Phase::Head(_) if !watch.is_http2() && !watch.is_idle() => {
                    watch.hub.counters.count_timeout();
                    watch.tell_unread(StatusCode::REQUEST_TIMEOUT, watch.hub.settings.header_timeout);
                    // hyper reads again, and hears that it is too late.
                    watch.note_late_head();
                }
                Phase::Body(_) => {
                    watch.hub.counters.count_timeout();
                    // The same.
                    watch.note_late_body();
                }
                Phase::Head(_) | Phase::Blocked(_) => {
                    watch.hub.counters.count_timeout();
                    return Poll::Ready(());
                }
                // The client is told, and has a moment to hear of it.
                Phase::Idle(_) if watch.is_http2() && !is_told => {
                    is_told = true;
                    watch.note_closing();
                    http.as_mut().finish();
                }
                // hyper closes, and says why.
                Phase::Closing if watch.set_closed() => {}
                Phase::Idle(_) | Phase::Busy | Phase::Closing => return Poll::Ready(()),
            }
        }
    })
    .await;
}

/// Tells of what hyper has answered by itself.
fn tell_unread(error: &hyper::Error, watch: &Watch) {
    if !error.is_parse() || watch.is_http2() {
        return;
    }
    watch.hub.counters.count_bad();
    let status = match error.is_parse_too_large() {
        // Which of the two it was, hyper says in words only.
        true if error.to_string().contains("URI") => StatusCode::URI_TOO_LONG,
        true => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        false => StatusCode::BAD_REQUEST,
    };
    watch.tell_unread(status, Duration::ZERO);
}

/// Runs hyper's tasks in the color of the connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InColor;

impl<F> hyper::rt::Executor<F> for InColor
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        Color::current().spawn(future).detach();
    }
}
