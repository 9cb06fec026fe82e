//! The ready list of a scope: wakers push children to it, and the poller of the scope takes them out.
//!
//! ```text
//!   empty ----- push: the first pusher wakes the poller of the scope -----> a list, newest first
//!     ^                                                                       |   ^  push
//!     |                  pull: taken, oldest first                            |   |
//!     +-----------------------------------------------------------------------+
//!   close: for ever
//! ```
//!
//! There are two words for the empty list. They tell the first pusher how to wake the poller: see BY-TASK in `scope`.
//!
//! # Invariants
//!
//! * **FIRST**: one step leads from the empty list to another, and one pusher takes it.
//! * **SEEN**: a push is a release and a pull an acquire, so that a child that is polled sees all writes before its wake-up.
//! * **READY-IN-ORDER**: a pull takes the whole list and reverses it, so children are polled in the order of their wake-ups.

use std::ptr::{NonNull, null_mut, without_provenance_mut};

use super::child_waker::{ChildPtr, ChildWaker};
use crate::prim::{AtomicPtr, Ordering};

/// The children of a scope that are to be polled.
pub(crate) struct ReadyList(AtomicPtr<ChildWaker>);

/// One reading of the word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadyWord(*mut ChildWaker);

impl ReadyWord {
    /// The list is empty, and the first pusher wakes the task that polls the scope.
    const BY_TASK: ReadyWord = ReadyWord(null_mut());
    /// The list is empty, and the first pusher wakes the poller of the scope by its stored waker.
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

/// Children in a list from the first to the last, whose next is null.
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

    /// Pushes a child if the word is still `seen`. Otherwise returns the word.
    ///
    /// # Safety
    ///
    /// The child exists until it has been pulled, its `next` is the caller's, and `seen` is not closed.
    #[inline]
    pub(super) unsafe fn push(&self, seen: ReadyWord, child: ChildPtr) -> Result<(), ReadyWord> {
        // SAFETY: handed on from the caller.
        unsafe { child.as_ref() }.set_next_child(seen.list());
        let pushed =
            self.0.compare_exchange_weak(seen.0, child.as_ptr(), Ordering::AcqRel, Ordering::Relaxed);
        pushed.map(drop).map_err(ReadyWord) // FIRST, SEEN
    }

    /// Whether the list is empty. For the poller of the scope.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        ReadyWord(self.0.load(Ordering::Acquire)).list().is_null()
    }

    /// Takes the whole list, oldest first. For the poller of the scope.
    #[inline]
    pub(crate) fn pull(&self, by_waker: bool) -> Option<ReadyBatch> {
        if self.is_empty() {
            return None;
        }
        let idle = if by_waker { ReadyWord::BY_WAKER } else { ReadyWord::BY_TASK };
        in_order(ReadyWord(self.0.swap(idle.0, Ordering::AcqRel)).list()) // SEEN
    }

    /// From now on, the first pusher wakes the poller of the scope by its stored waker. For the poller, which passes
    /// `by_waker` to `pull` from then on.
    pub(super) fn go_by_waker(&self) {
        let (from, to) = (ReadyWord::BY_TASK.0, ReadyWord::BY_WAKER.0);
        // A list that is not empty is pulled before long.
        let _ = self.0.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Takes the whole list, and refuses all pushes from now on. For the end of the scope.
    pub(crate) fn close(&self) -> Option<ReadyBatch> {
        in_order(ReadyWord(self.0.swap(ReadyWord::CLOSED.0, Ordering::AcqRel)).list())
    }
}

/// Reverses a list. READY-IN-ORDER
#[inline]
fn in_order(newest: *mut ChildWaker) -> Option<ReadyBatch> {
    let last = NonNull::new(newest)?;
    let (mut first, mut rest) = (null_mut(), newest);
    while let Some(child) = NonNull::new(rest) {
        // SAFETY: a child in the list exists, and its `next` is ours since we took the list.
        let this = unsafe { child.as_ref() };
        rest = this.next_child();
        this.set_next_child(first);
        first = child.as_ptr();
    }
    Some(ReadyBatch { first: NonNull::new(first)?, last })
}
