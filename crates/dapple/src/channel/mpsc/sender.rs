//! Senders of a channel, and weak senders, which do not keep it open.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc;

use super::chan::Chan;
use super::error::{ReserveError, SendError, TrySendError};
use super::permit::{OwnedPermit, Permit};
use super::room::SendWait;
use crate::Cancelled;
use crate::waitlist::permits::{PermitRefusal, PermitWait};
use crate::waitlist::wait::block_on;

/// Sending half of a channel. Clones send to the same receiver.
///
/// The channel closes when the last sender is dropped.
///
/// # Examples
///
/// ```
/// use dapple::channel::mpsc;
///
/// dapple::run(async {
///     let (sender, mut receiver) = mpsc::bounded(10);
///     let other = sender.clone();
///     dapple::spawn(async move { other.send("from a task").await }).detach();
///     drop(sender);
///     assert_eq!(receiver.recv().await.unwrap(), "from a task");
///     assert!(receiver.recv().await.unwrap_err().is_closed()); // all senders are gone
/// });
/// ```
pub struct Sender<T> {
    pub(super) chan: Arc<Chan<T>>,
}

impl<T> Sender<T> {
    pub(super) fn new(chan: Arc<Chan<T>>) -> Sender<T> {
        Sender { chan }
    }

    /// Sends a message. Waits while the channel is full.
    ///
    /// # Errors
    ///
    /// Returns the message if the receiver is dropped or closed, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the message is dropped with the wait, and has not been sent; the wait
    /// loses its place. Use [`reserve`](Self::reserve) to keep the message.
    /// *Scope cancelled*: returns a [`SendError`] with the message, which has not been sent; or `Ok`, if
    /// there was room when the wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::mpsc;
    ///
    /// dapple::run(async {
    ///     let (sender, receiver) = mpsc::bounded(1);
    ///     sender.send("first").await.unwrap();
    ///     drop(receiver);
    ///     let error = sender.send("second").await.unwrap_err();
    ///     assert!(error.is_closed());
    ///     assert_eq!(error.into_inner(), "second");
    /// });
    /// ```
    pub async fn send(&self, message: T) -> Result<(), SendError<T>> {
        let mut sending = SendWait::new(&self.chan, Some(message));
        let sent = poll_fn(|cx| sending.poll(cx)).await;
        sent.map_err(|refused| SendError {
            message: sending.message.take().expect("a message that was not sent"),
            cancelled: refused == PermitRefusal::Cancelled,
        })
    }

