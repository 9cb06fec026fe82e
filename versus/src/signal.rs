//! The hand-made signals of the cases, the same on all sides.
//!
//! [`Slot`] is for measured code: two atomic read-modify-writes per message, and a waker that is cloned once per slot,
//! so that only a runtime's wake and poll remain. [`Gate`] is for the end of a batch, where the cost of its lock does
//! not show.
//!
//! # Invariants
//!
//! * **WAKER-FIRST**: `WAITING` is stored (`Release`) only after `waker` is set, and a sender that swaps it out
//!   (`Acquire`) finds it set.
//! * **HANDOVER**: writes before `send` are seen after `receive` (`Release` by the swap, `Acquire` by the load or the
//!   failed exchange).

use std::future::poll_fn;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

/// Nothing is in the slot. Set by the receiver when it takes the message.
const EMPTY: u8 = 0;
/// Nothing is in the slot and the receiver waits. Set by the receiver.
const WAITING: u8 = 1;
/// A message is in the slot. Set by the sender.
const FULL: u8 = 2;

/// A slot for one empty message from one sender to one task.
#[repr(align(64))]
pub(crate) struct Slot {
    word: AtomicU8,
    waker: OnceLock<Waker>,
}

impl Slot {
    pub(crate) const fn new() -> Self {
        Self { word: AtomicU8::new(EMPTY), waker: OnceLock::new() }
    }

    /// Puts the message in, and wakes the receiver if it waits.
    #[inline]
    pub(crate) fn send(&self) {
        // WAKER-FIRST, HANDOVER
        let before = self.word.swap(FULL, AcqRel);
        debug_assert_ne!(before, FULL, "a message was lost");
        if before == WAITING {
            self.waker.get().expect("a registered waker").wake_by_ref();
        }
    }

    /// Waits for the message and takes it out. Always by the same task.
    #[inline]
    pub(crate) fn receive(&self) -> impl Future<Output = ()> + Send {
        poll_fn(|cx| self.poll_receive(cx))
    }

    #[inline]
    fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.word.load(Acquire) != FULL {
            let waker = self.waker.get_or_init(|| cx.waker().clone());
            assert!(waker.will_wake(cx.waker()), "a slot has one receiver");
            // WAKER-FIRST; a failed exchange finds FULL, or WAITING from an earlier poll.
            let exchanged = self.word.compare_exchange(EMPTY, WAITING, AcqRel, Acquire);
            if exchanged != Err(FULL) {
                return Poll::Pending;
            }
        }
        // The sender comes back only after it has been answered.
        self.word.store(EMPTY, Relaxed);
        Poll::Ready(())
    }
}

/// A gate that any thread opens, and that closes behind the one task that passes it.
pub(crate) struct Gate(Mutex<Latch>);

struct Latch {
    open: bool,
    waker: Option<Waker>,
}

impl Gate {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Latch { open: false, waker: None }))
    }

    /// Opens the gate.
    pub(crate) fn open(&self) {
        let waker = {
            let mut latch = self.lock();
            latch.open = true;
            latch.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Waits until the gate is open, and closes it.
    pub(crate) fn pass(&self) -> impl Future<Output = ()> + Send {
        poll_fn(|cx| {
            let mut latch = self.lock();
            if std::mem::take(&mut latch.open) {
                return Poll::Ready(());
            }
            latch.waker = Some(cx.waker().clone());
            Poll::Pending
        })
    }

    fn lock(&self) -> MutexGuard<'_, Latch> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
