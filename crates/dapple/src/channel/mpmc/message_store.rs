//! The messages between senders and receivers: an [`Exchange`], in which both sides wait.

use std::collections::VecDeque;

use crate::prim::{AtomicBool, Ordering};
use crate::waitlist::exchange::{Exchange, Stock};

#[repr(align(128))] // the lock and what it guards, in lines of their own
pub(super) struct MessageStore<T> {
    pub(super) exchange: Exchange<Messages<T>>,
    /// As inside, for a look without the lock.
    closed: AtomicBool,
    pub(super) capacity: usize,
}

pub(super) struct Messages<T> {
    queue: VecDeque<T>,
    capacity: usize,
    closed: bool,
}

impl<T> Stock for Messages<T> {
    type Item = T;
    const ROOM: &'static &'static str = &"room in a channel";
    const ITEM: &'static &'static str = &"a message";

    #[inline]
    fn room(&self) -> usize {
        self.capacity - self.queue.len()
    }

    #[inline]
    fn filled(&self) -> usize {
        self.queue.len()
    }

    #[inline]
    fn put(&mut self, message: Option<T>) {
        if let Some(message) = message {
            self.queue.push_back(message);
        }
    }

    #[inline]
    fn take(&mut self) -> Option<T> {
        self.queue.pop_front()
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.closed
    }
}

impl<T> MessageStore<T> {
    pub(super) fn new(capacity: usize) -> MessageStore<T> {
        let messages = Messages { queue: VecDeque::new(), capacity, closed: false };
        MessageStore { exchange: Exchange::new(messages), closed: AtomicBool::new(false), capacity }
    }

    /// How many messages there are.
    pub(super) fn len(&self) -> usize {
        self.exchange.with(|messages| messages.filled())
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Stops sending, and wakes all. `drops`: also takes out what is there, to be dropped by the caller as the last thing that
    /// it does, for a destructor may panic.
    pub(super) fn close(&self, drops: bool) -> VecDeque<T> {
        let mut left = VecDeque::new();
        self.exchange.wake_everyone(|messages| {
            messages.closed = true;
            self.closed.store(true, Ordering::Release);
            if drops {
                left.append(&mut messages.queue);
            }
        });
        left
    }
}
