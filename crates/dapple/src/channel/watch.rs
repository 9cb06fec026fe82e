//! A channel that keeps the latest value, for many receivers.
//!
//! ```
//! use dapple::channel::watch;
//!
//! dapple::run(async {
//!     let (sender, mut receiver) = watch::channel("starting");
//!     let seen = dapple::spawn(async move { receiver.wait_for(|state| *state == "ready").await.map(|s| *s) });
//!     sender.send("loading").unwrap();
//!     sender.send("ready").unwrap();
//!     assert_eq!(seen.await.unwrap().unwrap(), "ready");
//! });
//! ```
//!
//! # Invariants
//!
//! * **VERSION**: the version grows by two with each change, under the lock of the value. Its lowest bit says
//!   that the sender is dropped. Waiters are woken after the version has changed.

use std::fmt;
use std::mem::replace;
use std::ops::Deref;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError, TryLockResult};
use std::task::{Context, Poll, ready};

use futures_core::Stream;

pub use super::error::RecvError;
use crate::Cancelled;
use crate::prim::{AtomicUsize, Ordering};
use crate::waitlist::wait::{Wait, got_at_once};
use crate::waitlist::wait_list::{ListTicket, WaitList};
use crate::world;

/// The sender is dropped. VERSION
const CLOSED: usize = 1;
const STEP: usize = 2;

struct Watched<T> {
    value: RwLock<T>,
    version: AtomicUsize,
    receivers: AtomicUsize,
    /// Receivers that wait for a change.
    waiting: WaitList,
    /// The sender, if it waits for the receivers to be dropped.
    closing: WaitList,
}

impl<T> Watched<T> {
    fn read(&self) -> RwLockReadGuard<'_, T> {
        let in_turn = in_turn(|| self.value.try_read());
        in_turn.unwrap_or_else(|| self.value.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn write(&self) -> RwLockWriteGuard<'_, T> {
        let in_turn = in_turn(|| self.value.try_write());
        in_turn.unwrap_or_else(|| self.value.write().unwrap_or_else(PoisonError::into_inner))
    }

    fn version(&self) -> usize {
        self.version.load(Ordering::Acquire)
    }
}

/// Takes a lock in a simulation, by retrying. The holder of the lock runs foreign code (a closure, or code
/// that uses a [`Ref`]), in which a virtual thread may yield: blocking the real thread would stop the one
/// that is to unlock. `None` outside of a simulation.
fn in_turn<G>(try_lock: impl Fn() -> TryLockResult<G>) -> Option<G> {
    while world::is_simulated() {
        match try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => world::let_others(),
        }
    }
    None
}

/// Creates a channel with an initial value. Use it to publish state, such as a configuration, to many tasks.
///
/// # Examples
///
/// ```
/// use dapple::channel::watch;
///
/// dapple::run(async {
///     let (sender, mut receiver) = watch::channel(1);
///     sender.send(2).unwrap();
///     receiver.changed().await.unwrap();
///     assert_eq!(*receiver.borrow(), 2);
/// });
/// ```
#[must_use]
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let watched = Arc::new(Watched {
        value: RwLock::new(value),
        version: AtomicUsize::new(0),
        receivers: AtomicUsize::new(0),
        waiting: WaitList::default(),
        closing: WaitList::default(),
    });
    let receiver = Receiver::new(watched.clone(), 0);
    (Sender { watched }, receiver)
}

/// Sending half of a watch channel: changes the value.
pub struct Sender<T> {
    watched: Arc<Watched<T>>,
}

