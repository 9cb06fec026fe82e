//! The rest of a request's body that its service does not read, on HTTP/2.
//!
//! A service may answer before the body has ended, and let the body go. h2 resets a stream with `NO_ERROR` as soon as its
//! response is complete and no part of it is held any more, and ignores the frames of the client from then on. Whether the
//! client learned of an error in its next frame was a race of that frame with the reset. So the body is held, and
//! discarded as it comes, until it ends or the client has had its time.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Buf;
use http_body::Body;

use super::phase::LINGER;
use super::shared::{Connection, StreamTask};

/// The most that is thrown away, in bytes: the window of a stream, which a client may have sent before the first answer
/// reaches it. For a client that sends more the reset is due: it says that the rest is not wanted.
const MOST: u64 = 1 << 20;

/// Reads a body to its end in a task of its own: [`MOST`] bytes of it, for [`LINGER`] at most.
pub(crate) fn discard<B>(mut body: B, connection: &Arc<Connection>)
where
    B: Body + Unpin + Send + 'static,
{
    let is_needless = body.is_end_stream() || body.size_hint().lower() > MOST || connection.is_over();
    // Where there is no task, there is no runtime any more.
    if is_needless || dapple::task::try_current().is_none() {
        return;
    }
    let counted = StreamTask::new(connection);
    connection.server.limit.spawn(async move {
        let mut late = pin!(dapple::time::sleep(LINGER));
        let mut left = MOST;
        poll_fn(|cx| match poll_end(&mut body, &mut left, cx) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => late.as_mut().poll(cx).map(drop),
        })
        .await;
        drop((body, counted));
    });
}

/// Ready if the body has ended or failed, or was longer than `left`.
fn poll_end<B: Body + Unpin>(body: &mut B, left: &mut u64, cx: &mut Context<'_>) -> Poll<()> {
    while let Some(Ok(frame)) = std::task::ready!(Pin::new(&mut *body).poll_frame(cx)) {
        let count = frame.data_ref().map_or(0, |data| data.remaining() as u64);
        match left.checked_sub(count) {
            Some(rest) => *left = rest,
            None => break,
        }
    }
    Poll::Ready(())
}
