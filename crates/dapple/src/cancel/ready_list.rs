//! The strands of a scope that are to be polled: where their wakers put them, until the scope is polled.
//!
//! ```text
//!   nothing in line ----- push: the first sees to it that the scope is polled -----> a list, newest first
//!          ^                                                                           |   ^  push
//!          |                       pull: taken, oldest first                           |   |
//!          +---------------------------------------------------------------------------+
//!   close: for ever
//! ```
//!
//! That nothing is in line is said in one of two ways, which tell the first how to see to it: see BY-TASK in
//! `reach`.
//!
//! # Invariants
//!
//! * **FIRST**: one step leads from "nothing in line" to a list, and one pusher takes it.
//! * **SEEN**: a push is a release and a pull an acquire, so that what is polled sees all that its waker did.
//! * **READY-IN-ORDER**: a pull takes all there is and turns it round.

use std::ptr::{NonNull, null_mut, without_provenance_mut};

use super::child_waker::{ChildPtr, ChildWaker};
use crate::prim::{AtomicPtr, Ordering};

/// See the head of this file.
pub(crate) struct ReadyList(AtomicPtr<ChildWaker>);

/// One reading of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadyWord(*mut ChildWaker);

impl ReadyWord {
    /// Nothing is in line, and the first wakes the task that polls the scope.
    const BY_TASK: ReadyWord = ReadyWord(null_mut());
    /// Nothing is in line, and the first wakes who polls the scope by the waker that it has left.
    const BY_WAKER: ReadyWord = ReadyWord(without_provenance_mut(1));
    const CLOSED: ReadyWord = ReadyWord(without_provenance_mut(2));

    pub(super) fn is_by_task(self) -> bool {
        self == ReadyWord::BY_TASK
    }

    pub(super) fn is_by_waker(self) -> bool {
        self == ReadyWord::BY_WAKER
    }

    pub(super) fn is_closed(self) -> bool {
        self == ReadyWord::CLOSED
    }

    #[inline]
    fn list(self) -> *mut ChildWaker {
        if self.0.addr() <= 2 { null_mut() } else { self.0 }
    }
}

/// Strands linked from the first to the last, whose link is null.
pub(crate) struct ReadyBatch {
    pub(crate) first: ChildPtr,
    pub(crate) last: ChildPtr,
}

impl ReadyList {
    pub(super) fn new() -> ReadyList {
        ReadyList(AtomicPtr::new(ReadyWord::BY_TASK.0))
    }

    #[inline]
    pub(super) fn look(&self) -> ReadyWord {
        ReadyWord(self.0.load(Ordering::Relaxed))
    }

    /// Puts a strand in line, if the word still is as it was `seen`; otherwise says how it is.
    ///
    /// # Safety
    ///
    /// It is alive until it has been pulled, its link is the caller's, and `seen` is not closed.
    #[inline]
    pub(super) unsafe fn push(&self, seen: ReadyWord, strand: ChildPtr) -> Result<(), ReadyWord> {
        // SAFETY: handed on from the caller.
        unsafe { strand.as_ref() }.set_link(seen.list());
        let pushed =
            self.0.compare_exchange_weak(seen.0, strand.as_ptr(), Ordering::AcqRel, Ordering::Relaxed);
        pushed.map(drop).map_err(ReadyWord) // FIRST, SEEN
    }

    /// Whether nothing is in line. For who polls the scope.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        ReadyWord(self.0.load(Ordering::Acquire)).list().is_null()
    }

    /// Takes all there is, as a list of oldest first. For who polls the scope.
    #[inline]
    pub(crate) fn pull(&self, by_waker: bool) -> Option<ReadyBatch> {
        if self.is_empty() {
            return None;
        }
        let idle = if by_waker { ReadyWord::BY_WAKER } else { ReadyWord::BY_TASK };
        in_order(ReadyWord(self.0.swap(idle.0, Ordering::AcqRel)).list()) // SEEN
    }

    /// Who is the first from now on wakes who polls the scope by its waker. For who polls the scope, who
    /// says so when it pulls, too.
    pub(super) fn go_by_waker(&self) {
        let (from, to) = (ReadyWord::BY_TASK.0, ReadyWord::BY_WAKER.0);
        // If there is something in line, it is pulled before long.
        let _ = self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Lets nobody in any more; takes what is there. For who ends the scope.
    pub(crate) fn close(&self) -> Option<ReadyBatch> {
        in_order(ReadyWord(self.0.swap(ReadyWord::CLOSED.0, Ordering::AcqRel)).list())
    }
}

/// Turns a list round. READY-IN-ORDER
#[inline]
fn in_order(newest: *mut ChildWaker) -> Option<ReadyBatch> {
    let last = NonNull::new(newest)?;
    let (mut first, mut rest) = (null_mut(), newest);
    while let Some(strand) = NonNull::new(rest) {
        // SAFETY: what is in line is alive, and its link ours since we took it out.
        let this = unsafe { strand.as_ref() };
        rest = this.next_link();
        this.set_link(first);
        first = strand.as_ptr();
    }
    Some(ReadyBatch { first: NonNull::new(first)?, last })
}