impl<T> Sender<T> {
    /// Replaces the value, and wakes all waiting receivers.
    ///
    /// # Errors
    ///
    /// Returns the value if there is no receiver.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::watch;
    ///
    /// dapple::run(async {
    ///     let (sender, mut receiver) = watch::channel("starting");
    ///     sender.send("ready").unwrap();
    ///     receiver.changed().await.unwrap();
    ///     assert_eq!(*receiver.borrow(), "ready");
    /// });
    /// ```
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.receiver_count() == 0 {
            return Err(SendError(value));
        }
        drop(self.send_replace(value));
        Ok(())
    }

    /// Replaces the value, and returns the former one, whether or not there is a receiver.
    pub fn send_replace(&self, value: T) -> T {
        let mut value = Some(value);
        let mut old = None;
        self.send_modify(|place| old = value.take().map(|value| replace(place, value)));
        old.expect("a value that was replaced")
    }

    /// Changes the value in place. No receiver can read it meanwhile: if `modify` borrows the value of this
    /// channel, that is a deadlock.
    ///
    /// # Panics
    ///
    /// If `modify` panics. No receiver is woken then.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::watch;
    ///
    /// let (sender, receiver) = watch::channel(vec![1]);
    /// sender.send_modify(|numbers| numbers.push(2)); // in place, and wakes all receivers
    /// assert_eq!(*receiver.borrow(), [1, 2]);
    /// ```
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.send_if_modified(|value| {
            modify(value);
            true
        });
    }

    /// Changes the value in place, and wakes the waiting receivers if `modify` returns `true`. Returns the
    /// result of `modify`.
    ///
    /// # Panics
    ///
    /// If `modify` panics. No receiver is woken then.
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        let mut value = self.watched.write();
        let modified = modify(&mut value);
        if modified {
            self.watched.version.fetch_add(STEP, Ordering::AcqRel); // VERSION
        }
        drop(value);
        if modified {
            self.watched.waiting.tell();
        }
        modified
    }

    /// Returns a reference to the value. Drop it soon: while the reference exists, a sender that changes the value blocks
    /// its thread. **Deadlock**: the thread that has the reference must not send, or borrow again, before it drops it.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref { value: self.watched.read(), changed: false }
    }

    /// Creates another receiver, which counts the current value as seen.
    #[must_use]
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver::new(self.watched.clone(), self.watched.version())
    }

    /// Number of receivers.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        self.watched.receivers.load(Ordering::Acquire)
    }

    /// Whether there is no receiver.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.receiver_count() == 0
    }

    /// Waits until there is no receiver.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**.
    /// *Scope cancelled*: returns [`Cancelled`]; or `Ok`, if there was no receiver when the wait was polled
    /// again.
    pub async fn closed(&self) -> Result<(), Cancelled> {
        self.watched.closing.until(|| self.is_closed().then_some(())).await
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.watched.version.fetch_or(CLOSED, Ordering::AcqRel);
        self.watched.waiting.tell();
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("receivers", &self.receiver_count()).finish_non_exhaustive()
    }
}

/// Receiving half of a watch channel: reads the value, and waits for changes.
///
/// Also a `Stream` of the values that it changes to, in which `None` means that the sender is dropped. A
/// value that is soon replaced by another one may be skipped.
pub struct Receiver<T> {
    watched: Arc<Watched<T>>,
    /// Version that was seen last.
    seen: usize,
    /// Wait of the stream.
    place: ListTicket,
}

impl<T> Receiver<T> {
    fn new(watched: Arc<Watched<T>>, seen: usize) -> Receiver<T> {
        watched.receivers.fetch_add(1, Ordering::AcqRel);
        Receiver { watched, seen: seen & !CLOSED, place: ListTicket::default() }
    }

