//! A lock that spins.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

use super::{AtomicBool, IS_MODEL, Ordering, spin_loop, yield_now};

/// Largest number of pauses between two looks of a waiting thread: some hundreds of nanoseconds.
const MOST_PAUSES: u32 = if IS_MODEL { 1 } else { 32 };

/// A lock for critical sections of some tens of nanoseconds, nearly always free. Unlocking is a plain store,
/// where a mutex needs an atomic operation. A thread that finds it taken spins, and then yields.
#[derive(Default)]
pub(crate) struct SpinLock<T> {
    taken: AtomicBool,
    inside: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a guard, and there is one guard at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}

impl<T> SpinLock<T> {
    pub(crate) fn new(inside: T) -> SpinLock<T> {
        SpinLock { taken: AtomicBool::new(false), inside: UnsafeCell::new(inside) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> SpinGuard<'_, T> {
        if !self.take() {
            self.wait();
        }
        SpinGuard(self)
    }

    #[inline]
    fn take(&self) -> bool {
        if IS_MODEL {
            // In loom, a swap that changes nothing could hide from other threads that the lock was released.
            return self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok();
        }
        !self.taken.swap(true, Ordering::Acquire)
    }

    #[cold]
    fn wait(&self) {
        #[cfg(dapple_steps)]
        while crate::world::is_simulated() {
            if self.take() {
                return;
            }
            crate::world::let_others();
        }
        // A thread that looks all the time takes the line away from the holder. One that looks seldom lets it do several
        // sections in a row, and each of them costs less than a line that goes to and fro.
        let mut pauses = 1_u32;
        while self.taken.load(Ordering::Relaxed) || !self.take() {
            for _ in 0..pauses {
                spin_loop();
            }
            if pauses < MOST_PAUSES {
                pauses *= 2;
            } else {
                yield_now(); // the holder may be waiting for a processor
            }
        }
    }
}

/// Guard of a locked [`SpinLock`], which gives access to the value.
pub(crate) struct SpinGuard<'a, T>(&'a SpinLock<T>);

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.0.inside.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed exclusively.
        unsafe { &mut *self.0.inside.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.0.taken.store(false, Ordering::Release);
    }
}
