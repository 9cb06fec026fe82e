//! The steps that all waits share: how they begin, how they rest, and how they end.
//!
//! # Invariants
//!
//! * **EXACT**: a wait that is polled for the first time where it is cancelled (by a scope, a `timeout` or a `race`
//!   around it, or as a part of its task) returns `Cancelled` and has had no effect. A wait that is polled again takes
//!   its result if that is there, and only otherwise returns `Cancelled`: the result is returned, so nothing is
//!   lost. The exception is a loser of a `race`, whose result is dropped: there a wait that is polled again returns
//!   `Cancelled` without having tried, leaves its queue, and passes its wake-up on to another waiter. The loser keeps, and
//!   drops, data that it has taken already (the first half of a `read_exact`, a value that `suspend` was resumed with) and
//!   the result of an operation under way that cannot be recalled (a file operation).
//! * **BUDGET**: the budget bounds how long a *task* holds its worker, never which branch of the task is polled. A task
//!   that has got [`BUDGET`] results in one poll has spent its budget. Each wait that is new from then on is *put off*, once:
//!   it wakes its poller and returns `Pending`. A wait that was put off, or had begun before, goes ahead, budget or not,
//!   and may take one result. So a loop of waits that are always ready gives way, since it makes new waits, and holds
//!   its worker for the budget and one result more for each wait of its task that was pending. And any other branch
//!   of that task gets a result at the second poll that finds it ready, whatever spends the budget before it, under
//!   any combinator. (A wait inside of another one is put off by itself: the third poll. A future that is dropped and
//!   made anew in each poll is new each time.) Only results count: a wait that is dropped has none. Many bytes count
//!   as many results: to send a hundred pieces of a large file, encrypted perhaps, takes as long as a stall.
//!
//! With `--cfg dapple_no_cancel` nothing that waits is ever cancelled: `versus leaf` measures by that what
//! cancellation costs, and it is for nothing else.

use std::task::{Context, Poll};

use super::check;
use super::error::Cancelled;
use super::frame;
use super::item::{Item, Then};
use super::points::{self, Begin, OBSERVES};
use crate::context::{BUDGET, ThreadContext, with_context};
use crate::task::guarded::GuardedWaker;

/// Whether waits can be cancelled; see the head of this file.
const CANCELS: bool = !cfg!(dapple_no_cancel);

/// Bytes of a stream that count as one more result: a task may get two megabytes in one poll.
pub(crate) const PORTION: usize = 16 << 10;

/// Results that the current task may still get in this poll.
#[inline]
pub(crate) fn budget() -> i32 {
    with_context(ThreadContext::budget)
}

/// The stage of a wait.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum WaitStage {
    /// It was not polled, or has ended: the next poll begins a new wait.
    #[default]
    New,
    /// It was polled when the budget was spent, and has not been tried. BUDGET
    PutOff,
    /// It was tried, and has not ended.
    Begun,
}

/// The state of a wait: whether it has begun, and its registration for cancels.
#[derive(Default)]
pub(crate) struct Wait {
    stage: WaitStage,
    /// Not to be cancelled.
    shielded: bool,
    /// A simulation has held it back, so that it has not begun.
    #[cfg(debug_assertions)]
    is_held_back: bool,
    on_cancel: Item,
}

impl Wait {
    /// A wait that is not to be cancelled.
    pub(crate) fn shielded() -> Wait {
        Wait { shielded: true, ..Wait::default() }
    }

