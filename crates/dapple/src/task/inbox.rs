//! A lane's inbox: the list that any thread pushes to, and the word that says whether the lane is idle, in line or owned.
//!
//! ```text
//!            push: the pusher must see to it that the lane is run
//!   IDLE ---------------------------------------------------> IN LINE, with a list, newest first
//!    ^                                                           |          ^ put back: more waits
//!    | release: the turn ends                   claim: the turn, |          |
//!    |                                        list oldest first  v          |
//!   OWNED <---------------------------------------------------- OWNED, with a list or without
//!                                                  pull: the list
//!   IDLE -- claim idle --> OWNED: the thread of a main color takes a last turn, to leave
//! ```
//!
//! A run queue contains *entries*: rights to try and claim the turn. There is one for a lane in line, and
//! there may be more: a lane that has become more urgent gets another entry, further ahead, and whichever is
//! taken up first has the turn. The other finds nothing to claim, and is dropped.
//!
//! A lane in which any task has ever had a priority is *ranked*, for ever. Its word has a bit for that: the thread that
//! makes the lane runnable learns from the same step which kind of queue its entry may go to.
//!
//! # Invariants
//!
//! * **ONE-TURN**: leaving IDLE is one step that only one pusher takes; from IN LINE to OWNED is one step that
//!   only one claimer takes, and only the owner of the turn leaves OWNED. So there is at most one turn.
//! * **HANDOVER**: `release` and `put_back` are releases, and `claim` is an acquire, so that the next turn sees
//!   all that the last one did; `push` is a release, and `claim` and `pull` are acquires, so that what is run sees
//!   all that its pusher did.
//! * **IN-ORDER**: `pull` takes all there is and turns it round; what is pushed later is pulled
//!   later.
//! * **ONE-PLAIN**: a lane has surplus entries only once it is ranked, and from then on entries are not linked
//!   through its header. So there is at most one that is.

use std::ptr::{NonNull, null_mut};

use crate::prim::{AtomicPtr, Ordering};

/// A node of an inbox. Its pointer to the next node belongs to the owner of the node. Aligned to 8.
pub(crate) trait InboxNode {
    fn next_link(&self) -> *mut Self;
    fn set_link(&self, next: *mut Self);
}

/// A thread has the turn.
const OWNED: usize = 1;
/// Something in the lane has had a priority.
const RANKED: usize = 2;
/// Without a list: in line all the same.
const IN_LINE: usize = 4;
const TAGS: usize = 7;

/// The word of an inbox: its tags, and its list.
pub(crate) struct Inbox<N>(AtomicPtr<N>);

/// The state that a push found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Pushed {
    /// The lane was idle: an entry for it is the pusher's, to be run or handed on.
    First { is_ranked: bool },
    /// The lane is in line.
    InLine,
    /// A thread has the turn.
    Running,
}

/// The tags of a word.
fn tags<N>(word: *mut N) -> usize {
    word.addr() & TAGS
}

/// The list of a word, or null.
fn list<N>(word: *mut N) -> *mut N {
    word.map_addr(|address| address & !TAGS)
}

fn with_tags<N>(list: *mut N, tags: usize) -> *mut N {
    list.map_addr(|address| address | tags)
}

impl<N: InboxNode> Inbox<N> {
    /// An idle one.
    pub(crate) fn new() -> Inbox<N> {
        Inbox(AtomicPtr::new(null_mut()))
    }

    /// One whose turn the caller has.
    pub(crate) fn new_owned() -> Inbox<N> {
        Inbox(AtomicPtr::new(with_tags(null_mut(), OWNED)))
    }

