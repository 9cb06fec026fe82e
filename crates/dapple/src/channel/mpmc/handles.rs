//! The senders and the receivers of a channel.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::super::error::{RecvError, TryRecvError};
use super::super::mpsc::{SendError, TrySendError};
use super::message_store::MessageStore;
use crate::Cancelled;
use crate::prim::{AtomicUsize, Ordering};
use crate::waitlist::exchange::{ExchangePlace, ToPut, ToTake};
use crate::waitlist::permits::PermitRefusal;
use crate::waitlist::wait::block_on;
use crate::waitlist::wait_list::WaitList;

struct MpmcChan<T> {
    store: MessageStore<T>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    /// Senders that wait for the channel to close.
    closing: WaitList,
}

pub(super) fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let chan = Arc::new(MpmcChan {
        store: MessageStore::new(capacity),
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(1),
        closing: WaitList::default(),
    });
    (Sender { chan: chan.clone() }, Receiver { chan, place: ExchangePlace::loose() })
}

impl<T> MpmcChan<T> {
    fn close(&self, drops: bool) {
        let left = self.store.close(drops);
        self.closing.tell();
        drop(left);
    }
}

/// Sending end of an [`mpmc`](super) channel. Clones send to the same receivers.
pub struct Sender<T> {
    chan: Arc<MpmcChan<T>>,
}

impl<T> Sender<T> {
    /// Sends a message, once there is room for it.
    ///
    /// # Errors
    ///
    /// Hands the message back if all receivers are gone, the channel was closed, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the message is dropped with the wait, and has not been sent; loses its place.
    /// *Scope cancelled*: returns a [`SendError`] with the message, which has not been sent; or `Ok`, if there was room when
    /// the wait was polled again.
    pub async fn send(&self, message: T) -> Result<(), SendError<T>> {
        let mut sending = SendTo { chan: &self.chan, place: ExchangePlace::default() };
        let mut message = ToPut(Some(message));
        let sent =
            poll_fn(|cx| sending.chan.store.exchange.poll_take(&mut message, &mut sending.place, cx)).await;
        sent.map_err(|refused| SendError {
            message: message.0.take().expect("a message that was not sent"),
            cancelled: refused == PermitRefusal::Cancelled,
        })
    }

    /// Sends a message if there is room now, also ahead of waiters.
    ///
    /// # Errors
    ///
    /// Hands the message back if there is no room, all receivers are gone, or the channel was closed.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let mut message = ToPut(Some(message));
        self.chan.store.exchange.try_take(&mut message).map_err(|refused| TrySendError {
            message: message.0.take().expect("a message that was not sent"),
            closed: refused == PermitRefusal::Closed,
        })
    }

    /// As [`send`](Self::send), for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// As [`send`](Self::send), if the call was cancelled in [`blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    #[track_caller]
    pub fn send_blocking(&self, message: T) -> Result<(), SendError<T>> {
        block_on("mpmc::Sender::send_blocking", self.send(message))
    }

    /// Waits until all receivers are gone, or the channel was closed.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**.
    /// *Scope cancelled*: returns [`Cancelled`]; or `Ok`, if it was closed when the wait was polled again.
    pub async fn closed(&self) -> Result<(), Cancelled> {
        self.chan.closing.until(|| self.is_closed().then_some(())).await
    }

    /// Closes the channel: every later `send` fails, and waiting senders get their message back. Messages that are left can
    /// still be received.
    pub fn close(&self) {
        self.chan.close(false);
    }

    /// Whether the channel is closed: no message can be sent any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.chan.store.is_closed()
    }

    /// Returns the number of messages that fit now, beside those that wait to be received.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.chan.store.capacity - self.len()
    }

    /// Returns the capacity of the channel.
    #[must_use]
    pub fn max_capacity(&self) -> usize {
        self.chan.store.capacity
    }

    /// Returns the number of messages that wait to be received.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chan.store.len()
    }

    /// Whether no message waits to be received.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether both belong to the same channel.
    #[must_use]
    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        Arc::ptr_eq(&self.chan, &other.chan)
    }
}

