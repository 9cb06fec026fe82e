//! The body of a request, as a service gets it: bounded in size, and given up if it does not come.
//!
//! A body that is empty, as that of most requests is, watches nothing and allocates nothing.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use dapple::time::{Instant, Sleep};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;

use crate::connection::shared::{BodyHandle, RequestHandle};
use crate::error::{BoxError, Error};
use crate::reply::ServerReply;

/// So much of a body has to come within [`body_timeout`](crate::Serve::body_timeout), or its end.
const PROGRESS: u64 = 8 * 1024;

/// The body of a request.
///
/// It ends with an error if it is longer than [`max_body_size`](crate::Serve::max_body_size) (what axum's
/// extractors answer with 413), if it does not come for [`body_timeout`](crate::Serve::body_timeout), and if
/// the client goes away.
pub struct Body(Option<Box<Live>>);

/// A body of which something may come.
struct Live {
    incoming: Limited<Incoming>,
    handle: BodyHandle,
    /// How much has come, and when of that what is worth mentioning did.
    came: u64,
    noted: u64,
    since: Option<Instant>,
    sleep: Option<Sleep>,
    is_over: bool,
}

impl Body {
    pub(crate) fn new(incoming: Incoming, request: &RequestHandle) -> Body {
        if incoming.is_end_stream() {
            return Body(None);
        }
        let most = request.server().settings.max_body_size;
        Body(Some(Box::new(Live {
            incoming: Limited::new(incoming, most),
            handle: request.body(),
            came: 0,
            noted: 0,
            since: None,
            sleep: None,
            is_over: false,
        })))
    }
}

/// A body that a service lets go before its end is read on, with HTTP/2. With HTTP/1 the connection does that.
impl Drop for Body {
    fn drop(&mut self) {
        if let Some(live) = self.0.take()
            && !live.is_over
        {
            let Live { incoming, handle, .. } = *live;
            handle.let_go(incoming);
        }
    }
}

impl Live {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            ready!(self.poll_late(cx));
            self.is_over = true;
            self.handle.server().counters.count_timeout();
            self.handle.fail(ServerReply::LATE_BODY);
            return Poll::Ready(Some(
                Err(Error::late("the body of the request did not come in time").into()),
            ));
        };
        match &frame {
            Some(Ok(frame)) => self.came += frame.data_ref().map_or(0, |data| data.len() as u64),
            Some(Err(error)) => {
                self.is_over = true;
                if error.is::<LengthLimitError>() {
                    self.handle.fail(ServerReply::TOO_LARGE);
                }
            }
            None => self.is_over = true,
        }
        self.is_over |= self.incoming.is_end_stream();
        Poll::Ready(frame)
    }

    /// Ready if too little has come for too long.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.handle.server().settings.body_timeout;
        let now = Instant::now();
        if self.since.is_none() || self.came - self.noted >= PROGRESS {
            self.since = Some(now);
            self.noted = self.came;
        }
        let Some(due) = self.since.and_then(|since| since.checked_add(limit)) else { return Poll::Pending };
        if now >= due {
            return Poll::Ready(());
        }
        let sleep = self.sleep.get_or_insert_with(|| dapple::time::sleep_until(due));
        loop {
            match ready!(Pin::new(&mut *sleep).poll(cx)) {
                Ok(()) if Instant::now() >= due => return Poll::Ready(()),
                Ok(()) => sleep.reset(due),
                // The client's connection tells of it.
                Err(_cancelled) => return Poll::Pending,
            }
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.as_mut().map_or(Poll::Ready(None), |live| live.poll_frame(cx))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|live| live.is_over)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or(SizeHint::with_exact(0), |live| live.incoming.size_hint())
    }
}

impl Body {
    /// Reads it whole.
    ///
    /// # Errors
    ///
    /// If it is too long, does not come, or the client goes away.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: what had been read is gone. *Scope cancelled*: goes on until the body ends or
    /// its time is up; wrap it in [`dapple::or_cancelled`] to end at once.
    pub async fn bytes(self) -> Result<Bytes, BoxError> {
        Ok(self.collect().await?.to_bytes())
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body").field("is_empty", &self.0.is_none()).finish_non_exhaustive()
    }
}
