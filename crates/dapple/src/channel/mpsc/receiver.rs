//! Receiver of a channel: single messages, batches, and a stream.

use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::super::error::{RecvError, TryRecvError};
use super::chan::{Chan, QueuePop};
use crate::Cancelled;
use crate::waitlist::wait::{Wait, block_on};

/// Receiving half of a channel. Also a `Stream` of `Result<T, Cancelled>`.
///
/// As a stream, `None` means that the channel is closed and all messages have been received.
/// `Some(Err(Cancelled))` means that the wait was cancelled; no message is lost.
///
/// A loop `while let Ok(message) = receiver.recv().await` ends at a cancel as well, with messages left in the channel. A
/// receiver that should get all of them loops in a [`shield`](crate::shield), or takes the rest by
/// [`try_recv`](Self::try_recv).
///
/// # Examples
///
/// ```
/// use dapple::channel::mpsc;
///
/// dapple::run(async {
///     let (sender, mut receiver) = mpsc::bounded(10);
///     dapple::spawn(async move {
///         for number in 0..3 {
///             sender.send(number).await.unwrap();
///         }
///     })
///     .detach();
///     let mut received = Vec::new();
///     while let Ok(number) = receiver.recv().await {
///         received.push(number);
///     }
///     assert_eq!(received, [0, 1, 2]);
/// });
/// ```
pub struct Receiver<T> {
    chan: Arc<Chan<T>>,
    /// Messages taken from the queue together, and not yet returned.
    local: VecDeque<T>,
    /// Wait of the stream.
    wait: Wait,
}

impl<T> Receiver<T> {
    pub(super) fn new(chan: Arc<Chan<T>>) -> Receiver<T> {
        Receiver { chan, local: VecDeque::new(), wait: Wait::default() }
    }

    /// Receives the next message.
    ///
    /// # Errors
    ///
    /// If the channel is closed and all messages have been received, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no message is lost.
    /// *Scope cancelled*: returns an error with [`is_cancelled`](RecvError::is_cancelled), and the messages
    /// stay in the channel; or a message, if there was one when the wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::mpsc;
    ///
    /// dapple::run(async {
    ///     let (sender, mut receiver) = mpsc::unbounded();
    ///     sender.try_send(1).unwrap();
    ///     drop(sender);
    ///     assert_eq!(receiver.recv().await.unwrap(), 1);
    ///     assert!(receiver.recv().await.unwrap_err().is_closed());
    /// });
    /// ```
    pub async fn recv(&mut self) -> Result<T, RecvError> {
        let mut recv = RecvWait { receiver: self, wait: Wait::default(), waits: false };
        std::future::poll_fn(move |cx| {
            let found = ready!(recv.poll(cx))?;
            Poll::Ready(Ok(found.unwrap_or_else(|| recv.receiver.take_first())))
        })
        .await
    }

    /// Receives up to `limit` messages, and appends them to `into`. Waits for the first one. Returns their
    /// number, which is 0 only if `limit` is 0.
    ///
    /// # Errors
    ///
    /// If the channel is closed and all messages have been received, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no message is lost.
    /// *Scope cancelled*: returns an error with [`is_cancelled`](RecvError::is_cancelled), and the messages
    /// stay in the channel; or messages, if there were some when the wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::mpsc;
    ///
    /// dapple::run(async {
    ///     let (sender, mut receiver) = mpsc::bounded(8);
    ///     for number in 0..3 {
    ///         sender.send(number).await.unwrap();
    ///     }
    ///     let mut batch = Vec::new();
    ///     receiver.recv_many(&mut batch, 100).await.unwrap(); // waits for the first, takes all that are there
    ///     assert_eq!(batch, [0, 1, 2]);
    /// });
    /// ```
    pub async fn recv_many(&mut self, into: &mut Vec<T>, limit: usize) -> Result<usize, RecvError> {
        let mut recv = RecvWait { receiver: self, wait: Wait::default(), waits: false };
        std::future::poll_fn(move |cx| {
            if limit == 0 {
                ready!(recv.wait.begin(cx))?;
                recv.wait.end();
                return Poll::Ready(Ok(0));
            }
            let found = ready!(recv.poll(cx))?;
            let one = usize::from(found.is_some());
            into.extend(found);
            Poll::Ready(Ok(one + recv.receiver.take_many(into, limit - one)))
        })
        .await
    }

    /// As [`recv`](Self::recv), for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// If the channel is closed and all messages have been received, or the call was cancelled in
    /// [`blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    #[track_caller]
    pub fn recv_blocking(&mut self) -> Result<T, RecvError> {
        block_on("mpsc::Receiver::recv_blocking", self.recv())
    }

