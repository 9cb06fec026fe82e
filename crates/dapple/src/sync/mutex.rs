//! A mutex whose guard may be held across an await.
//!
//! # Invariants
//!
//! * **ONE-GUARD**: the mutex has one permit. The caller that took the permit makes the guard, and the guard
//!   releases the permit when dropped. So at most one guard exists; taking the permit acquires all writes
//!   that its release published.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::Cancelled;
use crate::waitlist::permits::{PermitWait, Permits};
use crate::waitlist::wait::block_on;

/// Mutual exclusion for a value whose guard may be held across an await.
///
/// For code that does not await under the lock, a [`ColorCell`](crate::ColorCell) or the standard library's
/// mutex is cheaper. There is no poisoning: a panic while the guard is held unlocks the mutex.
///
/// An unlocked mutex is free until a waiter is polled and takes it; waiters are served in order. A caller
/// that arrives while others wait yields to them once.
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

// SAFETY: `&Mutex` gives the value to one guard at a time, possibly on another thread. ONE-GUARD
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    #[must_use]
    pub fn new(value: T) -> Mutex<T> {
        Mutex { permits: OnePermit::default(), value: UnsafeCell::new(value) }
    }

    /// Returns the value.
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
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::sync::{Mutex, MutexGuard};
    ///
    /// async fn add(mut total: MutexGuard<'_, u32>, amount: u32) {
    ///     dapple::task::yield_now().await; // the lock is held across the await
    ///     *total += amount;
    /// }
    ///
    /// dapple::run(async {
    ///     let total = Mutex::new(1);
    ///     add(total.lock().await.unwrap(), 2).await;
    ///     assert_eq!(total.into_inner(), 3);
    /// });
    /// ```
    pub async fn lock(&self) -> Result<MutexGuard<'_, T>, Cancelled> {
        PermitWait::new(&self.permits.0, 1).await.map_err(|_| Cancelled)?;
        Ok(MutexGuard::new(self))
    }

    /// As [`lock`](Self::lock), with a guard that keeps the [`Arc`] of the mutex.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**.
    /// *Scope cancelled*: as [`lock`](Self::lock).
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::sync::Mutex;
    /// use std::sync::Arc;
    ///
    /// dapple::run(async {
    ///     let total = Arc::new(Mutex::new(1));
    ///     let mut guard = total.clone().lock_owned().await.unwrap(); // borrows nothing, so a task can have it
    ///     dapple::spawn(async move { *guard += 1 }).await.unwrap();
    ///     assert_eq!(*total.lock().await.unwrap(), 2);
    /// });
    /// ```
    pub async fn lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, Cancelled> {
        PermitWait::new(&self.permits.0, 1).await.map_err(|_| Cancelled)?;
        Ok(OwnedMutexGuard { mutex: self, _value: PhantomData })
    }

    /// As [`lock`](Self::lock), for threads that run no tasks: blocks the thread.
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

    /// Locks the mutex if it is free, even ahead of waiters.
    ///
    /// # Errors
    ///
    /// If the mutex is locked.
    ///
    /// # Examples
    ///
    /// ```
    /// let total = dapple::sync::Mutex::new(1);
    /// let mut guard = total.try_lock().unwrap(); // at once, or an error
    /// *guard += 1;
    /// drop(guard);
    /// assert_eq!(total.into_inner(), 2);
    /// ```
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError> {
        self.permits.0.try_take(1).map_err(|_| TryLockError(()))?;
        Ok(MutexGuard::new(self))
    }

    /// As [`try_lock`](Self::try_lock), with a guard that keeps the [`Arc`] of the mutex.
    ///
    /// # Errors
    ///
    /// If the mutex is locked.
    pub fn try_lock_owned(self: Arc<Self>) -> Result<OwnedMutexGuard<T>, TryLockError> {
        self.permits.0.try_take(1).map_err(|_| TryLockError(()))?;
        Ok(OwnedMutexGuard { mutex: self, _value: PhantomData })
    }

    /// Returns a mutable reference to the value, without locking: `&mut self` proves that there is no guard.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Permits for `Condvar`, which locks again in a wait that ignores cancellation.
    pub(super) fn permits(&self) -> &Permits {
        &self.permits.0
    }

    /// Makes the guard. The caller has taken the permit. ONE-GUARD
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

/// Guard of a locked [`Mutex`], which gives access to the value. Dropping it unlocks the mutex.
#[must_use = "the mutex is unlocked at once if the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// Gives out `&mut T`, so it has the `Send` and `Sync` of `&mut T`.
    _value: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    fn new(mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        MutexGuard { mutex, _value: PhantomData }
    }

    /// Returns the mutex that this guard locks.
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

/// Guard of a locked [`Mutex`] that keeps the mutex's [`Arc`]. Dropping it unlocks the mutex.
#[must_use = "the mutex is unlocked at once if the guard is dropped"]
pub struct OwnedMutexGuard<T: ?Sized> {
    mutex: Arc<Mutex<T>>,
    /// Gives out `&mut T`, so it has the `Send` and `Sync` of `T`.
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

/// Error of `try_lock`, `try_read` and `try_write`: the lock is not free.
///
/// # Examples
///
/// ```
/// use dapple::sync::{Mutex, RwLock};
///
/// let mutex = Mutex::new(1);
/// let held = mutex.try_lock().unwrap();
/// assert!(mutex.try_lock().is_err());
/// drop(held);
/// assert!(mutex.try_lock().is_ok());
///
/// let lock = RwLock::new(1);
/// let _reader = lock.try_read().unwrap();
/// assert!(lock.try_read().is_ok() && lock.try_write().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryLockError(pub(super) ());

impl fmt::Display for TryLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the lock is not free")
    }
}

impl std::error::Error for TryLockError {}
