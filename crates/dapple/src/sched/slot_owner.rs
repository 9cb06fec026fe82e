//! The owner of a worker slot: the number of a worker, and the two ways in which it changes.
//!
//! # Invariants
//!
//! * **ONE-SLOT-OWNER**: a slot has one owner. The monitor passes it from a stuck worker to a spare, and the slot's own
//!   worker takes it back.
//! * **OWNER-SLEEPS**: only the owner of a slot sleeps in its driver. A thread with the claim first announces its
//!   sleep, and then checks that it is still the owner before it sleeps. A thread that changes the owner (the
//!   monitor, or the slot's own worker) writes the change first and then notifies the driver, and a notification is
//!   kept for the thread with the claim. So a sleeper that has lost the slot wakes up. This matters for a worker that
//!   the monitor took for stuck and that has come back meanwhile.
//! * **OWN-TIMERS**: the owner does not notify the driver of a timer or an operation that it adds itself, because it
//!   looks at both before it sleeps. OWNER-SLEEPS makes this right: a thread that sleeps in the driver meanwhile is
//!   not the owner and is being notified, and the next thread to sleep looks at timers and operations first.
//! * **PASSED-ON**: a notification that wakes a thread in the driver may have been for the new owner of the slot. So
//!   a thread that wakes up and is not the owner notifies the driver again, before it runs anything
//!   (`Driver::sleep`).

use crate::prim::{AtomicUsize, Ordering};

pub(crate) struct SlotOwner(AtomicUsize);

impl SlotOwner {
    pub(crate) fn new(worker: usize) -> SlotOwner {
        SlotOwner(AtomicUsize::new(worker))
    }

    #[inline]
    pub(crate) fn get(&self) -> usize {
        self.0.load(Ordering::SeqCst) // OWNER-SLEEPS
    }

    /// Passes the slot from `from` to `to`, if `from` owns it. The caller notifies the driver afterwards. ONE-SLOT-OWNER,
    /// OWNER-SLEEPS
    pub(crate) fn pass(&self, from: usize, to: usize) -> bool {
        self.0.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Makes `worker` the owner, whatever the owner is. The caller notifies the driver afterwards. OWNER-SLEEPS
    pub(crate) fn take_back(&self, worker: usize) {
        self.0.swap(worker, Ordering::SeqCst);
    }
}
