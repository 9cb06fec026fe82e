//! What lies between the senders and the receiver: a queue behind a lock, and the room in it.
//!
//! A sender takes room and puts its message into the queue under one short lock. The receiver takes
//! the whole queue at once, under the same lock, and then gives out one message after the other. For
//! each it counts `given` up, in a cache line of its own; a sender who finds no room looks there for
//! what has come free. So the receiver and the senders meet about once in a queue, not once a message.
//! A message that is alone in the queue is given out, and its room given back, under the lock itself.
//!
//! # Invariants
//!
//! * **CAPACITY**: `free`, the permits that senders hold, the messages that the receiver has not given
//!   out, and those that it has given out but nobody has `credited`, make up the capacity.
//! * **RECEIVER-TOLD**: the receiver puts its waker into the queue under the lock under which it has
//!   seen that there is nothing. Who changes what it waits for does so first, then takes the waker out.
//! * **SENDERS-TOLD**: `sleepers` is true while a sender in line has not been woken. It is set before
//!   `given` is looked at for the last time; the receiver changes `given` before it looks at
//!   `sleepers`; all sequentially consistent. So a sender that sleeps has seen the room, or is woken.
//! * **CLOSED-AT-ONCE**: `closed` of the queue and that of `closing` are set under one lock of the queue, under which
//!   room is taken. So a sender that sees one of them sees the other: after `closed()` has returned nothing is sent,
//!   and a send that was refused is followed by an `is_closed()` that is true.

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
    /// How many messages the receiver has given out; it alone writes this. CAPACITY
    pub(super) given: Apart<AtomicUsize>,
    /// SENDERS-TOLD
    pub(super) sleepers: AtomicBool,
    pub(super) capacity: usize,
    /// Senders, weak ones not counted. Once it is 0 it stays 0.
    senders: AtomicUsize,
    /// Has no permits; closed when the receiver is, for those who wait for that.
    pub(super) closing: Permits,
}

/// In cache lines of its own, which the hardware fetches in pairs.
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
    /// The receiver waits. RECEIVER-TOLD
    pub(super) waker: Option<GuardedWaker>,
    /// CAPACITY
    pub(super) free: usize,
    pub(super) credited: usize,
    /// Senders that wait for room.
    pub(super) line: WaitQueue,
    pub(super) closed: bool,
    receiver_gone: bool,
}

pub(super) fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let queue = MessageQueue {
        messages: VecDeque::new(),
        waker: None,
        free: capacity,
        credited: 0,
        line: WaitQueue::default(),
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

/// What the receiver finds.
pub(super) enum QueuePop<T> {
    /// A message, whose room has been given back.
    One(T),
    /// Messages, which are the receiver's own now.
    Several,
    Nothing,
    /// And nothing will come.
    End,
}

impl<T> Chan<T> {
    /// Puts a message in line, in the room that the caller has reserved. Hands it back if nobody is
    /// there to receive it.
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

    /// Takes the receiver's waker back.
    pub(super) fn withdraw(&self) -> Option<GuardedWaker> {
        self.queue.lock().waker.take()
    }

    /// Takes what there is: one message, or all that are in line in exchange for an empty queue of the
    /// receiver's.
    #[inline]
    pub(super) fn pull(&self, local: &mut VecDeque<T>) -> QueuePop<T> {
        self.pull_from(self.queue.lock(), local)
    }

    /// As `pull`. If there is nothing, leaves a clone of `waker`.
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
        // The last sender sends, then goes; and it goes, then looks for the waker.
        if self.sender_count() == 0 || queue.closed && self.reclaim(&mut queue) == self.capacity {
            return QueuePop::End; // CAPACITY
        }
        QueuePop::Nothing
    }

    pub(super) fn len(&self) -> usize {
        self.queue.lock().messages.len()
    }

    /// The receiver goes. What is in line is dropped.
    pub(super) fn receiver_gone(&self) {
        self.close();
        let mut queue = self.queue.lock();
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
            self.wake_receiver(); // RECEIVER-TOLD
        }
    }

    pub(super) fn sender_count(&self) -> usize {
        self.senders.load(Ordering::Acquire)
    }
}
