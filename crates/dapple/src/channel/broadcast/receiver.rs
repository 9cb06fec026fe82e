//! The receivers of a broadcast: by one, and as a stream.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_core::Stream;

use super::error::{RecvError, TryRecvError};
use super::ring::{AtPosition, Ring};
use crate::task::guarded::GuardedWaker;
use crate::waitlist::wait::{Wait, block_on};

/// Receiving end of a [`broadcast`](super) channel: gets every message that is sent while it exists, unless it falls
/// behind by more than the capacity.
///
/// It is also a `Stream` of `Result<T, RecvError>`. `None` means that all senders are gone and everything has been
/// received.
pub struct Receiver<T> {
    ring: Arc<Ring<T>>,
    /// The position that it receives next.
    position: u64,
    /// The wait of the stream, and where the waker of a wait is in the tail, if `position` is the next one there.
    wait: Wait,
    place: Option<usize>,
}

impl<T> Receiver<T> {
    pub(super) fn new(ring: Arc<Ring<T>>) -> Receiver<T> {
        let position = ring.with_tail(|tail| tail.subscribe());
        Receiver { ring, position, wait: Wait::default(), place: None }
    }

    /// Makes another receiver. It gets the messages that are sent from now on, not those that this one has yet to
    /// receive.
    #[must_use]
    pub fn resubscribe(&self) -> Receiver<T> {
        Receiver::new(self.ring.clone())
    }

    /// Returns the number of messages that this receiver has not received. If they are more than the capacity, it
    /// will miss the oldest.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.ring.with_tail(|tail| tail.next) - self.position) as usize
    }

    /// Whether this receiver has received all messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether both belong to the same channel.
    #[must_use]
    pub fn same_channel(&self, other: &Receiver<T>) -> bool {
        Arc::ptr_eq(&self.ring, &other.ring)
    }

    /// Whether all senders are gone.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.ring.with_tail(|tail| tail.closed)
    }

    /// Takes the waker of a wait back.
    fn withdraw(&mut self) {
        if let Some(place) = self.place.take() {
            let position = self.position;
            let waker = self.ring.with_tail(|tail| match tail.next == position {
                true => tail.waker(place).take(), // ALL-TOLD
                false => None,
            });
            drop(waker);
        }
    }

    /// After it was missed at the tail: how many messages were. It goes on with the oldest that is there.
    fn skip(&mut self, next: u64) -> u64 {
        let oldest = next.saturating_sub(self.ring.capacity());
        let missed = oldest - self.position;
        self.position = oldest;
        self.place = None; // ALL-TOLD
        missed
    }
}

impl<T: Clone> Receiver<T> {
    /// Receives the next message.
    ///
    /// # Errors
    ///
    /// If messages were missed, no more will come, or the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **clean**; no message is lost.
    /// *Scope cancelled*: returns [`RecvError::Cancelled`], and no message was received; or a message, if there was one when
    /// the wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::channel::broadcast::{self, RecvError};
    ///
    /// dapple::run(async {
    ///     let (sender, mut receiver) = broadcast::bounded(2);
    ///     for number in 1..=3 {
    ///         sender.send(number).unwrap();
    ///     }
    ///     assert_eq!(receiver.recv().await, Err(RecvError::Lagged(1))); // there is room for two
    ///     assert_eq!(receiver.recv().await, Ok(2));
    /// });
    /// ```
    pub async fn recv(&mut self) -> Result<T, RecvError> {
        let mut waits = BroadcastWait { receiver: self, wait: Wait::default() };
        std::future::poll_fn(move |cx| waits.receiver.poll(&mut waits.wait, cx)).await
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
    pub fn recv_blocking(&mut self) -> Result<T, RecvError> {
        block_on("broadcast::Receiver::recv_blocking", self.recv())
    }

    /// Receives the next message if it is there now.
    ///
    /// # Errors
    ///
    /// If there is none now, if messages were missed, or if all senders are gone.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        loop {
            if let AtPosition::Message(message) = self.ring.receive(&mut self.position, &mut self.place) {
                return Ok(message);
            }
            let (next, closed) = self.ring.with_tail(|tail| (tail.next, tail.closed));
            if next == self.position {
                return Err(if closed { TryRecvError::Closed } else { TryRecvError::Empty });
            }
            if next - self.position > self.ring.capacity() {
                return Err(TryRecvError::Lagged(self.skip(next)));
            }
            // It was written since.
        }
    }

    #[inline]
    fn poll(&mut self, wait: &mut Wait, cx: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        if ready!(wait.begin(cx)).is_err() {
            self.withdraw();
            return Poll::Ready(Err(RecvError::Cancelled));
        }
        if let AtPosition::Message(message) = self.ring.receive(&mut self.position, &mut self.place) {
            wait.end();
            return Poll::Ready(Ok(message));
        }
        self.poll_slowly(wait, cx)
    }

    fn poll_slowly(&mut self, wait: &mut Wait, cx: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        let result = match self.try_recv() {
            Ok(message) => Ok(message),
            Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
            Err(TryRecvError::Closed) => Err(RecvError::Closed),
            Err(TryRecvError::Empty) if self.place.is_some() && wait.is_cancelled() => {
                self.withdraw();
                Err(RecvError::Cancelled)
            }
            Err(TryRecvError::Empty) => {
                let waker = GuardedWaker::of(cx.waker());
                let (position, place) = (self.position, &mut self.place);
                // Foreign code is dropped outside of the lock.
                let (rests, _old) = self.ring.with_tail(|tail| {
                    if tail.next != position || tail.closed {
                        return (false, Some(waker));
                    }
                    match place {
                        Some(place) => (true, tail.waker(*place).replace(waker)),
                        None => {
                            *place = Some(tail.wait(waker)); // ALL-TOLD
                            (true, None)
                        }
                    }
                });
                if rests {
                    wait.rest(cx, &"a message");
                    return Poll::Pending;
                }
                return self.poll_slowly(wait, cx);
            }
        };
        self.place = None;
        wait.end();
        Poll::Ready(result)
    }
}

/// A wait for a message.
struct BroadcastWait<'a, T> {
    receiver: &'a mut Receiver<T>,
    wait: Wait,
}

impl<T> Drop for BroadcastWait<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.receiver.withdraw();
    }
}

impl<T: Clone> Stream for Receiver<T> {
    type Item = Result<T, RecvError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let mut wait = std::mem::take(&mut this.wait);
        let polled = this.poll(&mut wait, cx);
        this.wait = wait;
        Poll::Ready(match ready!(polled) {
            Err(RecvError::Closed) => None,
            result => Some(result),
        })
    }
}

impl<T> Unpin for Receiver<T> {}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.withdraw();
        let (end, is_last) = self.ring.with_tail(|tail| {
            tail.receivers -= 1;
            (tail.next, tail.receivers == 0)
        });
        if is_last {
            self.ring.closing.tell();
        }
        self.ring.leave_unread(self.position, end); // drops messages, which may panic: last
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").field("len", &self.len()).finish_non_exhaustive()
    }
}
