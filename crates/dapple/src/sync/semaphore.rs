//! Semaphore: limits how many tasks do something at a time.

use std::fmt;
use std::sync::Arc;

use crate::waitlist::permits::{MAX, PermitRefusal, PermitWait, Permits};
use crate::waitlist::wait::block_on;

/// Semaphore: a number of permits that callers take, and give back by dropping them.
///
/// Use it to limit concurrency. Permits stay free until a waiter is polled and takes them; waiters are served
/// in order. A caller that arrives while others wait yields to them once.
///
/// # Examples
///
/// ```
/// use dapple::sync::Semaphore;
/// use std::sync::Arc;
///
/// dapple::run(async {
///     let two_at_a_time = Arc::new(Semaphore::new(2));
///     let downloads: Vec<_> = (0..10)
///         .map(|number| {
///             let turns = two_at_a_time.clone();
///             dapple::spawn(async move {
///                 let _turn = turns.acquire().await?;
///                 Ok::<_, dapple::sync::AcquireError>(number) // at most two are here
///             })
///         })
///         .collect();
///     for (number, download) in downloads.into_iter().enumerate() {
///         assert_eq!(download.await.unwrap().unwrap(), number);
///     }
/// });
/// ```
pub struct Semaphore {
    permits: Permits,
}

impl Semaphore {
    /// Most permits that a semaphore can have.
    pub const MAX_PERMITS: usize = MAX;

    /// Creates a semaphore with `permits` free permits.
    ///
    /// # Panics
    ///
    /// If `permits` is more than [`MAX_PERMITS`](Self::MAX_PERMITS).
    #[must_use]
    #[track_caller]
    pub fn new(permits: usize) -> Semaphore {
        assert!(permits <= MAX, "a semaphore has at most {MAX} permits");
        Semaphore { permits: Permits::new(permits) }
    }

    /// Takes one permit. Dropping the permit gives it back.
    ///
    /// # Errors
    ///
    /// If the semaphore is closed, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; no permit is lost.
    /// *Scope cancelled*: returns an error with [`is_cancelled`](AcquireError::is_cancelled), and no permit
    /// has been taken; or the permit, if one was free when the wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::sync::Semaphore;
    ///
    /// dapple::run(async {
    ///     let counters = Semaphore::new(2);
    ///     let permit = counters.acquire().await.unwrap();
    ///     assert_eq!(counters.available_permits(), 1);
    ///     drop(permit); // gives it back
    ///     assert_eq!(counters.available_permits(), 2);
    /// });
    /// ```
    pub async fn acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.acquire_many(1).await
    }

    /// Takes several permits at once. Waiters behind this one wait until it is served, so that it cannot
    /// starve.
    ///
    /// # Errors
    ///
    /// If the semaphore is closed, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; no permit is lost.
    /// *Scope cancelled*: returns an error with [`is_cancelled`](AcquireError::is_cancelled), and no permit
    /// has been taken; or all permits, if enough were free when the wait was polled again.
    pub async fn acquire_many(&self, permits: usize) -> Result<SemaphorePermit<'_>, AcquireError> {
        PermitWait::new(&self.permits, permits).await?;
        Ok(SemaphorePermit { semaphore: self, permits })
    }

    /// As [`acquire`](Self::acquire), with a permit that keeps the [`Arc`] of the semaphore.
    ///
    /// # Errors
    ///
    /// If the semaphore is closed, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; no permit is lost.
    /// *Scope cancelled*: as [`acquire`](Self::acquire).
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::sync::Semaphore;
    /// use std::sync::Arc;
    ///
    /// dapple::run(async {
    ///     let counters = Arc::new(Semaphore::new(2));
    ///     let permit = counters.clone().acquire_owned().await.unwrap();
    ///     let customer = dapple::spawn(async move {
    ///         let _permit = permit; // given back when the task ends
    ///     });
    ///     customer.await.unwrap();
    ///     assert_eq!(counters.available_permits(), 2);
    /// });
    /// ```
    pub async fn acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.acquire_many_owned(1).await
    }

    /// As [`acquire_many`](Self::acquire_many), with permits that keep the [`Arc`] of the semaphore.
    ///
    /// # Errors
    ///
    /// If the semaphore is closed, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; no permit is lost.
    /// *Scope cancelled*: as [`acquire_many`](Self::acquire_many).
    pub async fn acquire_many_owned(
        self: Arc<Self>,
        permits: usize,
    ) -> Result<OwnedSemaphorePermit, AcquireError> {
        PermitWait::new(&self.permits, permits).await?;
        Ok(OwnedSemaphorePermit { semaphore: self, permits })
    }

    /// As [`acquire`](Self::acquire), for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// If the semaphore is closed, or the call was cancelled in [`blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    #[track_caller]
    pub fn acquire_blocking(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        block_on("Semaphore::acquire_blocking", self.acquire())
    }

    /// Takes a permit if one is free, even ahead of waiters.
    ///
    /// # Errors
    ///
    /// If none is free, or the semaphore is closed.
    ///
    /// # Examples
    ///
    /// ```
    /// let counters = dapple::sync::Semaphore::new(1);
    /// let permit = counters.try_acquire().unwrap();
    /// assert!(counters.try_acquire().unwrap_err().is_busy());
    /// drop(permit);
    /// assert!(counters.try_acquire().is_ok());
    /// ```
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.try_acquire_many(1)
    }

    /// Takes several permits if they are free, even ahead of waiters.
    ///
    /// # Errors
    ///
    /// If not enough are free, or the semaphore is closed.
    pub fn try_acquire_many(&self, permits: usize) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.permits.try_take(permits)?;
        Ok(SemaphorePermit { semaphore: self, permits })
    }

    /// As [`try_acquire`](Self::try_acquire), with a permit that keeps the [`Arc`] of the semaphore.
    ///
    /// # Errors
    ///
    /// If none is free, or the semaphore is closed.
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire_many_owned(1)
    }

    /// As [`try_acquire_many`](Self::try_acquire_many), with permits that keep the [`Arc`] of the semaphore.
    ///
    /// # Errors
    ///
    /// If not enough are free, or the semaphore is closed.
    pub fn try_acquire_many_owned(
        self: Arc<Self>,
        permits: usize,
    ) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.permits.try_take(permits)?;
        Ok(OwnedSemaphorePermit { semaphore: self, permits })
    }

    /// Adds new permits, and wakes waiters for them. Use it to raise the number of permits after the start.
    ///
    /// # Panics
    ///
    /// If the semaphore would have more than [`MAX_PERMITS`](Self::MAX_PERMITS) free permits.
    #[track_caller]
    pub fn add_permits(&self, permits: usize) {
        assert!(permits <= MAX - self.permits.free().min(MAX), "a semaphore has at most {MAX} permits");
        self.permits.release(permits);
    }

    /// Returns the number of free permits.
    #[must_use]
    pub fn available_permits(&self) -> usize {
        self.permits.free()
    }

    /// Closes the semaphore: it refuses all callers from now on, and all waiters. Permits in use stay valid.
    pub fn close(&self) {
        self.permits.close();
    }

    /// Whether the semaphore is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.permits.is_closed()
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore").field("available", &self.permits.free()).finish_non_exhaustive()
    }
}

