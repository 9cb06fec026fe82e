//! Who holds a post: a number, and the two ways in which it changes.
//!
//! # Invariants
//!
//! * **ONE-HOLDER**: a post has one holder. The monitor passes it on, from one that is stuck to a spare, and the
//!   post's own worker takes it back.
//! * **HOLDER-SLEEPS**: only the holder sleeps in the driver. A thread with the claim lies down, and then looks whether
//!   it is still the holder before it sleeps. Whoever changes the holder, the monitor and the post's own worker alike,
//!   writes that down and then rings, and a ring is kept for the thread with the claim. So a sleeper that is
//!   the holder no more gets up: the monitor may have taken a worker for stuck that has come back meanwhile.
//! * **OWN-TIMERS**: the holder rings for no timer and no operation that it enters itself: it looks at them before it
//!   sleeps. That is right because of HOLDER-SLEEPS: a thread that sleeps in the driver meanwhile is not the holder, and
//!   is being rung for; and whoever sleeps next looks at them first.
//! * **PASSED-ON**: a ring that wakes a thread in the driver may have been for the new holder of its post. So a thread
//!   that gets up and is not the holder rings again, before it runs anything (`Driver::sleep`).

use crate::prim::{AtomicUsize, Ordering};

pub(crate) struct SlotOwner(AtomicUsize);

impl SlotOwner {
    pub(crate) fn new(worker: usize) -> SlotOwner {
        SlotOwner(AtomicUsize::new(worker))
    }

    #[inline]
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst) // HOLDER-SLEEPS
    }

    /// Passes the post from `from` to `to`, if `from` holds it. The bell is to be rung after this. ONE-HOLDER,
    /// HOLDER-SLEEPS
    pub(crate) fn pass(&self, from: usize, to: usize) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whoever has it. The bell is to be rung after this. HOLDER-SLEEPS
    pub(crate) fn take_back(&self, worker: usize) {
        self.0.swap(worker, Ordering::SeqCst);
    }
}
