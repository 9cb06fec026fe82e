//! A pointer in a thread-local that other threads may read. The atomics are the standard library's in every build.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A pointer that one thread writes and others may read: used like a `Cell`, and at the same cost. Not loom's
/// type, since it is in a thread-local and no protocol depends on it.
pub(crate) struct Published<T>(AtomicPtr<T>);

impl<T> Published<T> {
    pub(crate) const fn null() -> Published<T> {
        Published(AtomicPtr::new(null_mut()))
    }

    #[inline]
    pub(crate) fn get(&self) -> *const T {
        self.0.load(Ordering::Relaxed)
    }

    /// For the owning thread only.
    #[inline]
    pub(crate) fn set(&self, pointer: *const T) {
        self.0.store(pointer.cast_mut(), Ordering::Relaxed);
    }

    /// For the owning thread of both pointers only.
    #[inline]
    pub(crate) fn swap(&self, other: &Published<T>) {
        let pointer = self.get();
        self.set(other.get());
        other.set(pointer);
    }
}
