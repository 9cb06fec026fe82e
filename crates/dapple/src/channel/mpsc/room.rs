//! Senders that wait for room: how they take it, queue for it, and are woken.
//!
//! The rules are those of [`permits`](crate::waitlist::permits): room is not assigned to a sender. A new
//! sender takes room if enough is left for the queued ones, and otherwise yields once. A woken sender that
//! leaves without taking room wakes the next one. CAPACITY and SENDERS-TOLD are those of
//! [`chan`](super::chan).

use std::task::{Context, Poll, ready};

use super::chan::{Chan, MessageQueue};
use crate::prim::{Ordering, SpinGuard};
use crate::task::guarded::GuardedWaker;
use crate::waitlist::permits::PermitRefusal;
use crate::waitlist::wait::{Wait, Wakers, wake};

/// A wait for room, with the message to be sent, or without one to reserve room.
pub(super) struct SendWait<'a, T> {
    chan: &'a Chan<T>,
    pub(super) message: Option<T>,
    key: Option<usize>,
    wait: Wait,
}

impl<'a, T> SendWait<'a, T> {
    pub(super) fn new(chan: &'a Chan<T>, message: Option<T>) -> SendWait<'a, T> {
        SendWait { chan, message, key: None, wait: Wait::default() }
    }

    #[inline]
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PermitRefusal>> {
        if ready!(self.wait.begin(cx)).is_err() {
            self.leave_queue();
            return Poll::Ready(Err(PermitRefusal::Cancelled));
        }
        if self.key.is_none() {
            let mut queue = self.chan.queue.lock();
            let leave = queue.waiters.needs();
            let taken = self.chan.take(&mut queue, leave);
            if taken != Err(PermitRefusal::Busy) {
                self.put(queue, taken);
                return Poll::Ready(taken);
            }
        }
        self.poll_queued(cx)
    }

    /// Ends the wait. Queues the message, if room was taken.
    #[inline]
    fn put(&mut self, mut queue: SpinGuard<'_, MessageQueue<T>>, taken: Result<(), PermitRefusal>) {
        let mut waker = None;
        if taken.is_ok()
            && let Some(message) = self.message.take()
        {
            queue.messages.push_back(message);
            waker = queue.waker.take();
        }
        drop(queue);
        if let Some(waker) = waker {
            wake(waker);
        }
        self.wait.end();
    }

    #[cold]
    fn poll_queued(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PermitRefusal>> {
        let (chan, mut waker) = (self.chan, Some(GuardedWaker::of(cx.waker())));
        let cancelled = self.key.is_some() && self.wait.is_cancelled();
        let mut queue = chan.queue.lock();
        let free = chan.reclaim(&mut queue);
        let taken = match self.key {
            None => {
                let leave = queue.waiters.needs();
                chan.take(&mut queue, leave)
            }
            Some(key) if queue.closed || queue.waiters.may_take(key, free) => chan.take(&mut queue, 0),
            Some(_) => Err(PermitRefusal::Busy),
        };
        if taken == Err(PermitRefusal::Busy) && !cancelled {
            let old = match self.key {
                Some(key) => waker.take().and_then(|waker| queue.waiters.sleep(key, waker)),
                None => {
                    // The free room is meant for a woken sender: yields to it, and is polled again without
                    // being woken.
                    let sleeps = waker.take_if(|_| free == 0);
                    self.key = Some(queue.waiters.join(1, sleeps));
                    None
                }
            };
            // The free room may be meant for a sender that is never polled: wake one more.
            let heal = usize::from(queue.waiters.claims() <= chan.show(&mut queue));
            chan.wake_senders(queue, heal);
            drop(old);
            waker.into_iter().for_each(GuardedWaker::wake);
            self.wait.rest(cx, &"room in a channel");
            return Poll::Pending;
        }
        let old = self.leave(&mut queue, taken.is_ok());
        self.put(queue, taken);
        drop((old, waker));
        Poll::Ready(taken.map_err(|refused| match refused {
            PermitRefusal::Busy => PermitRefusal::Cancelled,
            refused => refused,
        }))
    }

    /// Leaves the wait queue, if in it, without having taken room.
    #[inline]
    fn leave_queue(&mut self) {
        if self.key.is_some() {
            let mut queue = self.chan.queue.lock();
            let old = self.leave(&mut queue, false);
            drop(queue);
            drop(old);
        }
    }

    /// Leaves the wait queue, and wakes the next sender if this one was woken and took no room.
    fn leave(
        &mut self,
        queue: &mut SpinGuard<'_, MessageQueue<T>>,
        took: bool,
    ) -> (Option<GuardedWaker>, Wakers) {
        let mut wakers = Wakers::default();
        let Some(key) = self.key.take() else { return (None, wakers) };
        let passes_on = usize::from(queue.waiters.is_woken(key) && !took);
        let waker = queue.waiters.leave(key);
        self.chan.show(queue);
        queue.next_senders(passes_on, &mut wakers);
        self.chan.show(queue);
        (waker, wakers)
    }
}

impl<T> Drop for SendWait<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.leave_queue();
    }
}

