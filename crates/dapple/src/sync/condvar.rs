//! A condition variable for the [`Mutex`](super::Mutex).
//!
//! # Invariants
//!
//! * **IN-LINE-FIRST**: a waiter joins the queue before it unlocks the mutex, so it misses no notification of
//!   a task that locks the mutex afterwards.
//! * **NOTIFICATION-PASSED-ON**: a notification of a wait that was dropped before it returned goes to the
//!   next waiter, as does that of a wait in a race that another side has won before the mutex was locked again.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::mutex::MutexGuard;
use crate::Cancelled;
use crate::cancel::wait::is_lost;
use crate::prim::{Mutex, lock};
use crate::task::guarded::GuardedWaker;
use crate::waitlist::permits::PermitWait;
use crate::waitlist::wait::{Wait, Wakers, got_at_once};
use crate::waitlist::wait_queue::WaitQueue;

/// Condition variable: waits, with a [`Mutex`](super::Mutex) unlocked, until another task announces a change
/// of its value.
///
/// Use it when a task needs the lock together with a condition on the value. [`Notify`](super::Notify)
/// signals without a lock.
///
/// # Examples
///
/// ```
/// use dapple::sync::{Condvar, Mutex};
/// use std::sync::Arc;
///
/// dapple::run(async {
///     let shared = Arc::new((Mutex::new(0), Condvar::new()));
///     let waiter = dapple::spawn({
///         let shared = shared.clone();
///         async move {
///             let (number, changed) = &*shared;
///             let number = number.lock().await?;
///             let (number, waited) = changed.wait_while(number, |number| *number < 3).await;
///             waited.map(|()| *number)
///         }
///     });
///     let (number, changed) = &*shared;
///     for _ in 0..3 {
///         *number.lock().await.unwrap() += 1;
///         changed.notify_one();
///     }
///     assert_eq!(waiter.await.unwrap(), Ok(3));
/// });
/// ```
#[derive(Default)]
pub struct Condvar {
    queue: Mutex<WaitQueue>,
}

impl Condvar {
    /// Creates a condition variable without waiters.
    #[must_use]
    pub fn new() -> Condvar {
        Condvar::default()
    }

