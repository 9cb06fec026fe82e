//! The senders of a broadcast.

use std::fmt;
use std::sync::Arc;

use super::SendError;
use super::receiver::Receiver;
use super::ring::Ring;
use crate::Cancelled;
use crate::prim::Ordering;
use crate::task::guarded::GuardedWaker;

/// Sending end of a [`broadcast`](super) channel. Clones send to the same receivers.
pub struct Sender<T> {
    ring: Arc<Ring<T>>,
}

impl<T> Sender<T> {
    pub(super) fn new(capacity: usize) -> Sender<T> {
        Sender { ring: Arc::new(Ring::new(capacity)) }
    }

    /// Sends a message to all receivers that there are now, and returns their number. Never waits: a receiver that is
    /// behind by the capacity misses its oldest message.
    ///
    /// # Errors
    ///
    /// Hands the message back if there is no receiver.
    pub fn send(&self, message: T) -> Result<usize, SendError<T>> {
        self.ring.send(message).map_err(SendError)
    }

    /// Makes another receiver. It gets the messages that are sent from now on.
    #[must_use]
    pub fn subscribe(&self) -> Receiver<T> {
        Receiver::new(self.ring.clone())
    }

    /// Returns the number of receivers.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        self.ring.with_tail(|tail| tail.receivers)
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
    /// *Scope cancelled*: returns [`Cancelled`]; or `Ok`, if there was no receiver when the wait was polled again.
    pub async fn closed(&self) -> Result<(), Cancelled> {
        self.ring.closing.until(|| self.is_closed().then_some(())).await
    }

    /// Returns the number of messages that are kept for receivers that are behind.
    #[must_use]
    pub fn max_capacity(&self) -> usize {
        self.ring.capacity() as usize
    }

    /// Whether both belong to the same channel.
    #[must_use]
    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        Arc::ptr_eq(&self.ring, &other.ring)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.ring.senders.fetch_add(1, Ordering::Relaxed);
        Sender { ring: self.ring.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.ring.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            let wakers = self.ring.with_tail(|tail| tail.close());
            wakers.into_iter().flatten().for_each(GuardedWaker::wake);
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").field("receivers", &self.receiver_count()).finish_non_exhaustive()
    }
}
