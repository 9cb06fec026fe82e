//! The timer of a connection: one for all that a client can be slow at.
//!
//! It is entered for the deadline of the moment, and left where it is when the connection gets on: when it fires too
//! early, it is entered again. So a request costs a look at the clock, and no timer.
//!
//! # Invariants
//!
//! * **ENTERED**: a timer that is left where it is was polled when the task's budget was not spent: one that is polled
//!   when it is does not enter itself, but wakes the task. So after it was set it is polled once more, first of all
//!   that the task does.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dapple::time::{Instant, Sleep};

use super::phase::Timed;
use super::shared::TaskHandle;

/// The timer of a connection.
#[derive(Default)]
pub(crate) struct ConnectionTimer {
    sleep: Option<Sleep>,
    /// ENTERED
    is_entered: bool,
    /// What it was at when it was last looked at, and since when.
    last: Option<(Timed, Instant)>,
}

impl ConnectionTimer {
    /// At the beginning of each poll of the task. ENTERED
    #[inline]
    pub(crate) fn enter(&mut self, cx: &mut Context<'_>) {
        if !self.is_entered
            && let Some(sleep) = &mut self.sleep
        {
            // If it has fired, that is seen when it is next looked at.
            let _ = Pin::new(sleep).poll(cx);
            self.is_entered = true;
        }
    }

    /// Ready with what takes too long.
    pub(crate) fn poll(&mut self, task: &TaskHandle, cx: &mut Context<'_>) -> Poll<Timed> {
        let Some((timed, limit)) = task.timed().filter(|(_, limit)| *limit != Duration::MAX) else {
            self.last = None;
            return Poll::Pending;
        };
        let (is_new, since) = match self.last {
            Some((last, since)) if last == timed => (false, since),
            _ => (true, Instant::now()),
        };
        self.last = Some((timed, since));
        if limit.is_zero() {
            return Poll::Ready(timed);
        }
        let Some(due) = since.checked_add(limit) else { return Poll::Pending };
        let sleep = match &mut self.sleep {
            // It fires before that, and then this is looked at again. Its waker is this task's, now and then. ENTERED
            Some(sleep) if is_new && since < sleep.deadline() && sleep.deadline() <= due => {
                return Poll::Pending;
            }
            Some(sleep) => {
                if is_new {
                    sleep.reset(due);
                    self.is_entered = false;
                }
                sleep
            }
            sleep @ None => sleep.insert(dapple::time::sleep_until(due)),
        };
        loop {
            match ready!(Pin::new(&mut *sleep).poll(cx)) {
                Ok(()) if Instant::now() >= due => return Poll::Ready(timed),
                Ok(()) => {
                    sleep.reset(due);
                    self.is_entered = false;
                }
                // What is cancelled is the task, and then the stream tells of it.
                Err(_cancelled) => return Poll::Pending,
            }
        }
    }
}
