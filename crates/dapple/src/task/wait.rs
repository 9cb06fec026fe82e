//! What all waits have in common: how they begin, how they rest, and how they end.
//!
//! # Invariants
//!
//! * **EXACT**: a wait that is polled for the first time where it is cancelled (by a scope, a `timeout` or a `race`
//!   around it, or as a part of its task) returns `Cancelled` and has had no effect. A wait that is polled again takes
//!   what it waits for if that can be had, and only otherwise returns `Cancelled`: its result is returned, so nothing is
//!   lost. The exception is a loser of a `race`, whose result is dropped: there a wait that is polled again returns
//!   `Cancelled` without having tried, leaves its line, and passes on whatever it was woken for. What has been taken
//!   already (the first half of a `read_exact`, a value that `suspend` was resumed with), and what is under way and
//!   decides by itself (a file operation), is the loser's.
//! * **BUDGET**: a task that gets so many results in one poll is made to give way before it gets the
//!   next: whatever is always ready does not keep a worker from its other tasks. Only results
//!   count, so that a wait is not put off for the sake of others that are not ready. Many bytes count as many results:
//!   to send a hundred pieces of a large file, encrypted perhaps, takes as long as a stall.
//!
//! With `--cfg dapple_no_cancel` nothing that waits is ever cancelled: `versus leaf` measures by that what
//! cancellation costs, and it is for nothing else.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

use super::cancel::{self, Cancelled, Item};
use super::cancel_points::{self, Begin, OBSERVES};
use super::cell::discard;
use super::here::{Here, here};
use super::reach;

/// Whether waits can be cancelled; see the head of this file.
const CANCELS: bool = !cfg!(dapple_no_cancel);

/// How many results a task may get in one poll. BUDGET
pub(crate) const BUDGET: i32 = 128;

/// How many bytes of a stream count as a result more: two megabytes are all that a task may get in one poll.
pub(crate) const PORTION: usize = 16 << 10;

/// How many more results the current task may get in this poll.
#[inline]
pub(crate) fn budget() -> i32 {
    here(|here| here.budget.get())
}

/// What every wait keeps: whether it has begun, and how it learns that its task was cancelled.
#[derive(Default)]
pub(crate) struct Wait {
    begun: bool,
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

    /// Whether it was polled before.
    #[inline]
    pub(crate) fn has_begun(&self) -> bool {
        self.begun
    }

    /// One that has begun, by [`begin_at_once`].
    pub(crate) fn begun() -> Wait {
        Wait { begun: CANCELS, ..Wait::default() }
    }

    /// At the head of every poll: whether the operation may be tried now. EXACT
    ///
    /// This, and [`begin_at_once`], is where all waits go through.
    #[inline]
    pub(crate) fn begin(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cancelled>> {
        if here(Here::is_spent) {
            cx.waker().wake_by_ref(); // BUDGET
            return Poll::Pending;
        }
        if CANCELS && !self.begun {
            if !self.shielded
                && let Some(over) = cancel::begin(self.as_begin(), cx)
            {
                #[cfg(debug_assertions)]
                {
                    self.is_held_back = over.is_pending();
                }
                return over.map(Err);
            }
            self.begun = true;
        } else if self.is_lost() {
            self.end_around();
            return Poll::Ready(Err(Cancelled));
        }
        Poll::Ready(Ok(()))
    }

    /// Whether a wait that has begun is in a race that another has won, so that it must not try any more. EXACT
    ///
    /// For waits that are polled again without [`begin`](Self::begin).
    #[inline]
    pub(crate) fn is_lost(&self) -> bool {
        CANCELS && self.begun && !self.shielded && here(reach::is_lost)
    }

    #[inline]
    fn as_begin(&self) -> Begin {
        #[cfg(debug_assertions)]
        return Begin::again(self, self.is_held_back);
        #[cfg(not(debug_assertions))]
        Begin::of(self)
    }

    /// After what it waits for could not be had: whether the wait is over all the same. EXACT
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        CANCELS && !self.shielded && cancel::is_current_cancelled()
    }

    /// As `rest`, if what is waited for inside has said so itself.
    pub(crate) fn rest_around(&mut self, cx: &mut Context<'_>) {
        if CANCELS && !self.shielded {
            self.on_cancel.link_only(cx.waker());
            if OBSERVES {
                cancel_points::note_rest(&"a stream that is not dapple's");
            }
        }
    }

    /// At the end of a poll that returns `Pending`. `what` completes "waits for".
    #[inline]
    pub(crate) fn rest(&mut self, cx: &mut Context<'_>, what: &'static &'static str) {
        if CANCELS && !self.shielded {
            self.on_cancel.link(cx.waker(), what);
        }
    }

    /// At the end of a poll that returns a result. The next poll begins a new wait.
    #[inline]
    pub(crate) fn end(&mut self) {
        here(|here| here.budget.set(here.budget.get().wrapping_sub(1))); // BUDGET
        self.end_around();
    }

    /// As `end`, if what was waited for inside has been counted itself.
    #[inline]
    pub(crate) fn end_around(&mut self) {
        if CANCELS {
            self.begun = false;
            self.on_cancel.unlink();
        }
    }
}

impl std::fmt::Debug for Wait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wait").field("begun", &self.begun).finish_non_exhaustive()
    }
}

/// Whether the operation `of` may be tried in this poll, as `Wait::begin` would say. An operation that can be done
/// at once needs no `Wait`. If it is done, [`got_at_once`] counts it.
#[inline]
pub(crate) fn begin_at_once<T>(cx: &mut Context<'_>, of: &T) -> Poll<Result<(), Cancelled>> {
    if here(Here::is_spent) {
        cx.waker().wake_by_ref(); // BUDGET
        return Poll::Pending;
    }
    if CANCELS && let Some(over) = cancel::begin(Begin::of(of), cx) {
        return over.map(Err);
    }
    Poll::Ready(Ok(()))
}

/// Whether what is polled here is in a race that another has won, so that nothing must be taken any more. EXACT
pub(crate) fn is_lost() -> bool {
    CANCELS && here(reach::is_lost)
}

/// It could be had at once. BUDGET
#[inline]
pub(crate) fn got_at_once() {
    here(|here| here.budget.set(here.budget.get().wrapping_sub(1)));
}

/// A result that is counted by itself had so many bytes. BUDGET
#[inline]
pub(crate) fn note_bytes(count: usize) {
    if count >= PORTION {
        note_portions(count / PORTION);
    }
}

#[cold]
fn note_portions(count: usize) {
    let count = count.min(BUDGET as usize) as i32;
    // Not below zero by this: there it is counted how often a task was told to give way and did not.
    here(|here| here.budget.set((here.budget.get() - count).max(here.budget.get().min(0))));
}

/// Wakes somebody, whatever his waker does: it may be foreign code, and must not keep the others
/// from being woken, or the one who wakes from going on.
#[inline]
pub(crate) fn wake(waker: Waker) {
    discard(catch_unwind(AssertUnwindSafe(|| waker.wake())));
}
