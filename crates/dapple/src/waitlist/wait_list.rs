//! Waiters for a condition, all woken when it may have changed.
//!
//! # Invariants
//!
//! * **ALL-WOKEN**: a writer changes the condition first, then calls [`WaitList::tell`], which takes the
//!   lock. A waiter checks the condition under the lock, and joins the list under the same lock if it does
//!   not hold. So the waiter sees the change, or `tell` wakes it.

use std::task::{Context, Poll, ready};

use super::wait::{Wait, Wakers};
use super::wait_queue::WaitQueue;
use crate::Cancelled;
use crate::prim::{Mutex, lock};
use crate::task::guarded::GuardedWaker;

#[derive(Default)]
pub(crate) struct WaitList {
    queue: Mutex<WaitQueue>,
}

/// A waiter's place in the list, and its wait.
#[derive(Default)]
pub(crate) struct ListTicket {
    key: Option<usize>,
    wait: Wait,
}

impl WaitList {
    /// Wakes all current waiters. ALL-WOKEN
    pub(crate) fn tell(&self) {
        let mut wakers = Wakers::default();
        let mut queue = lock(&self.queue);
        let mut left = queue.len();
        while left > 0 {
            while left > 0 && queue.wake_next(&mut wakers) {
                left -= 1;
            }
            let more = wakers.is_full();
            drop(queue);
            wakers.wake_all();
            if !more {
                return;
            }
            queue = lock(&self.queue);
        }
    }

    /// Waits until `is_so` returns `Some`. `is_so` must not run foreign code.
    pub(crate) fn poll_until<R>(
        &self,
        place: &mut ListTicket,
        cx: &mut Context<'_>,
        is_so: impl FnOnce() -> Option<R>,
    ) -> Poll<Result<R, Cancelled>> {
        if let Err(cancelled) = ready!(place.wait.begin(cx)) {
            if place.key.is_some() {
                self.leave(place);
            }
            return Poll::Ready(Err(cancelled));
        }
        let (waker, cancelled) = (GuardedWaker::of(cx.waker()), place.wait.is_cancelled());
        let mut queue = lock(&self.queue);
        let so = is_so();
        if so.is_some() || cancelled {
            let old = place.key.take().and_then(|key| queue.leave(key));
            drop(queue);
            drop((old, waker));
            place.wait.end();
            return Poll::Ready(so.ok_or(Cancelled));
        }
        let old = match place.key {
            Some(key) => queue.sleep(key, waker),
            None => {
                place.key = Some(queue.join(1, Some(waker)));
                None
            }
        };
        drop(queue);
        drop(old);
        place.wait.rest(cx, &"a value to change");
        Poll::Pending
    }

    /// Removes the waiter and ends its wait.
    pub(crate) fn leave(&self, place: &mut ListTicket) {
        if let Some(key) = place.key.take() {
            let waker = lock(&self.queue).leave(key);
            drop(waker);
        }
        place.wait.give_up();
    }

    /// As `poll_until`, as a future.
    pub(crate) async fn until<R>(&self, mut is_so: impl FnMut() -> Option<R>) -> Result<R, Cancelled> {
        let mut there = ListWait { list: self, place: ListTicket::default() };
        std::future::poll_fn(move |cx| there.list.poll_until(&mut there.place, cx, &mut is_so)).await
    }
}

struct ListWait<'a> {
    list: &'a WaitList,
    place: ListTicket,
}

impl Drop for ListWait<'_> {
    fn drop(&mut self) {
        self.list.leave(&mut self.place);
    }
}