/// Permits of a [`Semaphore`]. Dropping this gives them back.
#[must_use = "the permits go back at once if this is dropped"]
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
}

impl SemaphorePermit<'_> {
    /// Does not give the permits back: the semaphore has fewer permits from now on.
    pub fn forget(mut self) {
        self.permits = 0;
    }

    /// Number of permits.
    #[must_use]
    pub fn count(&self) -> usize {
        self.permits
    }
}

impl Drop for SemaphorePermit<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.permits != 0 {
            self.semaphore.permits.release(self.permits);
        }
    }
}

/// Permits of a [`Semaphore`] that keep its [`Arc`]. Dropping this gives them back.
#[must_use = "the permits go back at once if this is dropped"]
#[derive(Debug)]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<Semaphore>,
    permits: usize,
}

impl OwnedSemaphorePermit {
    /// Does not give the permits back: the semaphore has fewer permits from now on.
    pub fn forget(mut self) {
        self.permits = 0;
    }

    /// Number of permits.
    #[must_use]
    pub fn count(&self) -> usize {
        self.permits
    }
}

impl Drop for OwnedSemaphorePermit {
    #[inline]
    fn drop(&mut self) {
        if self.permits != 0 {
            self.semaphore.permits.release(self.permits);
        }
    }
}

/// Error of [`Semaphore::acquire`] and its variants.
///
/// # Examples
///
/// ```
/// use dapple::sync::Semaphore;
///
/// dapple::run(async {
///     let counters = Semaphore::new(0);
///     counters.close();
///     assert!(counters.acquire().await.unwrap_err().is_closed());
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireError(PermitRefusal);

impl AcquireError {
    /// Whether the semaphore is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0 == PermitRefusal::Closed
    }

    /// Whether the wait was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0 == PermitRefusal::Cancelled
    }
}

impl From<PermitRefusal> for AcquireError {
    fn from(refused: PermitRefusal) -> AcquireError {
        AcquireError(refused)
    }
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_closed() { "the semaphore is closed" } else { "the wait was cancelled" })
    }
}

impl std::error::Error for AcquireError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.is_cancelled().then_some(&crate::Cancelled as _)
    }
}

impl From<AcquireError> for std::io::Error {
    /// [`is_cancelled`](crate::is_cancelled) holds for the error if the wait was cancelled.
    fn from(error: AcquireError) -> std::io::Error {
        std::io::Error::other(error)
    }
}

/// Error of [`Semaphore::try_acquire`] and its variants.
///
/// # Examples
///
/// ```
/// use dapple::sync::Semaphore;
///
/// let counters = Semaphore::new(1);
/// let _permit = counters.try_acquire().unwrap();
/// assert!(counters.try_acquire().unwrap_err().is_busy());
/// counters.close();
/// assert!(counters.try_acquire().unwrap_err().is_closed());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryAcquireError(PermitRefusal);

impl TryAcquireError {
    /// Whether the semaphore is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0 == PermitRefusal::Closed
    }

    /// Whether not enough permits are free.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.0 == PermitRefusal::Busy
    }
}

impl From<PermitRefusal> for TryAcquireError {
    fn from(refused: PermitRefusal) -> TryAcquireError {
        TryAcquireError(refused)
    }
}

impl fmt::Display for TryAcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_closed() { "the semaphore is closed" } else { "not enough permits are free" })
    }
}

impl std::error::Error for TryAcquireError {}
