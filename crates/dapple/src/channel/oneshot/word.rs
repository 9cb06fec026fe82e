//! State word of a oneshot channel: whether the value was sent, whether the receiver waits, and which half
//! frees the memory.
//!
//! The word is a state or, while the receiver waits, a pointer that stands for its waker. The half that
//! replaces a waker in the word owns that waker from then on.
//!
//! ```text
//! EMPTY  <-> (waker)          the receiver waits, or has withdrawn its waker
//! EMPTY, (waker)  -> SENT     the sender has sent, and is gone
//! EMPTY, (waker)  -> CLOSED   the receiver accepts no value any more
//! EMPTY, (waker), CLOSED -> SENDER_GONE    the sender is dropped without having sent
//! any state -> RECEIVER_GONE  the receiver is dropped; after SENT or SENDER_GONE, it frees the memory
//! ```
//!
//! # Invariants
//!
//! * **VALUE**: the place of the value belongs to the sender until the word is `SENT`, and to the receiver
//!   from then on. `SENT` is written with release and read with acquire.
//! * **LAST-FREES**: the sender's last operation makes the word `SENT` or `SENDER_GONE`, the receiver's makes
//!   it `RECEIVER_GONE`. The half that finds that the other one has made its last operation frees the memory:
//!   it has acquired all that the other one did, and the other one does not touch the memory any more.
//! * **WAKER**: a pointer in the word stands for one waker, which the word owns.

use std::ptr::without_provenance_mut;

use crate::prim::{AtomicPtr, Ordering};

/// Initial state.
const EMPTY: usize = 0;
/// The value is there, and the sender is gone.
const SENT: usize = 1;
/// The sender was dropped without having sent.
const SENDER_GONE: usize = 2;
/// The receiver accepts no value any more, and still exists.
const CLOSED: usize = 3;
/// The receiver was dropped before the sender.
const RECEIVER_GONE: usize = 4;
/// Addresses from here on are wakers.
const WAKER: usize = 5;

pub(crate) struct Word(AtomicPtr<()>);

/// A waker, as a pointer. WAKER
pub(crate) type RawWaker = *mut ();

/// State read from the word.
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

    /// Changes the word to `next` if `from` accepts its current state. Returns the former state.
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

    /// Announces the value, which the sender has written. On success this was the sender's last operation.
    /// Otherwise the receiver accepts no value any more, and the value still belongs to the sender.
    #[inline]
    pub(crate) fn send(&self) -> Result<Option<RawWaker>, ()> {
        match self.change(state(SENT), |said| matches!(said, Said::Empty | Said::Waits(_))) {
            Ok(Said::Waits(waker)) => Ok(Some(waker)),
            Ok(_) => Ok(None),
            Err(_) => Err(()),
        }
    }

    /// Drops the sender without a value. If the receiver was gone, the caller frees the memory.
    pub(crate) fn drop_sender(&self) -> Said {
        match self.change(state(SENDER_GONE), |said| said != Said::ReceiverGone) {
            Ok(was) | Err(was) => was,
        }
    }

    /// Stores the receiver's waker. On an error the state has changed, and the waker still belongs to the
    /// caller.
    #[inline]
    pub(crate) fn wait(&self, waker: RawWaker) -> Result<(), Said> {
        debug_assert!(waker.addr() >= WAKER);
        self.change(waker, |said| said == Said::Empty).map(drop)
    }

    /// Takes the receiver's waker back. `false` if it is not there any more.
    pub(crate) fn withdraw(&self, waker: RawWaker) -> bool {
        self.0.compare_exchange(waker, state(EMPTY), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Closes the channel for the receiver. Returns the former state.
    pub(crate) fn close(&self) -> Said {
        match self.change(state(CLOSED), |said| matches!(said, Said::Empty | Said::Waits(_))) {
            Ok(was) | Err(was) => was,
        }
    }

    /// Drops the receiver. If the sender was gone, the caller frees the memory.
    pub(crate) fn drop_receiver(&self) -> Said {
        read(self.0.swap(state(RECEIVER_GONE), Ordering::AcqRel))
    }
}
