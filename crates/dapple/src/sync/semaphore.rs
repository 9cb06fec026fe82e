//! A semaphore: so many at a time.

use std::fmt;
use std::sync::Arc;

use crate::waitlist::permits::{MAX, PermitRefusal, PermitWait, Permits};
use crate::waitlist::wait::block_on;

/// Lets so many at a time do something.
///
/// Permits are free until somebody who waits is polled and takes them, in the order of those who
/// wait. Who comes while others wait gives way to them once.
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
    /// The most permits that a semaphore can have.
    pub const MAX_PERMITS: usize = MAX;

    /// A semaphore with so many permits.
    ///
    /// # Panics
    ///
    /// With more than [`MAX_PERMITS`](Self::MAX_PERMITS).
    #[must_use]
    #[track_caller]
    pub fn new(permits: usize) -> Semaphore {
        assert!(permits <= MAX, "a semaphore has at most {MAX} permits");
        Semaphore { permits: Permits::new(permits) }
    }

    /// Takes a permit, which goes back when it is dropped.
    ///
    /// # Errors
    ///
    /// If the semaphore is closed, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; no permit is lost.
    /// *Scope cancelled*: returns an error with [`is_cancelled`](AcquireError::is_cancelled), and no
    /// permit has been taken; or the permit, if it could be had when the wait was polled again.
    pub async fn acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.acquire_many(1).await
    }

    /// Takes so many permits at once. Who waits for many holds up those behind him, so that he gets
    /// them in the end.
    ///
    /// # Errors
    ///
    /// If the semaphore is closed, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; no permit is lost.
    /// *Scope cancelled*: returns an error with [`is_cancelled`](AcquireError::is_cancelled), and no
    /// permit has been taken; or all of them, if they could be had when the wait was polled again.
    pub async fn acquire_many(&self, permits: usize) -> Result<SemaphorePermit<'_>, AcquireError> {
        PermitWait::new(&self.permits, permits).await?;
        Ok(SemaphorePermit { semaphore: self, permits })
    }

    /// As [`acquire`](Self::acquire), for a permit that keeps the semaphore alive.
    ///
    /// # Errors
    ///
    /// If the semaphore is closed, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; no permit is lost.
    /// *Scope cancelled*: as [`acquire`](Self::acquire).
    pub async fn acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.acquire_many_owned(1).await
    }

    /// As [`acquire_many`](Self::acquire_many), for permits that keep the semaphore alive.
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

    /// As [`acquire`](Self::acquire), for threads outside: waits on this thread.
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

    /// Takes a permit if one is free, also ahead of those who wait.
    ///
    /// # Errors
    ///
    /// If none is free, or the semaphore is closed.
    pub fn try_acquire(&self) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.try_acquire_many(1)
    }

    /// Takes so many permits if they are free, also ahead of those who wait.
    ///
    /// # Errors
    ///
    /// If there are not enough, or the semaphore is closed.
    pub fn try_acquire_many(&self, permits: usize) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.permits.try_take(permits)?;
        Ok(SemaphorePermit { semaphore: self, permits })
    }

    /// As [`try_acquire`](Self::try_acquire), for a permit that keeps the semaphore alive.
    ///
    /// # Errors
    ///
    /// If none is free, or the semaphore is closed.
    pub fn try_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_acquire_many_owned(1)
    }

    /// As [`try_acquire_many`](Self::try_acquire_many), for permits that keep the semaphore alive.
    ///
    /// # Errors
    ///
    /// If there are not enough, or the semaphore is closed.
    pub fn try_acquire_many_owned(
        self: Arc<Self>,
        permits: usize,
    ) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.permits.try_take(permits)?;
        Ok(OwnedSemaphorePermit { semaphore: self, permits })
    }

    /// Adds permits.
    ///
    /// # Panics
    ///
    /// If there were more than [`MAX_PERMITS`](Self::MAX_PERMITS) then.
    #[track_caller]
    pub fn add_permits(&self, permits: usize) {
        assert!(permits <= MAX - self.permits.free().min(MAX), "a semaphore has at most {MAX} permits");
        self.permits.release(permits);
    }

    /// How many permits are free now.
    #[must_use]
    pub fn available_permits(&self) -> usize {
        self.permits.free()
    }

    /// Refuses everybody from now on, those who wait included. Permits that were given out stay good.
    pub fn close(&self) {
        self.permits.close();
    }

    /// Whether it was closed.
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

/// Permits of a [`Semaphore`], which go back when this is dropped.
#[must_use = "the permits go back at once if this is dropped"]
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    permits: usize,
}

impl SemaphorePermit<'_> {
    /// Keeps the permits from going back: the semaphore has so many fewer from now on.
    pub fn forget(mut self) {
        self.permits = 0;
    }

    /// How many they are.
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

/// Permits of a [`Semaphore`] that keep it alive, and go back when this is dropped.
#[must_use = "the permits go back at once if this is dropped"]
#[derive(Debug)]
pub struct OwnedSemaphorePermit {
    semaphore: Arc<Semaphore>,
    permits: usize,
}

impl OwnedSemaphorePermit {
    /// Keeps the permits from going back: the semaphore has so many fewer from now on.
    pub fn forget(mut self) {
        self.permits = 0;
    }

    /// How many they are.
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

/// Why a wait for a permit got none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AcquireError(PermitRefusal);

impl AcquireError {
    /// The semaphore is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0 == PermitRefusal::Closed
    }

    /// The wait was cancelled.
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
    /// An error for which [`is_cancelled`](crate::is_cancelled) holds if the wait was cancelled.
    fn from(error: AcquireError) -> std::io::Error {
        std::io::Error::other(error)
    }
}

/// Why there is no permit now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryAcquireError(PermitRefusal);

impl TryAcquireError {
    /// The semaphore is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0 == PermitRefusal::Closed
    }

    /// Not enough permits are free.
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