    /// Whether it was tried before.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.stage == WaitStage::Begun
    }

    /// One that has begun, by [`begin_at_once`].
    pub(crate) fn begun() -> Wait {
        Wait { stage: if CANCELS { WaitStage::Begun } else { WaitStage::New }, ..Wait::default() }
    }

    /// At the head of every poll: whether the operation may be tried now. EXACT, BUDGET
    ///
    /// All waits go through this function or [`begin_at_once`]. Its common path is a few instructions, and has to stay
    /// inlined: all else is in cold functions.
    #[inline(always)]
    pub(crate) fn begin(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cancelled>> {
        if with_context(ThreadContext::is_spent) && self.is_put_off(cx) {
            return Poll::Pending;
        }
        if CANCELS && self.stage != WaitStage::Begun {
            if !self.shielded
                && let Some(over) = check::begin(self.as_begin(), cx)
            {
                return self.begin_in_vain(over);
            }
            self.stage = WaitStage::Begun;
        } else if self.is_lost() {
            return self.lose();
        }
        Poll::Ready(Ok(()))
    }

    /// Whether a wait that has begun is in a race that another has won, so that it must not try any more. EXACT
    ///
    /// For waits that are polled again without [`begin`](Self::begin).
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        CANCELS && self.has_begun() && !self.shielded && with_context(frame::is_lost)
    }

    #[cold]
    #[inline(never)]
    fn lose(&mut self) -> Poll<Result<(), Cancelled>> {
        self.end_around();
        Poll::Ready(Err(Cancelled))
    }

    /// The budget is spent: whether the wait has to return `Pending`. BUDGET
    #[cold]
    #[inline(never)]
    fn is_put_off(&mut self, cx: &mut Context<'_>) -> bool {
        let is_new = self.stage == WaitStage::New;
        if is_new {
            self.stage = WaitStage::PutOff;
            with_context(ThreadContext::note_put_off);
            if CANCELS && !self.shielded {
                // The code around may be polled again before this wait is, and must not drop it. LEFT-ALONE in `grace`
                self.on_cancel.register(cx.waker(), Then::Answers);
            }
            cx.waker().wake_by_ref();
        }
        is_new
    }

    /// It was cancelled before it began, or a simulation holds it back.
    #[cold]
    #[inline(never)]
    fn begin_in_vain(&mut self, over: Poll<Cancelled>) -> Poll<Result<(), Cancelled>> {
        #[cfg(debug_assertions)]
        {
            self.is_held_back = over.is_pending();
        }
        if over.is_ready() {
            self.end_around();
            got_at_once(); // so that a loop that ignores it gives way
        }
        over.map(Err)
    }

    /// As `begin`, for an operation that is done in this poll, or goes on as another wait. If it is done,
    /// [`got_at_once`] counts it.
    pub(crate) fn begin_at_once(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cancelled>> {
        let begun = self.begin(cx);
        if begun.is_ready() {
            self.end_around();
        }
        begun
    }

    #[inline]
    fn as_begin(&self) -> Begin {
        #[cfg(debug_assertions)]
        return Begin::again(self, self.is_held_back);
        #[cfg(not(debug_assertions))]
        Begin::of(self)
    }

    /// After the operation was tried in vain: whether the wait is over all the same. EXACT
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        CANCELS && !self.shielded && check::is_current_cancelled()
    }

    /// As `rest`, if a wait inside of this one has noted what it waits for.
    pub(crate) fn rest_around(&mut self, cx: &mut Context<'_>) {
        if CANCELS && !self.shielded {
            self.on_cancel.register(cx.waker(), Then::Answers);
            if OBSERVES {
                points::note_rest(&"a stream that is not dapple's");
            }
        }
    }

    /// At the end of a poll that returns `Pending`. `what` completes "waits for".
    #[inline]
    pub(crate) fn rest(&mut self, cx: &mut Context<'_>, what: &'static &'static str) {
        if CANCELS && !self.shielded {
            self.on_cancel.wake_on_cancel(cx.waker(), Then::Answers, what);
        } else if CANCELS {
            self.rest_shielded(cx);
        }
    }

    /// As `rest`, of an operation that goes on after a cancel until its own end. LEFT-ALONE in `grace`
    #[inline]
    pub(crate) fn rest_to_its_end(&mut self, cx: &mut Context<'_>, what: &'static &'static str) {
        if CANCELS {
            self.on_cancel.wake_on_cancel(cx.waker(), Then::Stays, what);
        }
    }

    /// A wait that is not to be cancelled is not to be dropped either. LEFT-ALONE in `grace`
    #[cold]
    fn rest_shielded(&mut self, cx: &mut Context<'_>) {
        self.on_cancel.register(cx.waker(), Then::Stays);
        self.stays();
    }

    /// Before a rest of a wait that may be cancelled and does not end: it has to be polled again. LEFT-ALONE in `grace`
    #[cold]
    pub(crate) fn stays(&self) {
        if CANCELS && check::is_current_cancelled() {
            with_context(ThreadContext::note_stays);
        }
    }

    /// At the end of a poll that returns a result. The next poll begins a new wait.
    #[inline]
    pub(crate) fn end(&mut self) {
        with_context(ThreadContext::count_result); // BUDGET
        self.end_around();
    }

    /// As `end`, if a wait inside of this one has counted the result.
    #[inline]
    pub(crate) fn end_around(&mut self) {
        self.stage = WaitStage::New;
        if CANCELS {
            self.on_cancel.unregister();
        }
    }

    /// As `end`, if the wait was dropped: without a result. BUDGET
    #[inline]
    pub(crate) fn give_up(&mut self) {
        self.end_around();
    }
}

impl std::fmt::Debug for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wait").field("stage", &self.stage).finish_non_exhaustive()
    }
}

/// Whether an operation may be tried in this poll, if that is the common case: the budget is not spent, and nothing is
/// cancelled. `false`: [`begin_at_once`] says whether it may.
#[inline]
pub(crate) fn begins_at_once() -> bool {
    with_context(|context| context.budget() > 0 && (!CANCELS || check::begins(context)))
}

/// Whether an operation on `of` may be tried in this poll, as `Wait::begin` would say. An operation that can be done
/// at once needs no `Wait`. If it is done, [`got_at_once`] counts it. If it is put off, `put_off` makes `of` keep the
/// wait that it is from then on.
#[inline]
pub(crate) fn begin_at_once<T>(
    cx: &mut Context<'_>,
    of: &mut T,
    put_off: impl FnOnce(&mut T, Wait),
) -> Poll<Result<(), Cancelled>> {
    if with_context(ThreadContext::is_spent) {
        let mut wait = Wait::default();
        if wait.is_put_off(cx) {
            put_off(of, wait);
            return Poll::Pending;
        }
    }
    if CANCELS && let Some(over) = check::begin(Begin::of(of), cx) {
        return Wait::default().begin_in_vain(over);
    }
    Poll::Ready(Ok(()))
}

/// Whether the code that is polled here is in a race that another has won, so that it must not take anything. EXACT
pub(crate) fn is_lost() -> bool {
    CANCELS && with_context(frame::is_lost)
}

/// An operation was done at once. BUDGET
#[inline]
pub(crate) fn got_at_once() {
    with_context(ThreadContext::count_result);
}

/// A result, which is counted apart from this, had `count` bytes. BUDGET
#[inline]
pub(crate) fn note_bytes(count: usize) {
    if count >= PORTION {
        note_portions(count / PORTION);
    }
}

#[cold]
fn note_portions(count: usize) {
    let count = count.min(BUDGET as usize) as i32;
    with_context(|context| context.count_more(count));
}

/// Wakes a waiter, whatever its waker does. GUARDED-WAKER
#[inline]
pub(crate) fn wake(waker: GuardedWaker) {
    waker.wake();
}
