//! Whether the code that this thread polls is cancelled: by a scope around it, or with its task.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::error::Cancelled;
use super::frame;
use super::points::{self, Begin, OBSERVES};
use super::scope::CancelScope;
use crate::context::{ThreadContext, with_context};
use crate::task::header::Header;
use crate::task::state::CANCELLED;

/// Whether the code that this thread polls is cancelled.
#[inline]
pub(crate) fn is_current_cancelled() -> bool {
    with_context(is_cancelled_in)
}

/// As [`is_current_cancelled`], for the thread of this context.
#[inline]
pub(crate) fn is_cancelled_in(context: &ThreadContext) -> bool {
    match context.has_frame() {
        false => is_task_cancelled(context),
        true => frame::is_cancelled(context),
    }
}

/// A wait begins: `Ready` if it is cancelled, `Pending` if a simulation holds it back, `None` if it goes on.
#[inline]
pub(crate) fn begin(begin: Begin, cx: &mut Context<'_>) -> Option<Poll<Cancelled>> {
    match OBSERVES {
        true => match with_context(may_be_cancelled) {
            true => points::begin(begin, cx),
            false => {
                points::note_shielded();
                None
            }
        },
        false => is_current_cancelled().then_some(Poll::Ready(Cancelled)),
    }
}

/// Whether a wait that begins goes on, in the common case. `false`: [`begin`] has to decide.
#[inline]
pub(crate) fn begins(context: &ThreadContext) -> bool {
    if !OBSERVES {
        return !is_cancelled_in(context);
    }
    let goes_on = !may_be_cancelled(context);
    if goes_on {
        points::note_shielded();
    }
    goes_on
}

/// Whether a scope that is about to be polled is in something that was cancelled.
#[inline]
pub(crate) fn is_cancelled_around(context: &ThreadContext, scope: &Arc<CancelScope>) -> bool {
    match OBSERVES {
        true => may_be_cancelled(context) && points::is_cancelled_around(scope),
        false => is_cancelled_in(context),
    }
}

/// As [`is_cancelled_in`], for a wait that begins; also true wherever waits are observed. SUSPECT in `points`
#[inline]
pub(crate) fn may_be_cancelled(context: &ThreadContext) -> bool {
    match context.has_frame() {
        false => is_task_cancelled(context),
        true => frame::may_be_cancelled(context),
    }
}

/// Whether the task that this thread polls was cancelled itself.
#[inline]
pub(super) fn is_task_cancelled(context: &ThreadContext) -> bool {
    // SAFETY: the current task is being polled, so it exists. EXISTS
    unsafe { context.current::<Header>().as_ref() }.is_some_and(|task| task.state.load().has(CANCELLED))
}
