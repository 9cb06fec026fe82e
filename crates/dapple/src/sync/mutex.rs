//! A mutex whose guard may be held across an await.
//!
//! # Invariants
//!
//! * **ONE-GUARD**: the mutex has one permit. A guard is made by the one who took it, and gives it
//!   back when it is dropped, so there is at most one guard at a time; taking acquires what giving
//!   back released.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::Cancelled;
use crate::waitlist::permits::{PermitWait, Permits};
use crate::waitlist::wait::block_on;

/// Lets one at a time use a value, also across an await.
///
/// For what needs no await inside, a [`ColorCell`](crate::ColorCell) or the standard library's mutex
/// is cheaper. There is no poisoning: a panic while the guard is held unlocks the mutex.
///
/// The mutex is free until somebody who waits is polled and takes it, in the order of those who
/// wait. Who comes while others wait gives way to them once.
///
/// # Examples
///
/// ```
/// use dapple::sync::Mutex;
/// use std::sync::Arc;
///
/// dapple::run(async {
///     let log = Arc::new(Mutex::new(Vec::new()));
///     let writers: Vec<_> = (0..3)
///         .map(|number| {
///             let log = log.clone();
///             dapple::spawn(async move {
///                 let mut log = log.lock().await?;
///                 log.push(number);
///                 dapple::task::yield_now().await; // still locked
///                 log.push(number);
///                 Ok::<_, dapple::Cancelled>(())
///             })
///         })
///         .collect();
///     for writer in writers {
///         writer.await.unwrap().unwrap();
///     }
///     assert!(log.lock().await.unwrap().chunks(2).all(|pair| pair[0] == pair[1]));
/// });
/// ```
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    permits: OnePermit,
    value: UnsafeCell<T>,
}

struct OnePermit(Permits);

impl Default for OnePermit {
    fn default() -> OnePermit {
        OnePermit(Permits::new(1))
    }
}

// SAFETY: `&Mutex` gives the value to one at a time, possibly on another thread. ONE-GUARD
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// A mutex that is free.
    #[must_use]
    pub fn new(value: T) -> Mutex<T> {
        Mutex { permits: OnePermit::default(), value: UnsafeCell::new(value) }
    }

    /// The value.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Locks the mutex, until the guard is dropped.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**.
    /// *Scope cancelled*: returns [`Cancelled`], and the mutex has not been locked; or the guard, if
    /// it was free when the wait was polled again.
    pub async fn lock(&self) -> Result<MutexGuard<'_, T>, Cancelled> {
        PermitWait::new(&self.permits.0, 1).await.map_err(|_| Cancelled)?;
        Ok(MutexGuard::new(self))
    }

    /// As [`lock`](Self::lock), with a guard that keeps the mutex alive.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**.
    /// *Scope cancelled*: as [`lock`](Self::lock).
    pub async fn lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, Cancelled> {
        PermitWait::new(&self.permits.0, 1).await.map_err(|_| Cancelled)?;
        Ok(OwnedMutexGuard { mutex: self, _value: PhantomData })
    }

    /// As [`lock`](Self::lock), for threads outside: waits on this thread.
    ///
    /// # Errors
    ///
    /// If the call was cancelled in [`blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    #[track_caller]
    pub fn lock_blocking(&self) -> Result<MutexGuard<'_, T>, Cancelled> {
        block_on("Mutex::lock_blocking", self.lock())
    }

    /// Locks the mutex if it is free, also ahead of those who wait.
    ///
    /// # Errors
    ///
    /// If it is locked.
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError> {
        self.permits.0.try_take(1).map_err(|_| TryLockError(()))?;
        Ok(MutexGuard::new(self))
    }

    /// As [`try_lock`](Self::try_lock), with a guard that keeps the mutex alive.
    ///
    /// # Errors
    ///
    /// If it is locked.
    pub fn try_lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, TryLockError> {
        self.permits.0.try_take(1).map_err(|_| TryLockError(()))?;
        Ok(OwnedMutexGuard { mutex: self, _value: PhantomData })
    }

    /// The value, which nobody else can be using.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Locks, for one who waits again and again and is not to be cancelled: see `Condvar`.
    pub(super) fn permits(&self) -> &Permits {
        &self.permits.0
    }

    /// The guard of one who has taken the permit. ONE-GUARD
    pub(super) fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard::new(self)
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_lock() {
            Ok(guard) => f.debug_tuple("Mutex").field(&&*guard).finish(),
            Err(_) => f.write_str("Mutex(locked)"),
        }
    }
}

/// The right to use the value of a [`Mutex`], until it is dropped.
#[must_use = "the mutex is unlocked at once if the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// Gives `&mut T` out, so it is `Send` and `Sync` as that is.
    _value: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    fn new(mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        MutexGuard { mutex, _value: PhantomData }
    }

    /// The mutex that is locked.
    #[must_use]
    pub fn mutex(guard: &MutexGuard<'a, T>) -> &'a Mutex<T> {
        guard.mutex
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this is the only guard, and it is borrowed. ONE-GUARD
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard, and it is mutably borrowed. ONE-GUARD
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.permits.0.release(1);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The right to use the value of a [`Mutex`] in an [`Arc`], until it is dropped.
#[must_use = "the mutex is unlocked at once if the guard is dropped"]
pub struct OwnedMutexGuard<T: ?Sized> {
    mutex: Arc<Mutex<T>>,
    /// Gives `&mut T` out, so it is `Send` and `Sync` as `T` is.
    _value: PhantomData<T>,
}

impl<T: ?Sized> Deref for OwnedMutexGuard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this is the only guard, and it is borrowed. ONE-GUARD
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T: ?Sized> DerefMut for OwnedMutexGuard<T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard, and it is mutably borrowed. ONE-GUARD
        unsafe { &mut *self.mutex.value.get() }
    }
}

impl<T: ?Sized> Drop for OwnedMutexGuard<T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.permits.0.release(1);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for OwnedMutexGuard<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A lock is not free now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryLockError(pub(super) ());

impl fmt::Display for TryLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lock is not free")
    }
}

impl std::error::Error for TryLockError {}
