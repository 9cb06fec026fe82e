//! The registry of this process, and the reader slots of each thread.

use std::ptr::null_mut;

use super::reader_slots::{ReaderSlots, Registry};
use crate::prim::AtomicPtr;

pub(crate) static REGISTRY: Registry = Registry(AtomicPtr::new(null_mut()));

/// The reader slots of this thread. None while the thread ends.
#[inline]
pub(crate) fn own_slots() -> Option<&'static ReaderSlots> {
    struct OwnSlots(&'static ReaderSlots);
    impl Drop for OwnSlots {
        fn drop(&mut self) {
            self.0.give_back();
        }
    }
    thread_local! {
        static OWN: OwnSlots = OwnSlots(REGISTRY.take());
    }
    OWN.try_with(|own| own.0).ok()
}
