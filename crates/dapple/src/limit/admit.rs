//! Admission: for code that waits until a limit has room, or that asks before it begins.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::{Inner, Limit};
use crate::Cancelled;
use crate::cancel::check::is_current_cancelled;
use crate::lane::limited::{Admission, waited_since};
use crate::prim::Ordering;
use crate::time::{Instant, sleep_until};

/// Right to do work that a [`Limit`] bounds: the work counts as running until this is dropped.
///
/// # Examples
///
/// ```
/// use dapple::limit::Limit;
///
/// let limit = Limit::new().concurrency(2);
/// let admitted = limit.try_admit().unwrap();
/// assert_eq!(limit.stats().running, 1);
/// drop(admitted);
/// assert_eq!(limit.stats().running, 0);
/// ```
#[derive(Debug)]
#[must_use = "the admitted work counts as ended when this is dropped"]
pub struct Admitted(Limit);

/// Error of [`Limit::try_admit`] and [`Limit::check`]: the limit has refused the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    retry_after: Duration,
    is_closed: bool,
}

impl Refused {
    /// Time after which another try may succeed: the limit's interval, or a second. A
    /// [closed](Self::is_closed) limit refuses for ever; a client may try another server, or this one after
    /// its restart.
    #[must_use]
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }

    /// Whether the limit is [closed](Limit::close): it refuses all work from now on.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_closed {
            return f.write_str("refused: the limit is closed and admits no more work");
        }
        write!(f, "refused: overload; try again in {:?}", self.retry_after)
    }
}

impl std::error::Error for Refused {}

/// Error of [`Limit::admit`] and [`Limit::room`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmitError {
    is_closed: bool,
}

impl AdmitError {
    /// Whether the limit is [closed](Limit::close): it never has room again.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether the wait was cancelled. Another wait may succeed.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        !self.is_closed
    }
}

impl From<Cancelled> for AdmitError {
    fn from(_: Cancelled) -> AdmitError {
        AdmitError { is_closed: false }
    }
}

impl fmt::Display for AdmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_closed {
            true => f.write_str("the limit is closed and admits no more work"),
            false => Cancelled.fmt(f),
        }
    }
}

impl std::error::Error for AdmitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.is_cancelled().then_some(&Cancelled as _)
    }
}

impl From<AdmitError> for std::io::Error {
    /// [`is_cancelled`](crate::is_cancelled) holds for the error if the wait was cancelled.
    fn from(error: AdmitError) -> std::io::Error {
        std::io::Error::other(error)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.0.end_run();
    }
}

/// A registered waiter for changes of the limit. COUNT-THEN-LOOK
struct Watching<'a>(&'a Inner);

impl Inner {
    fn watch(&self) -> Watching<'_> {
        self.watchers.fetch_add(1, Ordering::SeqCst);
        Watching(self)
    }

    /// Whether all bounds leave room for one more.
    fn has_room(&self) -> bool {
        let is_over = || self.delay.as_ref().is_some_and(|delay| delay.is_over(self.now()));
        let is_full = || {
            self.concurrency.is_some_and(|most| {
                let room = crate::prim::lock(&self.room);
                room.running + room.reserved >= most
            })
        };
        !self.is_closed.load(Ordering::SeqCst)
            && self.waiting.load(Ordering::SeqCst) < self.depth
            && !is_over()
            && !is_full()
    }

    /// Waits until `done` returns `Some`. Calls it after every change, and whenever an interval of the delay
    /// ends.
    async fn wait_for<T>(&self, mut done: impl FnMut() -> Option<T>) -> Result<T, Cancelled> {
        if is_current_cancelled() {
            return Err(Cancelled);
        }
        let _watching = self.watch();
        loop {
            let mut changed = pin!(self.changed.notified());
            if let Some(result) = done() {
                return Ok(result);
            }
            let is_over = self.delay.as_ref().is_some_and(|delay| delay.is_over(self.now()));
            let look = self.delay.as_ref().filter(|_| is_over).map(|delay| {
                let left = delay.next_look().saturating_sub(self.now());
                sleep_until(Instant::now() + Duration::from_nanos(left))
            });
            let mut look = pin!(look);
            poll_fn(|cx| {
                if let Some(look) = look.as_mut().as_pin_mut()
                    && let Poll::Ready(slept) = look.poll(cx)
                {
                    return Poll::Ready(slept);
                }
                changed.as_mut().poll(cx)
            })
            .await?;
        }
    }

    /// As `wait_for`, until the limit is closed, which is an error.
    async fn wait_while_open<T>(&self, mut done: impl FnMut() -> Option<T>) -> Result<T, AdmitError> {
        let closed_or_done = || match self.is_closed.load(Ordering::SeqCst) {
            true => Some(Err(AdmitError { is_closed: true })),
            false => done().map(Ok),
        };
        let admitted = self.wait_for(closed_or_done).await?;
        if admitted.is_err() {
            self.refuse();
        }
        admitted
    }

    #[cold]
    fn refuse_now(&self) -> Refused {
        self.refuse();
        let retry_after = self.delay.as_ref().map_or(Duration::from_secs(1), |delay| delay.interval());
        Refused { retry_after, is_closed: self.is_closed.load(Ordering::SeqCst) }
    }
}