    /// Unlocks the mutex, waits for a notification, and locks the mutex again.
    ///
    /// The guard comes back in any case, so that the caller can restore the guarded value.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** a notification that it had received to the next waiter; the mutex has
    /// been unlocked.
    /// *Scope cancelled*: returns the guard and [`Cancelled`]. No notification has been taken. The mutex was
    /// unlocked meanwhile, unless the scope was cancelled before the call. Locking the mutex again is not
    /// cancelled. If the wait had been notified, returns the guard and `Ok`; in a [`race`](crate::race()) that another side
    /// has won meanwhile, it hands the notification over and returns [`Cancelled`].
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::sync::{Condvar, Mutex};
    /// use std::sync::Arc;
    ///
    /// dapple::run(async {
    ///     let state = Arc::new((Mutex::new(false), Condvar::new()));
    ///     let waiter = dapple::spawn({
    ///         let state = state.clone();
    ///         async move {
    ///             let mut open = state.0.lock().await?;
    ///             while !*open {
    ///                 let waited;
    ///                 (open, waited) = state.1.wait(open).await; // the guard comes back, cancelled or not
    ///                 waited?;
    ///             }
    ///             Ok::<(), dapple::Cancelled>(())
    ///         }
    ///     });
    ///     *state.0.lock().await.unwrap() = true;
    ///     state.1.notify_one();
    ///     waiter.await.unwrap().unwrap();
    /// });
    /// ```
    pub async fn wait<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
    ) -> (MutexGuard<'a, T>, Result<(), Cancelled>) {
        let mutex = MutexGuard::mutex(&guard);
        let mut guard = Some(guard);
        let mut pass_on = PassOn { condvar: self, armed: false };
        let waiting = CondvarWait { condvar: self, guard: &mut guard, key: None, wait: Wait::default() };
        let waited = waiting.await;
        if let Some(guard) = guard {
            return (guard, waited); // cancelled before it began
        }
        pass_on.armed = waited.is_ok();
        let locked = PermitWait::shielded(mutex.permits(), 1).await;
        debug_assert!(locked.is_ok(), "a mutex is not closed, and this wait not cancelled");
        if pass_on.armed && is_lost() {
            return (mutex.guard(), Err(Cancelled)); // NOTIFICATION-PASSED-ON, EXACT
        }
        pass_on.armed = false;
        (mutex.guard(), waited)
    }

    /// Waits while `condition` returns `true`. It is called with the mutex locked.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** a notification that it had received to the next waiter; the mutex has
    /// been unlocked.
    /// *Scope cancelled*: returns the guard and [`Cancelled`]; or the guard and `Ok`, if the condition was
    /// `false` when the mutex was locked again. In a [`race`](crate::race()) that another side has won, [`Cancelled`].
    pub async fn wait_while<'a, T: ?Sized, F: FnMut(&mut T) -> bool>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: F,
    ) -> (MutexGuard<'a, T>, Result<(), Cancelled>) {
        let mut begin = Wait::default();
        let mut waited = std::future::poll_fn(|cx| begin.begin(cx)).await;
        if waited.is_err() {
            return (guard, waited);
        }
        let mut has_waited = false;
        while condition(&mut guard) {
            if waited.is_err() {
                return (guard, waited);
            }
            (guard, waited) = self.wait(guard).await;
            has_waited = true;
        }
        if !has_waited {
            got_at_once();
        } else if is_lost() {
            return (guard, Err(Cancelled)); // EXACT
        }
        (guard, Ok(()))
    }

    /// Wakes the first waiter. Without a waiter it does nothing.
    pub fn notify_one(&self) {
        let mut wakers = Wakers::default();
        lock(&self.queue).wake_next(&mut wakers);
        wakers.wake_all();
    }

    /// Wakes all current waiters.
    pub fn notify_all(&self) {
        let mut wakers = Wakers::default();
        let mut left = lock(&self.queue).len();
        while left > 0 {
            let mut queue = lock(&self.queue);
            while left > 0 && queue.wake_next(&mut wakers) {
                left -= 1;
            }
            let more = wakers.is_full();
            drop(queue);
            wakers.wake_all();
            if !more {
                return;
            }
        }
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = lock(&self.queue).len();
        f.debug_struct("Condvar").field("waiting", &waiting).finish()
    }
}

/// Passes a notification on to the next waiter if dropped while armed. NOTIFICATION-PASSED-ON
struct PassOn<'a> {
    condvar: &'a Condvar,
    armed: bool,
}

impl Drop for PassOn<'_> {
    fn drop(&mut self) {
        if self.armed {
            self.condvar.notify_one();
        }
    }
}

/// Future that unlocks the mutex and waits for a notification.
struct CondvarWait<'a, 'g, 'm, T: ?Sized> {
    condvar: &'a Condvar,
    guard: &'g mut Option<MutexGuard<'m, T>>,
    key: Option<usize>,
    wait: Wait,
}

impl<T: ?Sized> Future for CondvarWait<'_, '_, '_, T> {
    type Output = Result<(), Cancelled>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        ready!(this.wait.begin(cx))?;
        let (waker, cancelled) = (GuardedWaker::of(cx.waker()), this.wait.is_cancelled());
        let mut queue = lock(&this.condvar.queue);
        let Some(key) = this.key else {
            this.key = Some(queue.join(1, Some(waker)));
            drop(queue);
            drop(this.guard.take()); // IN-LINE-FIRST
            this.wait.rest(cx, &"a condition variable");
            return Poll::Pending;
        };
        let notified = queue.is_woken(key);
        if notified || cancelled {
            let old = queue.leave(key);
            this.key = None;
            drop(queue);
            drop((old, waker));
            this.wait.end();
            return Poll::Ready(if notified { Ok(()) } else { Err(Cancelled) });
        }
        let old = queue.sleep(key, waker);
        drop(queue);
        drop(old);
        this.wait.rest(cx, &"a condition variable");
        Poll::Pending
    }
}

impl<T: ?Sized> Drop for CondvarWait<'_, '_, '_, T> {
    fn drop(&mut self) {
        let Some(key) = self.key.take() else { return };
        let mut queue = lock(&self.condvar.queue);
        let notified = queue.is_woken(key);
        let waker = queue.leave(key);
        drop(queue);
        let _passed_on = PassOn { condvar: self.condvar, armed: notified };
        drop(waker);
    }
}