/// A wait of a sender.
struct SendTo<'a, T> {
    chan: &'a MpmcChan<T>,
    place: ExchangePlace,
}

impl<T> Drop for SendTo<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.chan.store.exchange.leave::<ToPut<T>>(&mut self.place);
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.chan.senders.fetch_add(1, Ordering::Relaxed);
        Sender { chan: self.chan.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.chan.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.chan.close(false);
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Sender");
        debug.field("len", &self.len()).field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}

/// Receiving end of an [`mpmc`](super) channel. Clones receive from the same channel: each message goes to one of
/// them.
///
/// It is also a `Stream` of `Result<T, Cancelled>`. `None` means that the channel is closed and everything has been
/// received. `Some(Err(Cancelled))` means that the wait was cancelled; nothing is lost.
pub struct Receiver<T> {
    chan: Arc<MpmcChan<T>>,
    /// The wait of the stream.
    place: ExchangePlace,
}

impl<T> Receiver<T> {
    /// Receives the next message.
    ///
    /// # Errors
    ///
    /// If no more messages will come, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; no message is lost.
    /// *Scope cancelled*: returns an error with [`is_cancelled`](RecvError::is_cancelled), and no message was taken; or a
    /// message, if there was one when the wait was polled again.
    pub async fn recv(&self) -> Result<T, RecvError> {
        let mut waits = ReceiveFrom { chan: &self.chan, place: ExchangePlace::default() };
        let mut message = ToTake(None);
        let got = poll_fn(|cx| waits.chan.store.exchange.poll_take(&mut message, &mut waits.place, cx)).await;
        got.map_err(|refused| RecvError { cancelled: refused == PermitRefusal::Cancelled })?;
        Ok(message.0.take().expect("a message that was taken"))
    }

    /// As [`recv`](Self::recv), for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// As [`recv`](Self::recv), if the call was cancelled in [`blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    #[track_caller]
    pub fn recv_blocking(&self) -> Result<T, RecvError> {
        block_on("mpmc::Receiver::recv_blocking", self.recv())
    }

    /// Receives a message if there is one now, also ahead of waiters.
    ///
    /// # Errors
    ///
    /// If there is none now, and if the channel is closed and empty.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut message = ToTake(None);
        let taken = self.chan.store.exchange.try_take(&mut message);
        taken.map_err(|refused| TryRecvError { closed: refused == PermitRefusal::Closed })?;
        Ok(message.0.take().expect("a message that was taken"))
    }

    /// Closes the channel: every later `send` fails, and waiting senders get their message back. Messages that are left can
    /// still be received.
    pub fn close(&self) {
        self.chan.close(false);
    }

    /// Whether the channel is closed: no message can be sent any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.chan.store.is_closed()
    }

    /// Returns the number of messages that wait to be received.
    #[must_use]
    pub fn len(&self) -> usize {
        self.chan.store.len()
    }

    /// Whether no message waits to be received.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A wait of a receiver.
struct ReceiveFrom<'a, T> {
    chan: &'a MpmcChan<T>,
    place: ExchangePlace,
}

impl<T> Drop for ReceiveFrom<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.chan.store.exchange.leave::<ToTake<T>>(&mut self.place);
    }
}

impl<T> Stream for Receiver<T> {
    type Item = Result<T, Cancelled>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let mut message = ToTake(None);
        Poll::Ready(match ready!(this.chan.store.exchange.poll_take(&mut message, &mut this.place, cx)) {
            Ok(()) => message.0.take().map(Ok),
            Err(PermitRefusal::Cancelled) => Some(Err(Cancelled)),
            Err(_) => None,
        })
    }
}

impl<T> Unpin for Receiver<T> {}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        self.chan.receivers.fetch_add(1, Ordering::Relaxed);
        Receiver { chan: self.chan.clone(), place: ExchangePlace::loose() }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.chan.store.exchange.leave::<ToTake<T>>(&mut self.place);
        if self.chan.receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.chan.close(true);
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Receiver");
        debug.field("len", &self.len()).field("closed", &self.is_closed()).finish_non_exhaustive()
    }
}
