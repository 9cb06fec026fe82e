//! One step of an operation: it gives way, and can be cancelled, whatever it reads or writes.

use std::io;
use std::task::{Context, Poll, ready};

use crate::Cancelled;
use crate::cancel::wait::{self, Wait};

/// Does one step. `wait` is the same from the first poll of a step to its result.
///
/// What is ours looks after itself. What is not (memory, a library's stream) is always ready, or
/// knows nothing of cancelling: for it this is a wait like any other. A stream that says `Pending`
/// has read or written nothing, so the step has not happened.
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
        // What is ours has counted the result, and it counts once.
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

/// Whether an operation should be tried again: the system was interrupted.
pub(super) fn is_interrupted<T>(result: &io::Result<T>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::Interrupted)
}
