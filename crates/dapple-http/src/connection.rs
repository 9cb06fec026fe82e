//! One connection: a task with a color of its own that drives hyper, keeps the time, and hears of the way out.
//!
//! There is one timer for all that a client can be slow at. It is entered for the deadline of the moment, and left
//! where it is when the connection gets on: when it fires too early, it is entered again.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dapple::time::{Instant, Sleep};
use hyper::rt::{Read, Write};

use crate::handling::Front;
use crate::hub::{Seat, Stage};
use crate::io::Io;
use crate::service::Handler;
use crate::watch::{Phase, Watch};

/// How a client that knows the other end's version 2 begins.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves a connection until it ends, by itself or because it took too long or was cut.
pub(crate) async fn serve<S, H>(stream: S, handler: H, watch: Arc<Watch>, seat: Seat)
where
    S: Read + Write + Unpin + Send + 'static,
    H: Handler,
{
    let _listed = poll_fn(|cx| Poll::Ready(watch.hub.enter(&watch, cx.waker().clone()))).await;
    let mut io = Io::new(stream, watch.clone(), seat);
    let mut alarm = Alarm::default();
    if poll_fn(|cx| poll_begin(&mut io, &mut alarm, &watch, cx)).await.is_err() {
        return;
    }
    let front = Front { handler, watch: watch.clone() };
    let mut connection = pin!(watch.hub.http1.serve_connection(io, front).with_upgrades());
    let mut is_told = false;
    poll_fn(|cx| {
        match watch.hub.stage() {
            Stage::Serving => {}
            Stage::Draining if is_told => {}
            Stage::Draining => {
                is_told = true;
                connection.as_mut().graceful_shutdown();
            }
            Stage::Cutting => return Poll::Ready(()),
        }
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        match ready!(alarm.poll(&watch, cx)) {
            Phase::Head(_) if watch.requests() > 0 || !watch.is_idle() => {
                watch.hub.counters.count_timeout();
                // hyper reads again, and is told that it is too late.
                watch.note_late_head();
                connection.as_mut().poll(cx).map(drop)
            }
            Phase::Blocked(_) => {
                watch.hub.counters.count_timeout();
                Poll::Ready(())
            }
            Phase::Head(_) | Phase::Idle(_) | Phase::Busy | Phase::Closing => Poll::Ready(()),
        }
    })
    .await;
}

/// Waits for the first bytes of a client, so that it is known what it speaks.
fn poll_begin<S>(
    io: &mut Io<S>,
    alarm: &mut Alarm,
    watch: &Watch,
    cx: &mut Context<'_>,
) -> Poll<io::Result<()>>
where
    S: Read + Write + Unpin,
{
    if watch.hub.stage() != Stage::Serving && io.first().is_empty() {
        return Poll::Ready(Err(io::ErrorKind::Interrupted.into()));
    }
    loop {
        // As many as are needed to tell.
        let first = io.first();
        let is_open = !first.is_empty() && first.len() < PREFACE.len() && PREFACE.starts_with(first);
        let least = if is_open { PREFACE.len() } else { 1 };
        match io.poll_first(cx, least) {
            Poll::Ready(Ok([])) => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            Poll::Ready(Ok(first)) if first.len() >= least && least > 1 || !PREFACE.starts_with(first) => {
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(Ok(_)) if least > 1 => return Poll::Ready(Ok(())), // it has ended in the middle
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
            Poll::Pending => {
                ready!(alarm.poll(watch, cx));
                watch.hub.counters.count_timeout();
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
    }
}

/// The timer of a connection.
#[derive(Default)]
struct Alarm {
    sleep: Option<Sleep>,
    /// What it was at when it was last looked at, and since when.
    now: Option<(Phase, Instant)>,
}

impl Alarm {
    /// Ready with what takes too long.
    fn poll(&mut self, watch: &Watch, cx: &mut Context<'_>) -> Poll<Phase> {
        let (phase, limit) = watch.phase();
        if limit == Duration::MAX {
            self.now = Some((phase, Instant::now()));
            return Poll::Pending;
        }
        let (is_new, since) = match self.now {
            Some((last, since)) if last == phase => (false, since),
            _ => (true, Instant::now()),
        };
        self.now = Some((phase, since));
        let Some(due) = since.checked_add(limit) else { return Poll::Pending };
        let sleep = match &mut self.sleep {
            // It fires before that, and then this is looked at again. Its waker is this task's, now and then.
            Some(sleep) if is_new && since < sleep.deadline() && sleep.deadline() <= due => {
                return Poll::Pending;
            }
            Some(sleep) => {
                if is_new {
                    sleep.reset(due);
                }
                sleep
            }
            sleep @ None => sleep.insert(dapple::time::sleep_until(due)),
        };
        loop {
            match ready!(Pin::new(&mut *sleep).poll(cx)) {
                Ok(()) if Instant::now() >= due => return Poll::Ready(phase),
                Ok(()) => sleep.reset(due),
                // What is cancelled is the task, and then the stream tells of it.
                Err(_cancelled) => return Poll::Pending,
            }
        }
    }
}
