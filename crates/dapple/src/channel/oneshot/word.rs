//! The word between the two halves of a oneshot: who has sent, who waits, and who frees.
//!
//! The word is a state or, while the receiver waits, a pointer that stands for its waker. Whoever
//! changes it away from a waker owns that waker from then on.
//!
//! ```text
//! EMPTY  <-> (waker)        the receiver waits, or has withdrawn
//! EMPTY, (waker)  -> SENT   the sender has sent, and is gone
//! EMPTY, (waker)  -> CLOSED the receiver takes nothing any more
//! not SENT, RECEIVER_GONE -> SENDER_GONE    the sender is gone without having sent
//! not SENT, SENDER_GONE -> RECEIVER_GONE    the receiver is gone first
//! ```
//!
//! # Invariants
//!
//! * **VALUE**: the place of the value belongs to the sender until the word is `SENT`, and to the
//!   receiver from then on. `SENT` is written with release and read with acquire.
//! * **LAST-FREES**: the sender's last step makes the word `SENT` or `SENDER_GONE`, the receiver's
//!   `RECEIVER_GONE`. Who finds that the other has made its last step frees the memory, and has
//!   acquired all that the other did; the other does not touch it any more.
//! * **WAKER**: a pointer in the word stands for one waker, which is owned by the word.

use std::ptr::without_provenance_mut;

use crate::prim::{AtomicPtr, Ordering};

/// Nothing has happened yet.
const EMPTY: usize = 0;
/// The value is there, and the sender is gone.
const SENT: usize = 1;
/// The sender is gone without having sent.
const SENDER_GONE: usize = 2;
/// The receiver takes nothing any more, and is still there.
const CLOSED: usize = 3;
/// The receiver is gone, the sender not.
const RECEIVER_GONE: usize = 4;
/// Above these is a waker.
const WAKER: usize = 5;

pub(crate) struct Word(AtomicPtr<()>);

/// A waker, as a pointer. WAKER
pub(crate) type RawWaker = *mut ();

/// What the word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Empty,
    Sent,
    SenderGone,
    Closed,
    ReceiverGone,
    Waits(RawWaker),
}

fn read(word: *mut ()) -> Said {
    match word.addr() {
        EMPTY => Said::Empty,
        SENT => Said::Sent,
        SENDER_GONE => Said::SenderGone,
        CLOSED => Said::Closed,
        RECEIVER_GONE => Said::ReceiverGone,
        WAKER.. => Said::Waits(word),
    }
}

fn state(state: usize) -> *mut () {
    without_provenance_mut(state)
}

impl Word {
    pub(crate) fn new() -> Word {
        Word(AtomicPtr::new(state(EMPTY)))
    }

    #[inline]
    pub(crate) fn load(&self) -> Said {
        read(self.0.load(Ordering::Acquire)) // VALUE, LAST-FREES
    }

    /// Goes from where it is to `next`, as long as `from` allows it. Says what was there.
    #[inline]
    fn change(&self, next: *mut (), from: impl Fn(Said) -> bool) -> Result<Said, Said> {
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            if !from(read(word)) {
                return Err(read(word));
            }
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Ok(read(word)),
                Err(now) => word = now,
            }
        }
    }

    /// The sender has put the value in its place, and is gone if this succeeds. Otherwise the
    /// receiver takes nothing any more, and the value is still the sender's.
    #[inline]
    pub(crate) fn send(&self) -> Result<Option<RawWaker>, ()> {
        match self.change(state(SENT), |said| matches!(said, Said::Empty | Said::Waits(_))) {
            Ok(Said::Waits(waker)) => Ok(Some(waker)),
            Ok(_) => Ok(None),
            Err(_) => Err(()),
        }
    }

    /// The sender goes without having sent. If the receiver was gone, the sender frees the memory.
    pub(crate) fn drop_sender(&self) -> Said {
        match self.change(state(SENDER_GONE), |said| said != Said::ReceiverGone) {
            Ok(was) | Err(was) => was,
        }
    }

    /// The receiver offers its waker. Otherwise something has happened, and the waker is still his.
    #[inline]
    pub(crate) fn wait(&self, waker: RawWaker) -> Result<(), Said> {
        debug_assert!(waker.addr() >= WAKER);
        self.change(waker, |said| said == Said::Empty).map(drop)
    }

    /// The receiver takes its waker back, if it is still there.
    pub(crate) fn withdraw(&self, waker: RawWaker) -> bool {
        self.0.compare_exchange(waker, state(EMPTY), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// The receiver takes nothing any more. Says what was there.
    pub(crate) fn close(&self) -> Said {
        match self.change(state(CLOSED), |said| matches!(said, Said::Empty | Said::Waits(_))) {
            Ok(was) | Err(was) => was,
        }
    }

    /// The receiver goes. If the sender was gone, the receiver frees the memory.
    pub(crate) fn drop_receiver(&self) -> Said {
        read(self.0.swap(state(RECEIVER_GONE), Ordering::AcqRel))
    }
}
