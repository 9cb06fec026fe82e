//! A pointer to a value of a layer above, as the context keeps it.
//!
//! # Invariants
//!
//! * **ONE-TYPE**: each tag of this file is filled by one type ([`Fills`]). So a pointer that is read from a slot has the
//!   type of the pointer that was stored there.

use std::cell::Cell;
use std::ptr::null;

/// The part of a runtime that its tasks know.
pub(crate) enum OfRuntime {}
/// A worker of the scheduler.
pub(crate) enum OfWorker {}
/// A worker's store of memory for tasks.
pub(crate) enum OfSlab {}
/// The header of a task or of a lane.
pub(crate) enum OfTask {}
/// A frame of the cancellation stack.
pub(crate) enum OfFrame {}
/// A child of a scope, as its waker sees it.
pub(crate) enum OfChild {}
/// The value of a task-local.
pub(crate) enum OfLocal {}
/// A computation of a map.
pub(crate) enum OfComputation {}
/// Values of transactions that are being dropped.
pub(crate) enum OfDrops {}

/// The type that slots with the tag `K` point to.
///
/// # Safety
///
/// No other type implements this trait for the same `K`. ONE-TYPE
pub(crate) unsafe trait Fills<K> {}

/// A pointer to a value of a layer above, or null.
pub(super) struct Slot<K>(Cell<*const K>);

impl<K> Slot<K> {
    pub(super) const fn null() -> Slot<K> {
        Slot(Cell::new(null()))
    }

    #[inline]
    pub(super) fn get<T: Fills<K>>(&self) -> *const T {
        self.0.get().cast()
    }

    #[inline]
    pub(super) fn set<T: Fills<K>>(&self, pointer: *const T) {
        self.0.set(pointer.cast());
    }

    #[inline]
    pub(super) fn replace<T: Fills<K>>(&self, pointer: *const T) -> *const T {
        self.0.replace(pointer.cast()).cast()
    }

    #[inline]
    pub(super) fn clear(&self) {
        self.0.set(null());
    }

    #[inline]
    pub(super) fn is_null(&self) -> bool {
        self.0.get().is_null()
    }

    #[inline]
    pub(super) fn addr(&self) -> usize {
        self.0.get().addr()
    }

    pub(super) fn swap(&self, other: &Slot<K>) {
        self.0.swap(&other.0);
    }
}
