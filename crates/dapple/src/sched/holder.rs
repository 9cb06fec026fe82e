//! Who holds a post: a number, and the two ways in which it changes.
//!
//! # Invariants
//!
//! * **ONE-HOLDER**: a post has one holder. The monitor passes it on, from one that is stuck to a spare, and the
//!   post's own worker takes it back.
//! * **HOLDER-SLEEPS**: only the holder sleeps in the driver. Who has the claim looks whether it is still the holder
//!   before it sleeps; who takes the post writes that down and then rings, and a ring is kept for who has the claim.
//! * **PASSED-ON**: a ring that wakes a spare may have been meant for who took its post. So a spare that leaves rings.

use crate::prim::{AtomicUsize, Ordering};

pub(crate) struct Holder(AtomicUsize);

impl Holder {
    pub(crate) fn new(worker: usize) -> Holder {
        Holder(AtomicUsize::new(worker))
    }

    #[inline]
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst) // HOLDER-SLEEPS
    }

    /// From one to another, if it is that one's. ONE-HOLDER
    pub(crate) fn pass(&self, from: usize, to: usize) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Whoever has it. The bell is to be rung after this. HOLDER-SLEEPS
    pub(crate) fn take_back(&self, worker: usize) {
        self.0.swap(worker, Ordering::SeqCst);
    }
}
