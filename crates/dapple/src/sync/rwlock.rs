//! A read-write lock whose guards may be held across an await.
//!
//! # Invariants
//!
//! * **ALL-PERMITS**: the lock has `READERS` permits; a reader takes one, a writer all of them. A
//!   guard is made by the one who took them and gives them back when it is dropped, so a writer's
//!   guard is alone; taking acquires what giving back released.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use super::mutex::TryLockError;
use crate::Cancelled;
use crate::waitlist::permits::{PermitWait, Permits};
use crate::waitlist::wait::block_on;

/// How many can read at a time.
const READERS: usize = u32::MAX as usize;

/// Lets many at a time read a value, or one write it, also across an await.
///
/// Readers and writers are served in the order in which they wait: neither starves. So whoever has
/// a read guard must not wait for another one: a writer may be in line between them.
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

// SAFETY: `&RwLock` gives the value to one at a time to write, and to many to read. ALL-PERMITS
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    /// A lock that is free.
    #[must_use]
    pub fn new(value: T) -> RwLock<T> {
        RwLock { permits: Permits::new(READERS), value: UnsafeCell::new(value) }
    }

    /// The value.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Locks it to read, together with others who read.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**.
    /// *Scope cancelled*: returns [`Cancelled`], and nothing has been locked; or the guard, if it could
    /// be had when the wait was polled again.
    pub async fn read(&self) -> Result<RwLockReadGuard<'_, T>, Cancelled> {
        PermitWait::new(&self.permits, 1).await.map_err(|_| Cancelled)?;
        Ok(RwLockReadGuard { lock: self, _value: PhantomData })
    }

    /// Locks it to write, alone.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**.
    /// *Scope cancelled*: returns [`Cancelled`], and nothing has been locked; or the guard, if it could
    /// be had when the wait was polled again.
    pub async fn write(&self) -> Result<RwLockWriteGuard<'_, T>, Cancelled> {
        PermitWait::new(&self.permits, READERS).await.map_err(|_| Cancelled)?;
        Ok(RwLockWriteGuard { lock: self, _value: PhantomData })
    }

    /// As [`read`](Self::read), for threads outside: waits on this thread.
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

    /// As [`write`](Self::write), for threads outside: waits on this thread.
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

    /// Locks it to read if that can be had now, also ahead of those who wait.
    ///
    /// # Errors
    ///
    /// If somebody writes.
    pub fn try_read(&self) -> Result<RwLockReadGuard<'_, T>, TryLockError> {
        self.permits.try_take(1).map_err(|_| TryLockError(()))?;
        Ok(RwLockReadGuard { lock: self, _value: PhantomData })
    }

    /// Locks it to write if that can be had now, also ahead of those who wait.
    ///
    /// # Errors
    ///
    /// If somebody reads or writes.
    pub fn try_write(&self) -> Result<RwLockWriteGuard<'_, T>, TryLockError> {
        self.permits.try_take(READERS).map_err(|_| TryLockError(()))?;
        Ok(RwLockWriteGuard { lock: self, _value: PhantomData })
    }

    /// The value, which nobody else can be using.
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

/// The right to read the value of an [`RwLock`], until it is dropped.
#[must_use = "the lock is given back at once if the guard is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    _value: PhantomData<&'a T>,
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: while a reader has a permit there is no writer. ALL-PERMITS
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

/// The right to write the value of an [`RwLock`], until it is dropped.
#[must_use = "the lock is given back at once if the guard is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// Gives `&mut T` out, so it is `Send` and `Sync` as that is.
    _value: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Goes on reading, without letting a writer in between.
    pub fn downgrade(guard: RwLockWriteGuard<'a, T>) -> RwLockReadGuard<'a, T> {
        let lock = guard.lock;
        std::mem::forget(guard); // keeps one of its permits
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
