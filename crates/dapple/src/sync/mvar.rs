//! A place for one value, which is empty or full: the MVar of Concurrent Haskell.
//!
//! # Invariants
//!
//! * **FULL-OR-EMPTY**: of the permits of `full` and of `empty` there is one, in one of the two, or it has been taken. The
//!   one that has taken it has the value alone: it takes the value out, puts one in, or looks at it. Then it releases
//!   the permit to the side that is true. Taking acquires what releasing released. A permit of `full` means that there
//!   is a value, and one of `empty` that there is none.
//!
//! Order, giving way and cancelling are those of `permits`: a release wakes one waiter, the first.

use std::cell::UnsafeCell;
use std::error::Error;
use std::fmt;

use crate::Cancelled;
use crate::waitlist::permits::{PermitRefusal, PermitWait, Permits};
use crate::waitlist::wait::block_on;

/// A place for one value, which is empty or full. `take` waits until it is full and empties it, `put` waits until it is
/// empty and fills it.
///
/// It is a lock with its data, a channel of one message, or a signal that carries a value. Waiters are served in the order
/// in which they came, one by one: each `put` wakes one waiter, and so does each `take`. A caller that comes while others
/// wait gives way to them once.
///
/// # Examples
///
/// ```
/// use dapple::sync::MVar;
/// use std::sync::Arc;
///
/// dapple::run(async {
///     let (ping, pong) = (Arc::new(MVar::empty()), Arc::new(MVar::empty()));
///     let echo = dapple::spawn({
///         let (ping, pong) = (ping.clone(), pong.clone());
///         async move {
///             let number: u32 = ping.take().await.unwrap();
///             pong.put(number + 1).await.unwrap();
///         }
///     });
///     ping.put(1).await.unwrap();
///     assert_eq!(pong.take().await, Ok(2));
///     echo.await.unwrap();
/// });
/// ```
pub struct MVar<T> {
    full: Permits,
    empty: Permits,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is reached by one at a time, possibly on another thread. FULL-OR-EMPTY
unsafe impl<T: Send> Sync for MVar<T> {}

impl<T> MVar<T> {
    /// Makes a full MVar, with this value.
    #[must_use]
    pub fn new(value: T) -> MVar<T> {
        MVar { full: Permits::new(1), empty: Permits::new(0), value: UnsafeCell::new(Some(value)) }
    }

    /// Makes an empty MVar.
    #[must_use]
    pub fn empty() -> MVar<T> {
        MVar { full: Permits::new(0), empty: Permits::new(1), value: UnsafeCell::new(None) }
    }

    /// Waits until there is a value, and takes it out.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled: nothing has been taken.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; nothing has been taken.
    /// *Scope cancelled*: returns [`Cancelled`], and nothing has been taken; or the value, if there was one when the
    /// wait was polled again.
    pub async fn take(&self) -> Result<T, Cancelled> {
        wait(&self.full).await?;
        Ok(self.empty_it())
    }

    /// Takes the value if there is one now, also ahead of waiters. Returns `None` if it is empty, and while another
    /// caller is in [`with`](Self::with) or [`read`](Self::read).
    pub fn try_take(&self) -> Option<T> {
        self.full.try_take(1).ok()?;
        Some(self.empty_it())
    }

    /// Waits until the MVar is empty, and puts a value in.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled: hands the value back.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the value is dropped with the wait, and has not been put; loses its place.
    /// *Scope cancelled*: returns a [`PutError`] with the value, which has not been put; or `Ok`, if it was empty when the
    /// wait was polled again.
    pub async fn put(&self, value: T) -> Result<(), PutError<T>> {
        match wait(&self.empty).await {
            Ok(()) => {
                self.fill(value);
                Ok(())
            }
            Err(Cancelled) => Err(PutError { value, cancelled: true }),
        }
    }

    /// Puts a value in if the MVar is empty now, also ahead of waiters.
    ///
    /// # Errors
    ///
    /// If it is full: hands the value back.
    pub fn try_put(&self, value: T) -> Result<(), PutError<T>> {
        match self.empty.try_take(1) {
            Ok(()) => {
                self.fill(value);
                Ok(())
            }
            Err(_) => Err(PutError { value, cancelled: false }),
        }
    }

