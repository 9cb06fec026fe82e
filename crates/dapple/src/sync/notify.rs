//! Notify: wakes tasks after an event, without a value.
//!
//! # Invariants
//!
//! * **FREE-UNTIL-POLLED**: see `permits`. A notification is not assigned to a waiter: it is counted until a
//!   waiter takes it in its own poll. At most as many are stored as there are waiters, or one if there are
//!   none.
//! * **CALLED**: `calls` counts the calls of `notify_waiters` and changes under the lock. A wait that was
//!   created before such a call is over.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::Cancelled;
use crate::prim::{AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use crate::task::guarded::GuardedWaker;
use crate::waitlist::wait::{Wait, Wakers};
use crate::waitlist::wait_queue::WaitQueue;

/// Signal that wakes one waiter, or all of them.
///
/// Use it to announce an event that carries no value. If no task waits, [`notify_one`](Self::notify_one)
/// stores one notification for the next waiter.
///
/// # Examples
///
/// ```
/// use dapple::sync::Notify;
/// use std::sync::Arc;
///
/// dapple::run(async {
///     let changed = Arc::new(Notify::new());
///     let watcher = dapple::spawn({
///         let changed = changed.clone();
///         async move { changed.notified().await }
///     });
///     changed.notify_one();
///     watcher.await.unwrap().unwrap();
/// });
/// ```
#[derive(Default)]
pub struct Notify {
    calls: AtomicUsize,
    inside: Mutex<NotifyState>,
}

#[derive(Default)]
struct NotifyState {
    /// Notifications that no waiter has taken.
    stored: usize,
    queue: WaitQueue,
}

impl NotifyState {
    /// Drops notifications that exceed the number of waiters.
    fn clip(&mut self) {
        self.stored = self.stored.min(self.queue.len().max(1));
    }
}

impl Notify {
    /// Creates a `Notify` without waiters and without a stored notification.
    #[must_use]
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Waits for a notification.
    ///
    /// It may be a stored one, the next [`notify_one`](Self::notify_one) that goes to this wait, or any
    /// [`notify_waiters`](Self::notify_waiters) after this call, even before the first poll.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** its notification to the next waiter, and loses its place. *Scope
    /// cancelled*: returns [`Cancelled`], and no notification has been taken; or `Ok`, if there was one when
    /// the wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::sync::Notify;
    /// use std::sync::Arc;
    ///
    /// dapple::run(async {
    ///     let notify = Arc::new(Notify::new());
    ///     let waiter = dapple::spawn({
    ///         let notify = notify.clone();
    ///         async move { notify.notified().await }
    ///     });
    ///     notify.notify_one(); // kept for the waiter, if it does not wait yet
    ///     waiter.await.unwrap().unwrap();
    /// });
    /// ```
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, calls: self.calls.load(Ordering::Acquire), key: None, wait: Wait::default() }
    }

    /// Wakes the first waiter. If all waiters have been woken, or there are none, stores the notification.
    pub fn notify_one(&self) {
        let mut inside = lock(&self.inside);
        inside.stored += 1;
        inside.clip();
        wake_first(inside);
    }

    /// Wakes all current waiters. Stores nothing.
    pub fn notify_waiters(&self) {
        let mut wakers = Wakers::default();
        let mut inside = lock(&self.inside);
        self.calls.fetch_add(1, Ordering::AcqRel); // CALLED
        let mut left = inside.queue.len();
        loop {
            while left > 0 && !wakers.is_full() {
                left -= 1;
                if !inside.queue.wake_next(&mut wakers) {
                    left = 0;
                }
            }
            drop(inside);
            wakers.wake_all();
            if left == 0 {
                return;
            }
            inside = lock(&self.inside);
        }
    }
}

fn wake_first(mut inside: MutexGuard<'_, NotifyState>) {
    let mut wakers = Wakers::default();
    inside.queue.wake_next(&mut wakers);
    drop(inside);
    wakers.wake_all();
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stored, waiting) = {
            let inside = lock(&self.inside);
            (inside.stored, inside.queue.len())
        };
        f.debug_struct("Notify").field("stored", &stored).field("waiting", &waiting).finish()
    }
}

/// Future of [`Notify::notified`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Notified<'a> {
    notify: &'a Notify,
    calls: usize,
    key: Option<usize>,
    wait: Wait,
}

impl Notified<'_> {
    /// Leaves the queue. Without a notification (`told` is false), passes the wake-up on to the next waiter.
    fn leave(&mut self, mut inside: MutexGuard<'_, NotifyState>, told: bool) {
        let Some(key) = self.key.take() else { return };
        let passes_on = inside.queue.is_woken(key) && !told;
        let waker = inside.queue.leave(key);
        inside.clip();
        if inside.stored > 0 && (passes_on || inside.stored > inside.queue.claims()) {
            wake_first(inside);
        } else {
            drop(inside);
        }
        drop(waker);
    }
}

impl Future for Notified<'_> {
    type Output = Result<(), Cancelled>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Err(cancelled) = ready!(this.wait.begin(cx)) {
            if this.key.is_some() {
                this.leave(lock(&this.notify.inside), false);
            }
            return Poll::Ready(Err(cancelled));
        }
        let (waker, cancelled) = (GuardedWaker::of(cx.waker()), this.wait.is_cancelled());
        let mut inside = lock(&this.notify.inside);
        let called = this.notify.calls.load(Ordering::Acquire) != this.calls; // CALLED
        let mut gives_way = false;
        let told = inside.stored > 0
            && match this.key {
                Some(key) => {
                    (inside.queue.is_woken(key) || !called) && inside.queue.may_take(key, inside.stored)
                }
                // A new waiter yields once, unless there are enough notifications for all.
                None => {
                    gives_way = inside.stored <= inside.queue.needs();
                    !gives_way && !called
                }
            };
        if told || called || cancelled {
            if told {
                inside.stored -= 1;
            }
            this.leave(inside, told);
            drop(waker);
            this.wait.end();
            return Poll::Ready(if told || called { Ok(()) } else { Err(Cancelled) });
        }
        let (mut waker, mut old) = (Some(waker), None);
        match this.key {
            Some(key) => old = waker.take().and_then(|waker| inside.queue.sleep(key, waker)),
            None => this.key = Some(inside.queue.join(1, waker.take_if(|_| !gives_way))),
        }
        drop(inside);
        drop(old);
        if let Some(waker) = waker {
            waker.wake(); // yields: it is polled again without a notification
        }
        this.wait.rest(cx, &"a notification");
        Poll::Pending
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        if self.key.is_some() {
            self.leave(lock(&self.notify.inside), false);
        }
    }
}

impl fmt::Debug for Notified<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notified").field("waiting", &self.key.is_some()).finish_non_exhaustive()
    }
}
