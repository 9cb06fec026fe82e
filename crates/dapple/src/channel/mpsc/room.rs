//! Waiting for room: how senders take it, stand in line for it, and are woken.
//!
//! The rules are those of [`permits`](crate::waitlist::permits): room is handed to nobody; who comes
//! takes it if enough is left for those in line, and otherwise gives way once; who was woken and
//! leaves without taking wakes the next. CAPACITY and SENDERS-TOLD are those of [`chan`](super::chan).

use std::task::{Context, Poll, ready};

use super::chan::{Chan, MessageQueue};
use crate::prim::{Ordering, SpinGuard};
use crate::task::guarded::GuardedWaker;
use crate::waitlist::permits::PermitRefusal;
use crate::waitlist::wait::{Wait, Wakers, wake};

/// A wait for room, with the message that is to be put there; or without, to reserve it.
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
            self.leave_line();
            return Poll::Ready(Err(PermitRefusal::Cancelled));
        }
        if self.key.is_none() {
            let mut queue = self.chan.queue.lock();
            let leave = queue.line.needs();
            let taken = self.chan.take(&mut queue, leave);
            if taken != Err(PermitRefusal::Busy) {
                self.put(queue, taken);
                return Poll::Ready(taken);
            }
        }
        self.poll_in_line(cx)
    }

    /// Ends the wait: with the message in the queue, if there is room for it.
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
    fn poll_in_line(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PermitRefusal>> {
        let (chan, mut waker) = (self.chan, Some(GuardedWaker::of(cx.waker())));
        let cancelled = self.key.is_some() && self.wait.is_cancelled();
        let mut queue = chan.queue.lock();
        let free = chan.reclaim(&mut queue);
        let taken = match self.key {
            None => {
                let leave = queue.line.needs();
                chan.take(&mut queue, leave)
            }
            Some(key) if queue.closed || queue.line.may_take(key, free) => chan.take(&mut queue, 0),
            Some(_) => Err(PermitRefusal::Busy),
        };
        if taken == Err(PermitRefusal::Busy) && !cancelled {
            let old = match self.key {
                Some(key) => waker.take().and_then(|waker| queue.line.sleep(key, waker)),
                None => {
                    // What is free is meant for one who was woken: gives way, and comes back untold.
                    let sleeps = waker.take_if(|_| free == 0);
                    self.key = Some(queue.line.join(1, sleeps));
                    None
                }
            };
            // What is free may be meant for one who will not come for it: lets one more see.
            let heal = usize::from(queue.line.claims() <= chan.show(&mut queue));
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

    /// Leaves the line, if it is in it, without having taken anything.
    #[inline]
    fn leave_line(&mut self) {
        if self.key.is_some() {
            let mut queue = self.chan.queue.lock();
            let old = self.leave(&mut queue, false);
            drop(queue);
            drop(old);
        }
    }

    /// Leaves the line, and wakes those whom this one was woken in place of.
    fn leave(
        &mut self,
        queue: &mut SpinGuard<'_, MessageQueue<T>>,
        took: bool,
    ) -> (Option<GuardedWaker>, Wakers) {
        let mut wakers = Wakers::default();
        let Some(key) = self.key.take() else { return (None, wakers) };
        let passes_on = usize::from(queue.line.is_woken(key) && !took);
        let waker = queue.line.leave(key);
        self.chan.show(queue);
        queue.next_senders(passes_on, &mut wakers);
        self.chan.show(queue);
        (waker, wakers)
    }
}

impl<T> Drop for SendWait<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.leave_line();
    }
}

impl<T> MessageQueue<T> {
    /// Counts the next in line as woken, as far as there is room that is meant for nobody, or as
    /// `fresh` goes. What is left of that, if no more wakers fit.
    fn next_senders(&mut self, fresh: usize, wakers: &mut Wakers) -> usize {
        let mut left = fresh.max(self.free.saturating_sub(self.line.claims())).min(self.free);
        while left > 0 && self.line.wake_next(wakers) {
            left -= 1;
        }
        if wakers.is_full() { left } else { 0 }
    }
}

impl<T> Chan<T> {
    /// Adds what the receiver has given out to what is free, and says how much that is. CAPACITY
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

    /// Takes room for one message now, whoever is in line; with `message` puts it there.
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

    /// Tells the receiver whether somebody sleeps, and says what is free after that. SENDERS-TOLD
    fn show(&self, queue: &mut MessageQueue<T>) -> usize {
        let sleepers = queue.line.next_need().is_some();
        if self.sleepers.load(Ordering::Relaxed) != sleepers {
            self.sleepers.store(sleepers, Ordering::SeqCst); // only we change it
        }
        self.reclaim(queue)
    }

    /// Wakes the next in line, at least `fresh` of them if there is as much room.
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

    /// The receiver has given out so many messages. CAPACITY
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

    /// Gives back room that was reserved, and not used. The receiver may wait for the last of it.
    pub(super) fn give_back(&self) {
        let mut queue = self.queue.lock();
        queue.free += 1;
        let waker = if queue.closed { queue.waker.take() } else { None };
        self.wake_senders(queue, 1);
        waker.into_iter().for_each(wake);
    }

    /// How many more messages fit now.
    pub(super) fn room(&self) -> usize {
        self.reclaim(&mut self.queue.lock())
    }

    /// Lets nobody begin to send any more.
    pub(super) fn close(&self) {
        let mut queue = self.queue.lock();
        queue.closed = true;
        self.closing.begin_close(); // CLOSED-AT-ONCE
        drop(queue);
        self.closing.close();
        let mut wakers = Wakers::default();
        loop {
            let mut queue = self.queue.lock();
            while queue.line.wake_next(&mut wakers) {}
            let more = queue.line.next_need().is_some();
            self.show(&mut queue);
            drop(queue);
            wakers.wake_all();
            if !more {
                return;
            }
        }
    }
}