    /// Sends a message if there is room now, even ahead of waiting senders.
    ///
    /// # Errors
    ///
    /// Returns the message if the channel is full, or the receiver is dropped or closed.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::mpsc;
    ///
    /// let (sender, mut receiver) = mpsc::bounded(1);
    /// sender.try_send(1).unwrap();
    /// assert!(sender.try_send(2).unwrap_err().is_full()); // a slow receiver: drop it, or the message
    /// assert_eq!(receiver.try_recv().unwrap(), 1);
    /// ```
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let mut message = Some(message);
        self.chan.try_take(&mut message).map_err(|refused| TrySendError {
            message: message.take().expect("a message that was not sent"),
            closed: refused == PermitRefusal::Closed,
        })
    }

    /// As [`send`](Self::send), for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// Returns the message if the receiver is dropped or closed, or the call was cancelled in
    /// [`blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::mpsc;
    /// use std::thread;
    ///
    /// dapple::run(async {
    ///     let (sender, mut receiver) = mpsc::bounded(1);
    ///     thread::spawn(move || sender.send_blocking("from a thread").unwrap());
    ///     assert_eq!(receiver.recv().await, Ok("from a thread"));
    /// });
    /// ```
    #[track_caller]
    pub fn send_blocking(&self, message: T) -> Result<(), SendError<T>> {
        block_on("mpsc::Sender::send_blocking", self.send(message))
    }

    /// Waits for room for one message, which can then be sent without waiting. Use it to keep the message if
    /// the wait is dropped.
    ///
    /// # Errors
    ///
    /// If the receiver is dropped or closed, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**.
    /// *Scope cancelled*: returns a [`ReserveError`], and nothing has been reserved; or the permit, if
    /// there was room when the wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::mpsc;
    ///
    /// dapple::run(async {
    ///     let (sender, mut receiver) = mpsc::bounded(1);
    ///     let permit = sender.reserve().await.unwrap(); // waits for room, before the message is made
    ///     permit.send("made late").unwrap(); // never waits
    ///     assert_eq!(receiver.recv().await, Ok("made late"));
    /// });
    /// ```
    pub async fn reserve(&self) -> Result<Permit<'_, T>, ReserveError> {
        let mut sending = SendWait::new(&self.chan, None);
        poll_fn(|cx| sending.poll(cx)).await.map_err(ReserveError)?;
        drop(sending);
        Ok(Permit::new(self))
    }

    /// As [`reserve`](Self::reserve), with a permit that owns the sender.
    ///
    /// # Errors
    ///
    /// If the receiver is dropped or closed, or the wait was cancelled. The sender is dropped then.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; the sender is dropped.
    /// *Scope cancelled*: as [`reserve`](Self::reserve).
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::mpsc;
    ///
    /// dapple::run(async {
    ///     let (sender, mut receiver) = mpsc::bounded(1);
    ///     let permit = sender.reserve_owned().await.unwrap(); // borrows nothing
    ///     let task = dapple::spawn(async move { permit.send(7).is_ok() });
    ///     assert_eq!(receiver.recv().await, Ok(7));
    ///     assert!(task.await.unwrap());
    /// });
    /// ```
    pub async fn reserve_owned(self) -> Result<OwnedPermit<T>, ReserveError> {
        let mut sending = SendWait::new(&self.chan, None);
        poll_fn(|cx| sending.poll(cx)).await.map_err(ReserveError)?;
        drop(sending);
        Ok(OwnedPermit::new(self))
    }

    /// Reserves room for one message if there is some now.
    ///
    /// # Errors
    ///
    /// If the channel is full, or the receiver is dropped or closed.
    pub fn try_reserve(&self) -> Result<Permit<'_, T>, ReserveError> {
        self.chan.try_take(&mut None).map_err(ReserveError)?;
        Ok(Permit::new(self))
    }

    /// Waits until the receiver is dropped or closed.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**.
    /// *Scope cancelled*: returns [`Cancelled`]; or `Ok`, if the receiver was dropped or closed when the wait
    /// was polled again.
    pub async fn closed(&self) -> Result<(), Cancelled> {
        match PermitWait::new(&self.chan.closing, 1).await {
            Err(PermitRefusal::Cancelled) => Err(Cancelled),
            _ => Ok(()),
        }
    }

    /// Whether the receiver is dropped or closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.chan.closing.is_closed()
    }

    /// Number of messages that can be sent now without waiting.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.chan.room()
    }

    /// Capacity of the channel.
    #[must_use]
    pub fn max_capacity(&self) -> usize {
        self.chan.capacity
    }

    /// Whether both send to the same receiver.
    #[must_use]
    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        Arc::ptr_eq(&self.chan, &other.chan)
    }

    /// Creates a weak sender, which does not keep the channel open.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::mpsc;
    ///
    /// dapple::run(async {
    ///     let (sender, mut receiver) = mpsc::bounded::<u32>(1);
    ///     let weak = sender.downgrade(); // does not keep the channel open
    ///     assert!(weak.upgrade().is_some());
    ///     drop(sender);
    ///     assert!(receiver.recv().await.unwrap_err().is_closed());
    ///     assert!(weak.upgrade().is_none());
    /// });
    /// ```
    #[must_use]
    pub fn downgrade(&self) -> WeakSender<T> {
        WeakSender { chan: self.chan.clone() }
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.chan.add_sender();
        Sender { chan: self.chan.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.chan.drop_sender();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender")
            .field("capacity", &self.capacity())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

/// A sender that does not keep the channel open. [`upgrade`](Self::upgrade) it to send.
pub struct WeakSender<T> {
    chan: Arc<Chan<T>>,
}

impl<T> WeakSender<T> {
    /// Returns a sender, if one still exists.
    #[must_use]
    pub fn upgrade(&self) -> Option<Sender<T>> {
        self.chan.try_add_sender().then(|| Sender { chan: self.chan.clone() })
    }
}

impl<T> Clone for WeakSender<T> {
    fn clone(&self) -> WeakSender<T> {
        WeakSender { chan: self.chan.clone() }
    }
}

impl<T> fmt::Debug for WeakSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WeakSender").field("senders", &self.chan.sender_count()).finish_non_exhaustive()
    }
}