    /// Receives a message if there is one.
    ///
    /// # Errors
    ///
    /// If the channel is empty, or also closed.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        match self.look() {
            QueuePop::One(message) => Ok(message),
            QueuePop::Several => Ok(self.take_first()),
            QueuePop::Nothing => Err(TryRecvError { closed: false }),
            QueuePop::End => Err(TryRecvError { closed: true }),
        }
    }

    /// Closes the channel: no message can be sent any more, except by holders of a [`Permit`](super::Permit).
    /// Messages that were sent can still be received.
    pub fn close(&mut self) {
        self.chan.close();
    }

    /// Whether the channel is closed: by [`close`](Self::close), or because all senders are dropped.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.chan.closing.is_closed() || self.chan.sender_count() == 0
    }

    /// Number of messages that can be received now.
    #[must_use]
    pub fn len(&self) -> usize {
        self.local.len() + self.chan.len()
    }

    /// Whether there is no message now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn look(&mut self) -> QueuePop<T> {
        if self.local.is_empty() { self.chan.pull(&mut self.local) } else { QueuePop::Several }
    }

    #[inline]
    fn take_first(&mut self) -> T {
        let message = self.local.pop_front().expect("a message that was found");
        self.chan.give(1);
        message
    }

    fn take_many(&mut self, into: &mut Vec<T>, limit: usize) -> usize {
        let (mut taken, mut given) = (0, 0);
        while taken < limit {
            match self.look() {
                QueuePop::One(message) => {
                    into.push(message);
                    taken += 1;
                }
                QueuePop::Several => {
                    let some = self.local.len().min(limit - taken);
                    into.reserve(some);
                    into.extend(self.local.drain(..some));
                    taken += some;
                    given += some;
                }
                QueuePop::Nothing | QueuePop::End => break,
            }
        }
        if given > 0 {
            self.chan.give(given);
        }
        taken
    }

    /// Waits for a message. Returns it, or `None` if it is in the receiver's own queue. `waits` says whether
    /// the channel has the receiver's waker.
    #[inline]
    fn poll_found(
        &mut self,
        wait: &mut Wait,
        waits: &mut bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<T>, RecvError>> {
        let has_begun = wait.has_begun();
        if let Err(cancelled) = ready!(wait.begin(cx)) {
            if has_begun {
                drop(self.chan.withdraw());
                *waits = false;
            }
            return Poll::Ready(Err(cancelled.into()));
        }
        // A receiver that has waited was most likely woken by a message.
        let mut found = if has_begun || !self.local.is_empty() { self.look() } else { QueuePop::Nothing };
        if let QueuePop::Nothing = found {
            if has_begun && wait.is_cancelled() {
                drop(self.chan.withdraw());
                *waits = false;
                wait.end();
                return Poll::Ready(Err(Cancelled.into()));
            }
            found = self.chan.pull_or_wait(&mut self.local, cx.waker());
            if let QueuePop::Nothing = found {
                *waits = true;
                wait.rest(cx, &"a message");
                return Poll::Pending;
            }
        }
        *waits = false;
        wait.end();
        Poll::Ready(match found {
            QueuePop::One(message) => Ok(Some(message)),
            QueuePop::Several => Ok(None),
            _ => Err(RecvError { cancelled: false }),
        })
    }
}

impl From<Cancelled> for RecvError {
    fn from(_: Cancelled) -> RecvError {
        RecvError { cancelled: true }
    }
}

/// A wait for messages.
struct RecvWait<'a, T> {
    receiver: &'a mut Receiver<T>,
    wait: Wait,
    waits: bool,
}

impl<T> RecvWait<'_, T> {
    #[inline]
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<T>, RecvError>> {
        self.receiver.poll_found(&mut self.wait, &mut self.waits, cx)
    }
}

impl<T> Drop for RecvWait<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.waits {
            drop(self.receiver.chan.withdraw());
        }
    }
}

impl<T> Stream for Receiver<T> {
    type Item = Result<T, Cancelled>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let mut wait = std::mem::take(&mut this.wait);
        let polled = this.poll_found(&mut wait, &mut false, cx);
        this.wait = wait;
        Poll::Ready(match ready!(polled) {
            Ok(found) => Some(Ok(found.unwrap_or_else(|| this.take_first()))),
            Err(error) if error.is_cancelled() => Some(Err(Cancelled)),
            Err(_) => None,
        })
    }
}

impl<T> Unpin for Receiver<T> {}

// SAFETY: a shared receiver gives out only numbers: receiving needs `&mut`.
unsafe impl<T: Send> Sync for Receiver<T> {}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.chan.receiver_gone();
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver")
            .field("len", &self.len())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