impl<T> MessageQueue<T> {
    /// Marks the next senders as woken: as many as there is unclaimed room, but at least `fresh` if there is
    /// room. Returns the rest of that number if no more wakers fit.
    fn next_senders(&mut self, fresh: usize, wakers: &mut Wakers) -> usize {
        let mut left = fresh.max(self.free.saturating_sub(self.waiters.claims())).min(self.free);
        while left > 0 && self.waiters.wake_next(wakers) {
            left -= 1;
        }
        if wakers.is_full() { left } else { 0 }
    }
}

impl<T> Chan<T> {
    /// Adds the messages that the receiver has returned to the free room. Returns the free room. CAPACITY
    pub(super) fn reclaim(&self, queue: &mut MessageQueue<T>) -> usize {
        let given = self.given.load(Ordering::SeqCst); // SENDERS-TOLD
        queue.free += given.wrapping_sub(queue.credited);
        queue.credited = given;
        queue.free
    }

    /// Takes room for one message, if more than `leave` is free.
    #[inline]
    fn take(&self, queue: &mut MessageQueue<T>, leave: usize) -> Result<(), PermitRefusal> {
        if queue.closed {
            return Err(PermitRefusal::Closed);
        }
        if queue.free <= leave && self.reclaim(queue) <= leave {
            return Err(PermitRefusal::Busy);
        }
        queue.free -= 1;
        Ok(())
    }

    /// Takes room for one message now, even ahead of waiting senders. Queues `message`, if there is one.
    pub(super) fn try_take(&self, message: &mut Option<T>) -> Result<(), PermitRefusal> {
        let mut queue = self.queue.lock();
        self.take(&mut queue, 0)?;
        let Some(message) = message.take() else { return Ok(()) };
        queue.messages.push_back(message);
        let waker = queue.waker.take();
        drop(queue);
        waker.into_iter().for_each(wake);
        Ok(())
    }

    /// Publishes whether a sender sleeps. Returns the free room after that. SENDERS-TOLD
    fn show(&self, queue: &mut MessageQueue<T>) -> usize {
        let sleepers = queue.waiters.next_need().is_some();
        if self.sleepers.load(Ordering::Relaxed) != sleepers {
            self.sleepers.store(sleepers, Ordering::SeqCst); // changed only under this lock
        }
        self.reclaim(queue)
    }

    /// Wakes the next senders, at least `fresh` of them if there is enough room.
    pub(super) fn wake_senders<'a>(&'a self, mut queue: SpinGuard<'a, MessageQueue<T>>, mut fresh: usize) {
        let mut wakers = Wakers::default();
        loop {
            fresh = queue.next_senders(fresh, &mut wakers);
            self.show(&mut queue);
            drop(queue);
            wakers.wake_all();
            if fresh == 0 {
                return;
            }
            queue = self.queue.lock();
        }
    }

    /// Records that the receiver has returned `messages` messages. CAPACITY
    #[inline]
    pub(super) fn give(&self, messages: usize) {
        self.given.fetch_add(messages, Ordering::SeqCst); // SENDERS-TOLD
        if self.sleepers.load(Ordering::SeqCst) {
            self.tell_senders(messages);
        }
    }

    #[cold]
    fn tell_senders(&self, fresh: usize) {
        let mut queue = self.queue.lock();
        self.reclaim(&mut queue);
        self.wake_senders(queue, fresh);
    }

    /// Frees reserved room that was not used. A receiver of a closed channel may wait for the last of it.
    pub(super) fn give_back(&self) {
        let mut queue = self.queue.lock();
        queue.free += 1;
        let waker = if queue.closed { queue.waker.take() } else { None };
        self.wake_senders(queue, 1);
        waker.into_iter().for_each(wake);
    }

    /// Number of messages that can be sent now.
    pub(super) fn room(&self) -> usize {
        self.reclaim(&mut self.queue.lock())
    }

    /// Closes the channel for new sends, and wakes all waiting senders.
    pub(super) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        self.closing.begin_close(); // CLOSED-AT-ONCE
        drop(queue);
        self.closing.close();
        let mut wakers = Wakers::default();
        loop {
            let mut queue = self.queue.lock();
            while queue.waiters.wake_next(&mut wakers) {}
            let more = queue.waiters.next_need().is_some();
            self.show(&mut queue);
            drop(queue);
            wakers.wake_all();
            if !more {
                return;
            }
        }
    }
}
