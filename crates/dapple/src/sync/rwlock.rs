//! A read-write lock whose guards may be held across an await.
//!
//! # Invariants
//!
//! * **ALL-PERMITS**: the lock has `READERS` permits; a reader takes one, a writer all of them. The caller
//!   that took the permits makes the guard, and the guard releases them when dropped. So no other guard
//!   exists beside a writer's; taking permits acquires all writes that their release published.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::mutex::TryLockError;
use crate::Cancelled;
use crate::waitlist::permits::{PermitWait, Permits};
use crate::waitlist::wait::block_on;

/// Most readers at a time.
const READERS: usize = u32::MAX as usize;

/// Read-write lock: many readers at a time, or one writer. Guards may be held across an await.
///
/// Readers and writers are served in the order in which they arrive, so neither starves. A task that holds a
/// read guard must not wait for another one: if a writer waits between the two, that is a deadlock.
///
/// # Examples
///
/// ```
/// use dapple::sync::RwLock;
///
/// dapple::run(async {
///     let table = RwLock::new(vec![1, 2]);
///     {
///         let (one, another) = (table.read().await.unwrap(), table.try_read().unwrap());
///         assert_eq!(one.len() + another.len(), 4);
///         assert!(table.try_write().is_err());
///     }
///     table.write().await.unwrap().push(3);
///     assert_eq!(table.into_inner(), [1, 2, 3]);
/// });
/// ```
pub struct RwLock<T: ?Sized> {
    permits: Permits,
    value: UnsafeCell<T>,
}

// SAFETY: `&RwLock` gives the value to one writer at a time, or to many readers. ALL-PERMITS
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    /// Creates an unlocked lock.
    #[must_use]
    pub fn new(value: T) -> RwLock<T> {
        RwLock { permits: Permits::new(READERS), value: UnsafeCell::new(value) }
    }

    /// Returns the value.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks for reading. Other readers may hold the lock at the same time.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**.
    /// *Scope cancelled*: returns [`Cancelled`], and nothing has been locked; or the guard, if the lock was
    /// available when the wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// dapple::run(async {
    ///     let seats = dapple::sync::RwLock::new(vec![false; 3]);
    ///     let (one, other) = (seats.read().await.unwrap(), seats.read().await.unwrap()); // at the same time
    ///     assert_eq!(one.len() + other.len(), 6);
    /// });
    /// ```
    pub async fn read(&self) -> Result<RwLockReadGuard<'_, T>, Cancelled> {
        PermitWait::new(&self.permits, 1).await.map_err(|_| Cancelled)?;
        Ok(RwLockReadGuard { lock: self, _value: PhantomData })
    }

    /// Locks for writing, with no other guard at the same time.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**.
    /// *Scope cancelled*: returns [`Cancelled`], and nothing has been locked; or the guard, if the lock was
    /// available when the wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// dapple::run(async {
    ///     let seats = dapple::sync::RwLock::new(vec![false; 3]);
    ///     let mut writer = seats.write().await.unwrap();
    ///     writer[1] = true;
    ///     let reader = dapple::sync::RwLockWriteGuard::downgrade(writer); // no other writer comes between
    ///     assert!(reader[1]);
    /// });
    /// ```
    pub async fn write(&self) -> Result<RwLockWriteGuard<'_, T>, Cancelled> {
        PermitWait::new(&self.permits, READERS).await.map_err(|_| Cancelled)?;
        Ok(RwLockWriteGuard { lock: self, _value: PhantomData })
    }

    /// As [`read`](Self::read), for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// If the call was cancelled in [`blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    #[track_caller]
    pub fn read_blocking(&self) -> Result<RwLockReadGuard<'_, T>, Cancelled> {
        block_on("RwLock::read_blocking", self.read())
    }

    /// As [`write`](Self::write), for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// If the call was cancelled in [`blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    #[track_caller]
    pub fn write_blocking(&self) -> Result<RwLockWriteGuard<'_, T>, Cancelled> {
        block_on("RwLock::write_blocking", self.write())
    }

    /// Locks for reading if no writer holds the lock, even ahead of waiters.
    ///
    /// # Errors
    ///
    /// If a writer holds the lock.
    pub fn try_read(&self) -> Result<RwLockReadGuard<'_, T>, TryLockError> {
        self.permits.try_take(1).map_err(|_| TryLockError(()))?;
        Ok(RwLockReadGuard { lock: self, _value: PhantomData })
    }

    /// Locks for writing if no guard exists, even ahead of waiters.
    ///
    /// # Errors
    ///
    /// If a reader or a writer holds the lock.
    pub fn try_write(&self) -> Result<RwLockWriteGuard<'_, T>, TryLockError> {
        self.permits.try_take(READERS).map_err(|_| TryLockError(()))?;
        Ok(RwLockWriteGuard { lock: self, _value: PhantomData })
    }

    /// Returns a mutable reference to the value, without locking: `&mut self` proves that there is no guard.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.try_read() {
            Ok(guard) => f.debug_tuple("RwLock").field(&&*guard).finish(),
            Err(_) => f.write_str("RwLock(locked)"),
        }
    }
}

/// Guard for reading the value of an [`RwLock`]. Dropping it unlocks.
#[must_use = "the lock is given back at once if the guard is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    _value: PhantomData<&'a T>,
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: a reader holds a permit, so there is no writer. ALL-PERMITS
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.permits.release(1);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Guard for writing the value of an [`RwLock`]. Dropping it unlocks.
#[must_use = "the lock is given back at once if the guard is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// Gives out `&mut T`, so it has the `Send` and `Sync` of `&mut T`.
    _value: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Turns the guard into one for reading. No writer gets in between.
    pub fn downgrade(guard: RwLockWriteGuard<'a, T>) -> RwLockReadGuard<'a, T> {
        let lock = guard.lock;
        std::mem::forget(guard); // the read guard keeps one permit
        lock.permits.release(READERS - 1);
        RwLockReadGuard { lock, _value: PhantomData }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: this is the only guard, and it is borrowed. ALL-PERMITS
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this is the only guard, and it is mutably borrowed. ALL-PERMITS
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.permits.release(READERS);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
