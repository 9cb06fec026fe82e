//! State shared by the senders and the receiver: a queue behind a lock, and the free room in it.
//!
//! A sender takes room and puts its message into the queue under one short lock. The receiver takes the whole
//! queue at once, under the same lock, and then returns the messages one by one. For each it increments
//! `given`, which has a cache line of its own. A sender that finds no room reads `given` to learn how much
//! room has been freed. So the receiver and the senders contend about once per queue, not once per message. A
//! message that is alone in the queue is returned, and its room freed, under the lock itself.
//!
//! # Invariants
//!
//! * **CAPACITY**: the capacity is the sum of `free`, the permits that senders hold, the messages that the
//!   receiver has not returned, and those that it has returned and that are not yet `credited`.
//! * **RECEIVER-TOLD**: the receiver stores its waker under the same lock under which it saw the queue empty.
//!   Code that changes a condition of the receiver does so first, then takes the waker.
//! * **SENDERS-TOLD**: `sleepers` is true while a queued sender has not been woken. A sender sets it before
//!   its last look at `given`; the receiver changes `given` before it looks at `sleepers`; all sequentially
//!   consistent. So a sleeping sender has seen the room, or is woken.
//! * **CLOSED-AT-ONCE**: `closed` of the queue and that of `closing` are set under one lock of the queue,
//!   under which room is taken. So a sender that sees one of them sees the other: after `closed()` has
//!   returned, no message is sent; and after a refused send, `is_closed()` is true.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::Arc;
use std::task::Waker;

use super::receiver::Receiver;
use super::sender::Sender;
use crate::prim::{AtomicBool, AtomicUsize, Ordering, SpinGuard, SpinLock};
use crate::task::guarded::GuardedWaker;
use crate::task::waker::is_ours;
use crate::waitlist::permits::Permits;
use crate::waitlist::wait::wake;
use crate::waitlist::wait_queue::WaitQueue;

pub(super) struct Chan<T> {
    pub(super) queue: Apart<SpinLock<MessageQueue<T>>>,
    /// Messages that the receiver has returned. Only the receiver writes it. CAPACITY
    pub(super) given: Apart<AtomicUsize>,
    /// SENDERS-TOLD
    pub(super) sleepers: AtomicBool,
    pub(super) capacity: usize,
    /// Number of senders, without weak ones. Once it is 0 it stays 0.
    senders: AtomicUsize,
    /// Has no permits. Closed together with the receiver, for waits in `closed()`.
    pub(super) closing: Permits,
}

/// A value in cache lines of its own. The hardware fetches them in pairs.
#[repr(align(128))]
pub(super) struct Apart<T>(T);

impl<T> Deref for Apart<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

pub(super) struct MessageQueue<T> {
    pub(super) messages: VecDeque<T>,
    /// Waker of the waiting receiver. RECEIVER-TOLD
    pub(super) waker: Option<GuardedWaker>,
    /// CAPACITY
    pub(super) free: usize,
    pub(super) credited: usize,
    /// Senders that wait for room.
    pub(super) waiters: WaitQueue,
    pub(super) closed: bool,
    receiver_gone: bool,
}

pub(super) fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let queue = MessageQueue {
        messages: VecDeque::new(),
        waker: None,
        free: capacity,
        credited: 0,
        waiters: WaitQueue::default(),
        closed: false,
        receiver_gone: false,
    };
    let chan = Arc::new(Chan {
        queue: Apart(SpinLock::new(queue)),
        given: Apart(AtomicUsize::new(0)),
        sleepers: AtomicBool::new(false),
        capacity,
        senders: AtomicUsize::new(1),
        closing: Permits::new(0),
    });
    (Sender::new(chan.clone()), Receiver::new(chan))
}

/// Result of taking from the queue.
pub(super) enum QueuePop<T> {
    /// A message, whose room has been freed.
    One(T),
    /// Messages, which are in the receiver's own queue now.
    Several,
    Nothing,
    /// No messages, and none will be sent.
    End,
}

