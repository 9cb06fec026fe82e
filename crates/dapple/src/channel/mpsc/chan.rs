//! What lies between the senders and the receiver: permits for the room, and a queue behind a lock.
//!
//! A sender takes a permit, then puts its message into the queue. The receiver takes the whole queue
//! at once, gives out one message after the other, and releases a permit for each: the lock is held
//! for a few instructions, and by the receiver once for many messages.
//!
//! # Invariants
//!
//! * **ROOM**: each message that the receiver has not given out, and each permit that a sender holds,
//!   has one of the permits in `room`. When nothing is in line and all are free, nobody can send but
//!   by taking a new one.
//! * **TOLD**: the receiver puts its waker into the queue under the lock under which it has seen that
//!   the queue is empty. Who changes what it waits for does so first, then takes the waker out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;

use super::receiver::Receiver;
use super::sender::Sender;
use crate::prim::{AtomicUsize, Mutex, Ordering, lock};
use crate::sync::permits::Permits;
use crate::sync::wait::wake;

pub(super) struct Chan<T> {
    /// ROOM
    pub(super) room: Permits,
    pub(super) capacity: usize,
    queue: Mutex<Queue<T>>,
    /// Senders, weak ones not counted. Once it is 0 it stays 0.
    senders: AtomicUsize,
    /// Has no permits; closed when the receiver is, for those who wait for that.
    pub(super) closing: Permits,
}

struct Queue<T> {
    messages: VecDeque<T>,
    /// The receiver waits. TOLD
    waker: Option<Waker>,
    receiver_gone: bool,
}

pub(super) fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let chan = Arc::new(Chan {
        room: Permits::new(capacity),
        capacity,
        queue: Mutex::new(Queue { messages: VecDeque::new(), waker: None, receiver_gone: false }),
        senders: AtomicUsize::new(1),
        closing: Permits::new(0),
    });
    (Sender::new(chan.clone()), Receiver::new(chan))
}

/// What the receiver finds.
pub(super) enum Found {
    Messages,
    Nothing,
    /// And nothing will come.
    End,
}

impl<T> Chan<T> {
    /// Puts a message in line, with a permit that the caller has. Hands it back if nobody is there
    /// to receive it.
    #[inline]
    pub(super) fn push(&self, message: T) -> Result<(), T> {
        let mut queue = lock(&self.queue);
        if queue.receiver_gone {
            return Err(message);
        }
        queue.messages.push_back(message);
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            wake(waker);
        }
        Ok(())
    }

    /// Gives back permits: of messages that were received, or that nothing was sent with.
    #[inline]
    pub(super) fn release(&self, permits: usize) {
        if self.room.release(permits) {
            self.wake_receiver(); // it may be waiting for the last permit
        }
    }

    #[cold]
    fn wake_receiver(&self) {
        let waker = self.withdraw();
        waker.into_iter().for_each(wake);
    }

    /// Takes the receiver's waker back.
    pub(super) fn withdraw(&self) -> Option<Waker> {
        lock(&self.queue).waker.take()
    }

    /// Swaps all messages for an empty queue of the receiver's. If there are none, leaves `waker`.
    #[inline]
    pub(super) fn pull(&self, local: &mut VecDeque<T>, waker: &mut Option<Waker>) -> Found {
        debug_assert!(local.is_empty());
        // Before the queue is looked at: the last sender sends, then goes.
        let no_senders = self.senders.load(Ordering::Acquire) == 0;
        let mut queue = lock(&self.queue);
        if !queue.messages.is_empty() {
            std::mem::swap(&mut queue.messages, local);
            return Found::Messages;
        }
        if no_senders || self.room.is_closed() && self.room.free() == self.capacity {
            return Found::End; // ROOM
        }
        if waker.is_some() {
            std::mem::swap(&mut queue.waker, waker); // TOLD
            if self.senders.load(Ordering::Acquire) == 0 {
                return Found::End; // the last one may have gone before it could see the waker
            }
        }
        Found::Nothing
    }

    pub(super) fn len(&self) -> usize {
        lock(&self.queue).messages.len()
    }

    /// Lets nobody begin to send any more.
    pub(super) fn close(&self) {
        self.room.close();
        self.closing.close();
    }

    /// The receiver goes. What is in line is dropped.
    pub(super) fn receiver_gone(&self) {
        self.close();
        let mut queue = lock(&self.queue);
        queue.receiver_gone = true;
        let left = (std::mem::take(&mut queue.messages), queue.waker.take());
        drop(queue);
        drop(left);
    }

    /// One more sender.
    pub(super) fn add_sender(&self) {
        self.senders.fetch_add(1, Ordering::Relaxed);
    }

    /// One more sender, if there is one yet.
    pub(super) fn try_add_sender(&self) -> bool {
        let more = |senders| (senders != 0).then_some(senders + 1);
        self.senders.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// One sender less.
    pub(super) fn drop_sender(&self) {
        if self.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake_receiver(); // TOLD
        }
    }

    pub(super) fn sender_count(&self) -> usize {
        self.senders.load(Ordering::Acquire)
    }
}