impl Drop for Watching<'_> {
    fn drop(&mut self) {
        // The wake-up of this waiter may be useful to the next one.
        if self.0.watchers.fetch_sub(1, Ordering::SeqCst) > 1 {
            self.0.changed.notify_one();
        }
    }
}

impl Limit {
    /// Admits work that begins now, in the running task, or refuses it. The work counts as running until the
    /// returned value is dropped.
    ///
    /// Use it in a server that has read a request and is about to handle it without spawning a task.
    ///
    /// The bound [`delay`](Limit::delay) needs a waiting time: that of the running task, if it was spawned with
    /// [`measure_wait`](crate::task::Builder::measure_wait); otherwise that of its color, if the color has a limit.
    /// Other work counts as not having waited.
    ///
    /// # Errors
    ///
    /// [`Refused`], if the limit is over its delay and this work has waited too long, if `concurrency` is
    /// used up, or if the limit is closed.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::limit::Limit;
    ///
    /// let limit = Limit::new().concurrency(1);
    /// let first = limit.try_admit().unwrap();
    /// assert!(limit.try_admit().is_err());
    /// drop(first);
    /// assert!(limit.try_admit().is_ok());
    /// ```
    pub fn try_admit(&self) -> Result<Admitted, Refused> {
        self.check()?;
        if !self.0.try_run() {
            return Err(self.0.refuse_now());
        }
        Ok(Admitted(self.clone()))
    }

    /// As [`try_admit`](Limit::try_admit), but the work does not count as running, and
    /// [`concurrency`](Limit::concurrency) is not checked. Use it for short and frequent work, where counting
    /// would make workers contend.
    ///
    /// # Errors
    ///
    /// [`Refused`], if the limit is over its delay and this work has waited too long, or if the limit is
    /// closed.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::limit::Limit;
    ///
    /// let limit = Limit::new();
    /// assert!(limit.check().is_ok());
    /// limit.close();
    /// assert!(limit.check().unwrap_err().is_closed());
    /// ```
    pub fn check(&self) -> Result<(), Refused> {
        let inner = &*self.0;
        let is_late = inner.delay.as_ref().is_some_and(|delay| {
            let now = inner.now();
            let waited = waited_since().map_or(0, |since| now.saturating_sub(since));
            delay.observe(waited, now)
        });
        if is_late || inner.is_closed.load(Ordering::SeqCst) {
            return Err(inner.refuse_now());
        }
        Ok(())
    }

    /// Waits until all bounds of the limit leave room. The caller then counts as running until the returned
    /// value is dropped.
    ///
    /// Tasks that the limit holds back go ahead of waiters in `admit`.
    ///
    /// # Errors
    ///
    /// If the limit is [closed](Limit::close), before or during the wait ([`AdmitError::is_closed`]); this
    /// counts as refused. If the wait was cancelled ([`AdmitError::is_cancelled`]).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**.
    /// *Scope cancelled*: returns an error with [`is_cancelled`](AdmitError::is_cancelled), and nothing was
    /// admitted.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::limit::Limit;
    ///
    /// dapple::run(async {
    ///     let limit = Limit::new().concurrency(2);
    ///     let mut crawlers = Vec::new();
    ///     for page in 0..10 {
    ///         let admitted = limit.admit().await.unwrap(); // no more than two at a time
    ///         crawlers.push(dapple::spawn(async move {
    ///             let _admitted = admitted;
    ///             page
    ///         }));
    ///     }
    ///     for (page, crawler) in crawlers.into_iter().enumerate() {
    ///         assert_eq!(crawler.await.unwrap(), page);
    ///     }
    /// });
    /// ```
    pub async fn admit(&self) -> Result<Admitted, AdmitError> {
        let inner = &*self.0;
        inner.wait_while_open(|| (inner.has_room() && inner.try_run()).then(|| Admitted(self.clone()))).await
    }

    /// Waits until there is room, as [`admit`](Limit::admit), but takes none. Use it before code that brings
    /// in more work, such as a loop that accepts connections.
    ///
    /// # Errors
    ///
    /// As [`admit`](Limit::admit).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**.
    /// *Scope cancelled*: returns an error with [`is_cancelled`](AdmitError::is_cancelled).
    pub async fn room(&self) -> Result<(), AdmitError> {
        let inner = &*self.0;
        inner.wait_while_open(|| inner.has_room().then_some(())).await
    }

    /// Whether one more task would be let in now: the limit is open, and none of its bounds is reached. The answer may
    /// be out of date at once; to take the room, call [`try_admit`](Limit::try_admit).
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.0.has_room()
    }

    /// [Closes](Limit::close) the limit, and waits until all work that has begun has ended. Use it for a
    /// graceful shutdown.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**, except that the limit stays closed.
    /// *Scope cancelled*: returns [`Cancelled`], and the limit stays closed.
    pub async fn drained(&self) -> Result<(), Cancelled> {
        self.close();
        let inner = &*self.0;
        inner.wait_for(|| (inner.running() == 0).then_some(())).await
    }
}

impl Limit {
    /// As [`room`](Limit::room), for a listener. With a closed limit it waits until it is cancelled, so the
    /// listener accepts nothing more.
    pub(crate) async fn into_room(self) -> Result<(), Cancelled> {
        let inner = &*self.0;
        inner.wait_for(|| inner.has_room().then_some(())).await
    }
}