impl<T> Chan<T> {
    /// Queues a message in room that the caller has reserved. Returns the message if the receiver is dropped.
    pub(super) fn push(&self, message: T) -> Result<(), T> {
        let mut queue = self.queue.lock();
        if queue.receiver_gone {
            return Err(message);
        }
        queue.messages.push_back(message);
        let waker = queue.waker.take();
        drop(queue);
        waker.into_iter().for_each(wake);
        Ok(())
    }

    #[cold]
    fn wake_receiver(&self) {
        let waker = self.withdraw();
        waker.into_iter().for_each(wake);
    }

    /// Takes back the receiver's waker.
    pub(super) fn withdraw(&self) -> Option<GuardedWaker> {
        self.queue.lock().waker.take()
    }

    /// Takes one message, or all queued messages in exchange for the receiver's empty queue.
    #[inline]
    pub(super) fn pull(&self, local: &mut VecDeque<T>) -> QueuePop<T> {
        self.pull_from(self.queue.lock(), local)
    }

    /// As `pull`. If there is no message, stores a clone of `waker`.
    #[inline]
    pub(super) fn pull_or_wait(&self, local: &mut VecDeque<T>, waker: &Waker) -> QueuePop<T> {
        let mut queue = self.queue.lock();
        if !queue.messages.is_empty() {
            return self.pull_from(queue, local);
        }
        let old = if is_ours(waker) {
            queue.waker.replace(GuardedWaker::of(waker)) // RECEIVER-TOLD
        } else {
            drop(queue);
            let new = GuardedWaker::of(waker); // foreign code: not under the lock
            queue = self.queue.lock();
            if !queue.messages.is_empty() {
                return self.pull_from(queue, local); // `new` is dropped after that
            }
            queue.waker.replace(new)
        };
        let found = self.pull_from(queue, local);
        drop(old);
        found
    }

    #[inline]
    fn pull_from(&self, mut queue: SpinGuard<'_, MessageQueue<T>>, local: &mut VecDeque<T>) -> QueuePop<T> {
        debug_assert!(local.is_empty());
        match queue.messages.len() {
            0 => {}
            1 => {
                let message = queue.messages.pop_front().expect("a message");
                queue.free += 1; // CAPACITY
                if self.sleepers.load(Ordering::Relaxed) {
                    self.wake_senders(queue, 1); // SENDERS-TOLD, by the lock
                }
                return QueuePop::One(message);
            }
            _ => {
                std::mem::swap(&mut queue.messages, local);
                return QueuePop::Several;
            }
        }
        // The last sender sends before it is dropped; its drop first updates the count, then takes the waker.
        if self.sender_count() == 0 || queue.closed && self.reclaim(&mut queue) == self.capacity {
            return QueuePop::End; // CAPACITY
        }
        QueuePop::Nothing
    }

    pub(super) fn len(&self) -> usize {
        self.queue.lock().messages.len()
    }

    /// Closes the channel for a receiver that is dropped. Queued messages are dropped.
    pub(super) fn receiver_gone(&self) {
        self.close();
        let mut queue = self.queue.lock();
        queue.receiver_gone = true;
        let left = (std::mem::take(&mut queue.messages), queue.waker.take());
        drop(queue);
        drop(left);
    }

    /// Counts one more sender.
    pub(super) fn add_sender(&self) {
        self.senders.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts one more sender, if one still exists.
    pub(super) fn try_add_sender(&self) -> bool {
        let more = |senders| (senders != 0).then_some(senders + 1);
        self.senders.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).is_ok()
    }

    /// Uncounts a sender.
    pub(super) fn drop_sender(&self) {
        if self.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake_receiver(); // RECEIVER-TOLD
        }
    }

    pub(super) fn sender_count(&self) -> usize {
        self.senders.load(Ordering::Acquire)
    }
}