    /// Returns a reference to the value. Drop it soon: while the reference exists, a sender that changes the value blocks
    /// its thread. **Deadlock**: the thread that has the reference must not send, or borrow again, before it drops it.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::watch;
    ///
    /// dapple::run(async {
    ///     let (sender, receiver) = watch::channel(vec![1]);
    ///     sender.send_modify(|numbers| numbers.push(2));
    ///     let numbers = receiver.borrow(); // a lock: do not keep it, and never across an await
    ///     assert_eq!(*numbers, [1, 2]);
    /// });
    /// ```
    pub fn borrow(&self) -> Ref<'_, T> {
        let value = self.watched.read();
        let changed = self.watched.version() & !CLOSED != self.seen;
        Ref { value, changed }
    }

    /// Returns a reference to the value, and counts the value as seen. Drop it soon: while the reference exists, a sender
    /// that changes the value blocks its thread.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = self.watched.read();
        let version = self.watched.version() & !CLOSED;
        let changed = replace(&mut self.seen, version) != version;
        Ref { value, changed }
    }

    /// Whether the value has changed since it was last seen.
    ///
    /// # Errors
    ///
    /// If the sender is dropped.
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        let version = self.watched.version();
        if version & CLOSED != 0 {
            return Err(RecvError { cancelled: false });
        }
        Ok(version != self.seen)
    }

    /// Waits until the value has changed since it was last seen, and counts it as seen.
    ///
    /// # Errors
    ///
    /// If the sender is dropped and the last value was seen, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; a change does not count as seen before this returns.
    /// *Scope cancelled*: returns an error with [`is_cancelled`](RecvError::is_cancelled), and no change
    /// counts as seen; or `Ok`, if there was one when the wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::watch;
    ///
    /// dapple::run(async {
    ///     let (sender, mut receiver) = watch::channel(1);
    ///     sender.send(2).unwrap();
    ///     receiver.changed().await.unwrap();
    ///     assert_eq!(*receiver.borrow_and_update(), 2);
    ///     drop(sender);
    ///     assert!(receiver.changed().await.unwrap_err().is_closed());
    /// });
    /// ```
    pub async fn changed(&mut self) -> Result<(), RecvError> {
        let (watched, seen) = (&self.watched, self.seen);
        let version = watched.waiting.until(|| news(watched.version(), seen)).await;
        self.seen = version.map_err(|Cancelled| RecvError { cancelled: true })??;
        Ok(())
    }

    /// Waits until `is_wanted` returns `true` for the value. Returns a reference to the value, which counts
    /// as seen.
    ///
    /// # Errors
    ///
    /// If the sender is dropped and the value is not wanted, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**, except that values passed to `is_wanted` count as seen.
    /// *Scope cancelled*: returns an error with [`is_cancelled`](RecvError::is_cancelled); or the value, if
    /// it was as wanted when the wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::watch;
    ///
    /// dapple::run(async {
    ///     let (sender, mut receiver) = watch::channel("closed");
    ///     let waiter = dapple::spawn(async move { receiver.wait_for(|state| *state == "open").await.map(|_| ()) });
    ///     sender.send("open").unwrap();
    ///     waiter.await.unwrap().unwrap();
    /// });
    /// ```
    pub async fn wait_for(&mut self, mut is_wanted: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, RecvError> {
        let mut begin = Wait::default();
        let begun = std::future::poll_fn(|cx| begin.begin(cx)).await;
        begun.map_err(|Cancelled| RecvError { cancelled: true })?;
        let mut has_waited = false;
        loop {
            {
                let value = self.watched.read();
                let version = self.watched.version() & !CLOSED;
                let changed = replace(&mut self.seen, version) != version;
                if is_wanted(&value) {
                    if !has_waited {
                        got_at_once();
                    }
                    return Ok(Ref { value, changed });
                }
            }
            let (watched, seen) = (&self.watched, self.seen);
            let news = watched.waiting.until(|| news(watched.version(), seen)).await;
            news.map_err(|Cancelled| RecvError { cancelled: true })??;
            has_waited = true;
        }
    }
}

/// Returns the version if it is new; an error if there will be none; `None` if there is none yet.
fn news(version: usize, seen: usize) -> Option<Result<usize, RecvError>> {
    if version & !CLOSED != seen {
        return Some(Ok(version & !CLOSED));
    }
    (version & CLOSED != 0).then_some(Err(RecvError { cancelled: false }))
}

impl<T: Clone> Stream for Receiver<T> {
    type Item = Result<T, Cancelled>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let (watched, seen) = (&this.watched, this.seen);
        let polled = watched.waiting.poll_until(&mut this.place, cx, || news(watched.version(), seen));
        Poll::Ready(match ready!(polled) {
            Ok(Ok(_)) => Some(Ok(this.borrow_and_update().clone())),
            Ok(Err(_)) => None,
            Err(cancelled) => Some(Err(cancelled)),
        })
    }
}

impl<T> Unpin for Receiver<T> {}

impl<T> Clone for Receiver<T> {
    /// Creates another receiver, which has seen the same version as this one.
    fn clone(&self) -> Receiver<T> {
        Receiver::new(self.watched.clone(), self.seen)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.watched.waiting.leave(&mut self.place);
        if self.watched.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.watched.closing.tell();
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("changed", &self.has_changed()).finish_non_exhaustive()
    }
}

/// Reference to the value of a watch channel. While it exists, a sender that changes the value blocks its thread.
pub struct Ref<'a, T> {
    value: RwLockReadGuard<'a, T>,
    changed: bool,
}

impl<T> Ref<'_, T> {
    /// Whether the receiver had not seen this value before. `false` for the sender.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        self.changed
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// Error of [`Sender::send`]: there is no receiver. Holds the value.
///
/// # Examples
///
/// ```
/// use dapple::channel::watch;
///
/// let (sender, receiver) = watch::channel(1);
/// drop(receiver);
/// let error = sender.send(2).unwrap_err(); // no receiver is left
/// assert_eq!(error.0, 2);
/// ```
pub struct SendError<T>(pub T);

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no receiver")
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendError({self})")
    }
}

impl<T> std::error::Error for SendError<T> {}
