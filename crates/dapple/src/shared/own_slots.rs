//! The registry of this process, and the row of reader slots of each thread.

use std::ptr::null_mut;

use super::reader_slots::{ReaderSlots, Registry};
use crate::prim::AtomicPtr;

pub(crate) static REGISTRY: Registry = Registry(AtomicPtr::new(null_mut()));

/// Row of this thread. None while the thread ends.
#[inline]
pub(crate) fn own_row() -> Option<&'static ReaderSlots> {
    struct OwnRow(&'static ReaderSlots);
    impl Drop for OwnRow {
        fn drop(&mut self) {
            self.0.give_back();
        }
    }
    thread_local! {
        static OWN: OwnRow = OwnRow(REGISTRY.take());
    }
    OWN.try_with(|own| own.0).ok()
}
