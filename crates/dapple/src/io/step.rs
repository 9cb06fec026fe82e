//! One step of an operation: it yields now and then, and can be cancelled, whatever stream it uses.

use std::io;
use std::task::{Context, Poll, ready};

use crate::Cancelled;
use crate::cancel::wait::{self, Wait};

/// Does one step. The caller passes the same `wait` from the first poll of a step to its result.
///
/// Streams of this crate check for cancellation themselves. Other streams (memory, a library's stream) are always
/// ready, or do not know about cancellation: this function makes the check for them. A stream that returns
/// `Pending` has read or written nothing, so the step has not happened.
#[inline]
pub(super) fn step<T>(
    wait: &mut Wait,
    cx: &mut Context<'_>,
    poll: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<T>>,
) -> Poll<io::Result<T>> {
    ready!(wait.begin(cx))?;
    let budget = wait::budget();
    let polled = poll(cx);
    if polled.is_ready() {
        // A stream of this crate has counted the result against the budget already. It counts once.
        if wait::budget() == budget {
            wait.end()
        } else {
            wait.end_around()
        }
        return polled;
    }
    if wait.is_cancelled() {
        wait.end();
        return Poll::Ready(Err(Cancelled.into()));
    }
    wait.rest_around(cx);
    Poll::Pending
}

/// Whether the system call was interrupted, so that the operation should be tried again.
pub(super) fn is_interrupted<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::Interrupted)
}
