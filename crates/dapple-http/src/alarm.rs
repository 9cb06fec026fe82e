//! The timer of a connection: one for all that a client can be slow at.
//!
//! It is entered for the deadline of the moment, and left where it is when the connection gets on: when it fires too
//! early, it is entered again. So a request costs a look at the clock, and no timer.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use dapple::time::{Instant, Sleep};

use crate::watch::{Phase, Watch};

/// The timer of a connection.
#[derive(Default)]
pub(crate) struct Alarm {
    sleep: Option<Sleep>,
    /// What it was at when it was last looked at, and since when.
    last: Option<(Phase, Instant)>,
}

impl Alarm {
    /// Ready with what takes too long.
    pub(crate) fn poll(&mut self, watch: &Watch, cx: &mut Context<'_>) -> Poll<Phase> {
        let (phase, limit) = watch.phase();
        if limit == Duration::MAX {
            self.last = Some((phase, Instant::now()));
            return Poll::Pending;
        }
        let (is_new, since) = match self.last {
            Some((last, since)) if last == phase => (false, since),
            _ => (true, Instant::now()),
        };
        self.last = Some((phase, since));
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