    /// Changes the word, unless `change` has nothing to change it to. Returns what it was.
    fn update(&self, order: Ordering, change: impl Fn(*mut N) -> Option<*mut N>) -> Result<*mut N, *mut N> {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let Some(next) = change(seen) else { return Err(seen) };
            match self.0.compare_exchange_weak(seen, next, order, Ordering::Relaxed) {
                Ok(_) => return Ok(seen),
                Err(now) => seen = now,
            }
        }
    }

    /// Puts `node` in.
    ///
    /// # Safety
    ///
    /// `node` is alive until it has been pulled, and its link is the caller's.
    pub(crate) unsafe fn push(&self, node: NonNull<N>) -> Pushed {
        let put = |seen: *mut N| {
            // SAFETY: the caller says that the node is alive and its link ours.
            unsafe { node.as_ref() }.set_link(list(seen));
            Some(with_tags(node.as_ptr(), tags(seen) & (OWNED | RANKED)))
        };
        let (Ok(seen) | Err(seen)) = self.update(Ordering::Release, put); // ONE-TURN, HANDOVER
        if list(seen).is_null() && tags(seen) & !RANKED == 0 {
            Pushed::First { is_ranked: tags(seen) & RANKED != 0 }
        } else if tags(seen) & OWNED != 0 {
            Pushed::Running
        } else {
            Pushed::InLine
        }
    }

    /// Makes it ranked, for ever. `true`: the lane is in line, where another entry may be of use.
    pub(crate) fn rank(&self) -> bool {
        let ranked = |seen: *mut N| (tags(seen) & RANKED == 0).then(|| with_tags(seen, RANKED));
        let (Ok(seen) | Err(seen)) = self.update(Ordering::AcqRel, ranked);
        tags(seen) & OWNED == 0 && (!list(seen).is_null() || tags(seen) & IN_LINE != 0)
    }

    /// Whether it is ranked. Exact for the one who has the turn, but for those who make it so just now.
    #[inline]
    pub(crate) fn is_ranked(&self) -> bool {
        tags(self.0.load(Ordering::Relaxed)) & RANKED != 0
    }

    /// Whether no thread has the turn and the list is empty; a hint.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        let word = self.0.load(Ordering::Relaxed);
        list(word).is_null() && tags(word) & !RANKED == 0
    }

    /// Whether there is nothing in it. For the one who has the turn.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        list(self.0.load(Ordering::Relaxed)).is_null()
    }

    /// Takes the turn, for one who has an entry, and all there is, and says whether it is ranked; `None` if the
    /// lane is not in line.
    #[inline]
    pub(crate) fn claim(&self) -> Option<(Option<NodeList<N>>, bool)> {
        let claimed = |seen: *mut N| {
            let is_in_line = !list(seen).is_null() || tags(seen) & IN_LINE != 0;
            (is_in_line && tags(seen) & OWNED == 0)
                .then(|| with_tags(null_mut(), OWNED | tags(seen) & RANKED)) // ONE-TURN
        };
        let seen = self.update(Ordering::Acquire, claimed).ok()?; // HANDOVER
        Some((Inbox::turned(list(seen)), tags(seen) & RANKED != 0))
    }

    /// Takes all there is, as a list of oldest first. For the one who has the turn.
    pub(crate) fn pull(&self) -> Option<NodeList<N>> {
        let emptied = |seen: *mut N| Some(with_tags(null_mut(), tags(seen)));
        let (Ok(seen) | Err(seen)) = self.update(Ordering::Acquire, emptied); // HANDOVER
        Inbox::turned(list(seen))
    }

    /// A list of newest first, the other way round.
    fn turned(newest: *mut N) -> Option<NodeList<N>> {
        let last = NonNull::new(newest)?;
        let (mut oldest, mut rest) = (null_mut(), newest);
        while let Some(node) = NonNull::new(rest) {
            // SAFETY: what is in the inbox is alive, and its link ours since we took it out.
            let node_ref = unsafe { node.as_ref() };
            rest = node_ref.next_link();
            node_ref.set_link(oldest); // IN-ORDER
            oldest = node.as_ptr();
        }
        Some(NodeList { first: NonNull::new(oldest)?, last })
    }

    /// Gives the turn back, unless something has come in. For the one who has the turn.
    pub(crate) fn release(&self) -> bool {
        let idle = |seen: *mut N| list(seen).is_null().then(|| with_tags(null_mut(), tags(seen) & RANKED));
        self.update(Ordering::Release, idle).is_ok() // HANDOVER
    }

    /// Gives the turn back although more waits: the lane is in line again, by an entry that is the caller's.
    /// Says whether it is ranked.
    pub(crate) fn put_back(&self) -> bool {
        let in_line = |seen: *mut N| {
            let empty = if list(seen).is_null() { IN_LINE } else { 0 };
            Some(with_tags(list(seen), tags(seen) & RANKED | empty))
        };
        let (Ok(seen) | Err(seen)) = self.update(Ordering::Release, in_line); // HANDOVER
        tags(seen) & RANKED != 0
    }

    /// Takes the turn, if the lane is idle.
    pub(crate) fn claim_idle(&self) -> bool {
        let owned = |seen: *mut N| {
            (list(seen).is_null() && tags(seen) & !RANKED == 0)
                .then(|| with_tags(null_mut(), OWNED | tags(seen)))
        };
        self.update(Ordering::Acquire, owned).is_ok() // ONE-TURN, HANDOVER
    }

    /// For the one who made the lane runnable by a push: sees all that the last turn did. (All that changes the word
    /// reads it in the same step, so whatever is read here goes back to the end of that turn.)
    pub(crate) fn see_last_turn(&self) {
        self.0.load(Ordering::Acquire); // HANDOVER
    }
}

/// Nodes linked from the first to the last, whose link is null.
pub(crate) struct NodeList<N> {
    pub(crate) first: NonNull<N>,
    pub(crate) last: NonNull<N>,
}
