//! Yielding: to the next task in the queue, or to a chosen one.

use std::pin::Pin;
use std::task::{Context, Poll};

use super::Task;

/// Lets the other tasks of this worker, and of this color, run; then goes on. Use it between the pieces of a long
/// computation.
///
/// It is not a point of cancellation: it waits for no event, so it always succeeds.
///
/// # Cancellation
///
/// *Dropped early*: **clean**. *Scope cancelled*: goes on as usual. (A [`timeout`](crate::time::timeout()) whose time is up
/// and a [`race`](crate::race) that is decided drop a future that only yields, after 128 times.)
///
/// # Examples
///
/// ```
/// dapple::run(async {
///     for _ in 0..10 {
///         dapple::task::yield_now().await;
///     }
/// });
/// ```
pub fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// The future of [`yield_now`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.yielded {
            return Poll::Ready(());
        }
        self.yielded = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Hands this worker to another task, which runs next; the calling task goes to the end of the queue. Use it when the
/// other task should go ahead, such as the receiver of a message that was just sent.
///
/// If the target waits, it is polled, as after a wake-up. If the target is running or queued already, or its color is
/// busy, this does the same as [`yield_now`]: the order within a color is never broken.
///
/// # Cancellation
///
/// *Dropped early*: **clean**. *Scope cancelled*: goes on as usual.
///
/// # Examples
///
/// ```
/// dapple::run(async {
///     let other = dapple::spawn(async { "done" });
///     dapple::task::yield_to(&other).await;
///     assert_eq!(other.await.unwrap(), "done");
/// });
/// ```
pub fn yield_to<T: Target>(target: &T) -> YieldTo<'_> {
    YieldTo { target: target.target(), give_way: yield_now() }
}

/// A target of [`yield_to`]: a [`Task`], or the [`JoinHandle`](crate::JoinHandle) of one.
///
/// # Examples
///
/// ```
/// use dapple::task::yield_to;
///
/// dapple::run(async {
///     let handle = dapple::spawn(async { 42 }); // a `JoinHandle` is a target, and so is a `Task`
///     yield_to(&handle).await;
///     assert_eq!(handle.await.unwrap(), 42);
/// });
/// ```
pub trait Target: sealed::Sealed {
    #[doc(hidden)]
    fn target(&self) -> Option<&Task>;
}

pub(crate) mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Task {}
}

impl Target for Task {
    fn target(&self) -> Option<&Task> {
        Some(self)
    }
}

/// The future of [`yield_to`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct YieldTo<'a> {
    target: Option<&'a Task>,
    give_way: YieldNow,
}

impl Future for YieldTo<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // A task that is awake runs soon anyway. (The running task is awake.)
        if let Some(target) = self.target.take()
            && target.is_waiting()
        {
            target.wake_next();
        }
        Pin::new(&mut self.give_way).poll(cx)
    }
}