    /// Waits until there is a value, and calls `f` with it. The value stays. Meanwhile no other caller takes or reads
    /// it, or puts another one.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled: `f` has not run.
    ///
    /// # Panics
    ///
    /// If `f` does. The value is as `f` left it.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; `f` has not run.
    /// *Scope cancelled*: returns [`Cancelled`], and `f` has not run; or what `f` returned, if there was a value when the
    /// wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// dapple::run(async {
    ///     let names = dapple::sync::MVar::new(vec!["ada"]);
    ///     names.with(|names| names.push("grace")).await.unwrap();
    ///     assert_eq!(names.read().await.unwrap(), ["ada", "grace"]);
    /// });
    /// ```
    pub async fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R, Cancelled> {
        wait(&self.full).await?;
        Ok(self.lend(f))
    }

    /// Waits until there is a value, and returns a clone. The value stays.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**.
    /// *Scope cancelled*: returns [`Cancelled`]; or the value, if there was one when the wait was polled again.
    pub async fn read(&self) -> Result<T, Cancelled>
    where
        T: Clone,
    {
        wait(&self.full).await?;
        Ok(self.lend(|value| value.clone()))
    }

    /// Returns a clone of the value if there is one now. Returns `None` if it is empty, and while another caller is
    /// in [`with`](Self::with) or [`read`](Self::read).
    pub fn try_read(&self) -> Option<T>
    where
        T: Clone,
    {
        self.full.try_take(1).ok()?;
        Some(self.lend(|value| value.clone()))
    }

    /// As [`take`](Self::take), for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// If the call was cancelled in [`blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    #[track_caller]
    pub fn take_blocking(&self) -> Result<T, Cancelled> {
        block_on("MVar::take_blocking", self.take())
    }

    /// As [`put`](Self::put), for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// Hands the value back if the call was cancelled in [`blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    #[track_caller]
    pub fn put_blocking(&self, value: T) -> Result<(), PutError<T>> {
        block_on("MVar::put_blocking", self.put(value))
    }

    /// Whether there is no value now, or another caller has it in [`with`](Self::with). Another thread may change
    /// that at any moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.full.free() == 0
    }

    /// Returns the value, if there is one.
    #[must_use]
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }

    /// For the one that has taken the permit of `full`.
    fn empty_it(&self) -> T {
        // SAFETY: it is ours alone. FULL-OR-EMPTY
        let value = unsafe { &mut *self.value.get() }.take();
        self.empty.release(1);
        value.expect("a value, as there was a permit")
    }

    /// For the one that has taken the permit of `empty`.
    fn fill(&self, value: T) {
        // SAFETY: it is ours alone. FULL-OR-EMPTY
        *unsafe { &mut *self.value.get() } = Some(value); // there was none, so nothing is dropped
        self.full.release(1);
    }

    /// For the one that has taken the permit of `full`, and gives it back, also if `f` panics.
    fn lend<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        struct GiveBack<'a>(&'a Permits);
        impl Drop for GiveBack<'_> {
            fn drop(&mut self) {
                self.0.release(1);
            }
        }
        let _back = GiveBack(&self.full);
        // SAFETY: it is ours alone, until `_back` is dropped, after `f`. FULL-OR-EMPTY
        let value = unsafe { &mut *self.value.get() };
        f(value.as_mut().expect("a value, as there was a permit"))
    }
}

async fn wait(permits: &Permits) -> Result<(), Cancelled> {
    // They are never closed.
    PermitWait::new(permits, 1).await.map_err(|_: PermitRefusal| Cancelled)
}

impl<T> Default for MVar<T> {
    fn default() -> MVar<T> {
        MVar::empty()
    }
}

impl<T> From<T> for MVar<T> {
    fn from(value: T) -> MVar<T> {
        MVar::new(value)
    }
}

impl<T> fmt::Debug for MVar<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MVar").field("empty", &self.is_empty()).finish_non_exhaustive()
    }
}

/// Error of [`MVar::put`] and [`MVar::try_put`]: the value was not put. Hands the value back.
///
/// # Examples
///
/// ```
/// use dapple::sync::MVar;
///
/// let place = MVar::new(1);
/// let error = place.try_put(2).unwrap_err();
/// assert!(error.is_full());
/// assert_eq!(error.into_inner(), 2);
/// ```
pub struct PutError<T> {
    value: T,
    cancelled: bool,
}

impl<T> PutError<T> {
    /// Whether the MVar was full: there was a value already.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.cancelled
    }

    /// Whether the wait was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    /// Returns the value that was not put.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> fmt::Display for PutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.cancelled { "the wait was cancelled" } else { "the MVar is full" })
    }
}

impl<T> fmt::Debug for PutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PutError({self})")
    }
}

impl<T> Error for PutError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.is_cancelled().then_some(&Cancelled as _)
    }
}
