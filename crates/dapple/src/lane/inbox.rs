//! A lane's inbox: where others put what is to run in it, and the word that says who has its turn.
//!
//! ```text
//!            push: the pusher must see to it that the lane is run
//!   IDLE ---------------------------------------------------------> a list, newest first
//!    ^                                                                |   ^  push
//!    | release: the turn ends                            pull: taken, |   |
//!    |                                                   oldest first v   |
//!   OWNED <---------------------------------------------------------- OWNED
//!
//!   IDLE -- close --> CLOSED: for ever
//! ```
//!
//! # Invariants
//!
//! * **ONE-TURN**: leaving IDLE is one step that only one pusher takes, and only the one who has
//!   the turn goes back to it. So there is at most one turn.
//! * **HANDOVER**: `release` is a release and `push` an acquire, so that the next turn sees all
//!   that the last one did; `push` is a release and `pull` an acquire, so that what is run sees all
//!   that its pusher did.
//! * **IN-ORDER**: `pull` takes all there is and turns it round; what is pushed later is pulled
//!   later.

use std::ptr::{NonNull, null_mut, without_provenance_mut};

use crate::prim::{AtomicPtr, Ordering};

/// What can be put into an inbox: it has room for a link, which belongs to whoever has the node.
pub(crate) trait Node {
    fn link(&self) -> *mut Self;
    fn set_link(&self, next: *mut Self);
}

/// See the head of this file.
pub(crate) struct Inbox<N>(AtomicPtr<N>);

/// What a push found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The lane was idle: its turn is the pusher's, to be run or handed on.
    First,
    /// Somebody has the turn, or has the lane in line.
    Behind,
    /// The lane is closed: the node is still the pusher's.
    Closed,
}

fn owned<N>() -> *mut N {
    without_provenance_mut(1)
}

fn closed<N>() -> *mut N {
    without_provenance_mut(2)
}

impl<N: Node> Inbox<N> {
    /// An idle one.
    pub(crate) fn new() -> Inbox<N> {
        Inbox(AtomicPtr::new(null_mut()))
    }

    /// One whose turn the caller has.
    pub(crate) fn new_owned() -> Inbox<N> {
        Inbox(AtomicPtr::new(owned()))
    }

    /// Puts `node` in.
    ///
    /// # Safety
    ///
    /// `node` is alive until it has been pulled (or, if closed, given back), and its link is the
    /// caller's.
    pub(crate) unsafe fn push(&self, node: NonNull<N>) -> Pushed {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            if seen == closed() {
                return Pushed::Closed;
            }
            let next = if seen == owned() { null_mut() } else { seen };
            // SAFETY: the caller says that the node is alive and its link ours.
            unsafe { node.as_ref() }.set_link(next);
            match self.0.compare_exchange_weak(seen, node.as_ptr(), Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if seen.is_null() => return Pushed::First, // ONE-TURN, HANDOVER
                Ok(_) => return Pushed::Behind,
                Err(now) => seen = now,
            }
        }
    }

    /// Whether there is nothing in it. For the one who has the turn.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == owned()
    }

    /// Takes all there is, as a list of oldest first. For the one who has the turn.
    pub(crate) fn pull(&self) -> Option<List<N>> {
        let newest = self.0.swap(owned(), Ordering::Acquire); // HANDOVER
        debug_assert!(newest != closed(), "a closed lane has no turn");
        if newest == owned() {
            return None;
        }
        let last = NonNull::new(newest)?;
        let (mut oldest, mut rest) = (null_mut(), newest);
        while let Some(node) = NonNull::new(rest) {
            // SAFETY: what is in the inbox is alive, and its link ours since we took it out.
            let node_ref = unsafe { node.as_ref() };
            rest = node_ref.link();
            node_ref.set_link(oldest); // IN-ORDER
            oldest = node.as_ptr();
        }
        Some(List { first: NonNull::new(oldest)?, last })
    }

    /// Gives the turn back, unless something has come in. For the one who has the turn.
    pub(crate) fn release(&self) -> bool {
        // HANDOVER
        self.0.compare_exchange(owned(), null_mut(), Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Closes it for good, if it is idle.
    pub(crate) fn close(&self) -> bool {
        // HANDOVER, from the last turn
        self.0.compare_exchange(null_mut(), closed(), Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// Nodes linked from the first to the last, whose link is null.
pub(crate) struct List<N> {
    pub(crate) first: NonNull<N>,
    pub(crate) last: NonNull<N>,
}
