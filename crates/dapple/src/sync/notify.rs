//! Notify: something has happened, come and look.
//!
//! # Invariants
//!
//! * **FREE-UNTIL-POLLED**: see `permits`: a notification is handed to nobody; it is counted until somebody takes
//!   it in his own poll. There are never more than those who wait, and one.
//! * **CALLED**: `calls` counts `notify_waiters`. It changes under the lock; a wait that was made
//!   before a call is over.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::Cancelled;
use crate::prim::{AtomicUsize, Mutex, MutexGuard, Ordering, lock};
use crate::task::guarded::GuardedWaker;
use crate::waitlist::wait::{Wait, Wakers};
use crate::waitlist::wait_queue::WaitQueue;

/// Tells one who waits, or all of them, that something has happened.
///
/// [`notify_one`](Self::notify_one) while nobody waits is kept for the next who does, once.
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
    /// Notifications that nobody has taken.
    stored: usize,
    line: WaitQueue,
}

impl NotifyState {
    /// Whoever left without his notification leaves it to the others.
    fn clip(&mut self) {
        self.stored = self.stored.min(self.line.len().max(1));
    }
}

impl Notify {
    /// With nobody waiting and nothing stored.
    #[must_use]
    pub fn new() -> Notify {
        Notify::default()
    }

    /// Waits for a notification: one that was stored, the next [`notify_one`](Self::notify_one) that
    /// goes to this wait, or any [`notify_waiters`](Self::notify_waiters) from the moment of this
    /// call on, even before the first poll.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** to the next in line what it was woken for; loses its place.
    /// *Scope cancelled*: returns [`Cancelled`], and no notification has been taken; or `Ok`, if there
    /// was one when the wait was polled again.
    pub fn notified(&self) -> Notified<'_> {
        Notified { notify: self, calls: self.calls.load(Ordering::Acquire), key: None, wait: Wait::default() }
    }

    /// Wakes the first who waits. If all have been woken, the notification is stored for one.
    pub fn notify_one(&self) {
        let mut inside = lock(&self.inside);
        inside.stored += 1;
        inside.clip();
        wake_first(inside);
    }

    /// Wakes all who wait now. Nothing is stored.
    pub fn notify_waiters(&self) {
        let mut wakers = Wakers::default();
        let mut inside = lock(&self.inside);
        self.calls.fetch_add(1, Ordering::AcqRel); // CALLED
        let mut left = inside.line.len();
        loop {
            while left > 0 && !wakers.is_full() {
                left -= 1;
                if !inside.line.wake_next(&mut wakers) {
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
    inside.line.wake_next(&mut wakers);
    drop(inside);
    wakers.wake_all();
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stored, waiting) = {
            let inside = lock(&self.inside);
            (inside.stored, inside.line.len())
        };
        f.debug_struct("Notify").field("stored", &stored).field("waiting", &waiting).finish()
    }
}

/// The wait of [`Notify::notified`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Notified<'a> {
    notify: &'a Notify,
    calls: usize,
    key: Option<usize>,
    wait: Wait,
}

impl Notified<'_> {
    /// Leaves the line, with a notification or leaving it to the next.
    fn leave(&mut self, mut inside: MutexGuard<'_, NotifyState>, told: bool) {
        let Some(key) = self.key.take() else { return };
        let passes_on = inside.line.is_woken(key) && !told;
        let waker = inside.line.leave(key);
        inside.clip();
        if inside.stored > 0 && (passes_on || inside.stored > inside.line.claims()) {
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
                    (inside.line.is_woken(key) || !called) && inside.line.may_take(key, inside.stored)
                }
                // A newcomer gives way once, unless there is enough for all.
                None => {
                    gives_way = inside.stored <= inside.line.needs();
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
            Some(key) => old = waker.take().and_then(|waker| inside.line.sleep(key, waker)),
            None => this.key = Some(inside.line.join(1, waker.take_if(|_| !gives_way))),
        }
        drop(inside);
        drop(old);
        if let Some(waker) = waker {
            waker.wake(); // gives way, and comes back without being told
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
