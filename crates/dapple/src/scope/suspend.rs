//! Turns a callback into an await.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::Cancelled;
use crate::cancel::wait::Wait;
use crate::channel::oneshot;

/// Waits for a callback. Use it to await a library that reports by calling a function.
///
/// `begin` gets a [`Resume`], passes it to the code that will call back, and returns a closure that withdraws
/// the request. If the wait is cancelled or dropped before it was resumed, that closure is called; afterwards
/// the library should not call back. A late call of [`Resume::resume`] gets its value back.
///
/// # Errors
///
/// If the wait was cancelled. If it was cancelled before it began, `begin` is not called. If the `Resume` was
/// dropped.
///
/// # Cancellation
///
/// *Dropped early*: **lossy**: the request is withdrawn, and a value that has arrived is dropped. *Scope
/// cancelled*: the request is withdrawn, and this returns [`Cancelled`]; or the value, if it has arrived by
/// then.
///
/// # Examples
///
/// ```
/// use std::thread;
///
/// dapple::run(async {
///     // A library that calls back on its own thread.
///     let answer = dapple::suspend(|resume| {
///         thread::spawn(move || drop(resume.resume(6 * 7)));
///         || {} // cannot be withdrawn: a late value is dropped
///     });
///     assert_eq!(answer.await, Ok(42));
/// });
/// ```
pub fn suspend<T, F, W>(begin: F) -> Suspend<T, F, W>
where
    F: FnOnce(Resume<T>) -> W,
    W: FnOnce(),
{
    Suspend { state: SuspendState::New(begin), wait: Wait::default() }
}

/// Handle that resumes a [`suspend`]ed wait with a value.
///
/// # Examples
///
/// ```
/// use dapple::scope::{Resume, suspend};
/// use std::thread;
///
/// dapple::run(async {
///     let answer = suspend(|resume: Resume<u32>| {
///         thread::spawn(move || {
///             let _ = resume.resume(42); // an error if the wait was cancelled meanwhile: here is the value back
///         });
///         || {} // called if the wait is cancelled: nothing to withdraw
///     });
///     assert_eq!(answer.await, Ok(42));
/// });
/// ```
#[must_use = "a wait that is never resumed ends only by a cancel; dropping this ends it with an error"]
pub struct Resume<T>(oneshot::Sender<T>);

impl<T> Resume<T> {
    /// Resumes the wait with a value.
    ///
    /// # Errors
    ///
    /// Returns the value if the wait is over: it was cancelled, or dropped.
    pub fn resume(self, value: T) -> Result<(), T> {
        self.0.send(value)
    }

    /// Whether the wait is over, so that `resume` would return the value.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.0.is_closed()
    }
}

impl<T> fmt::Debug for Resume<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resume").field("is_over", &self.is_over()).finish()
    }
}

/// Future of [`suspend`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Suspend<T, F, W: FnOnce()> {
    state: SuspendState<T, F, W>,
    wait: Wait,
}

enum SuspendState<T, F, W> {
    New(F),
    Waits { value: oneshot::Receiver<T>, withdraw: W },
    Over,
}

// No field is ever pinned.
impl<T, F, W: FnOnce()> Unpin for Suspend<T, F, W> {}

impl<T, F, W> Future for Suspend<T, F, W>
where
    F: FnOnce(Resume<T>) -> W,
    W: FnOnce(),
{
    type Output = Result<T, Cancelled>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if let Err(cancelled) = ready!(this.wait.begin(cx)) {
            return Poll::Ready(this.give_up().ok_or(cancelled));
        }
        if let SuspendState::New(_) = this.state
            && let SuspendState::New(begin) = std::mem::replace(&mut this.state, SuspendState::Over)
        {
            let (sender, value) = oneshot::channel();
            this.state = SuspendState::Waits { value, withdraw: begin(Resume(sender)) };
        }
        let SuspendState::Waits { value, .. } = &mut this.state else {
            panic!("suspend: polled again after it was done")
        };
        let result = match Pin::new(value).poll(cx) {
            Poll::Pending => {
                this.wait.rest_around(cx);
                return Poll::Pending;
            }
            Poll::Ready(Ok(value)) => {
                this.state = SuspendState::Over; // nothing to withdraw
                Ok(value)
            }
            Poll::Ready(Err(_)) => this.withdraw().ok_or(Cancelled),
        };
        this.wait.end_around();
        Poll::Ready(result)
    }
}

impl<T, F, W: FnOnce()> Suspend<T, F, W> {
    /// Returns the value, if it has arrived. Otherwise withdraws the request.
    fn give_up(&mut self) -> Option<T> {
        if let SuspendState::Waits { value, .. } = &mut self.state
            && let Ok(value) = value.try_recv()
        {
            self.state = SuspendState::Over; // nothing to withdraw
            return Some(value);
        }
        let resumed = self.withdraw();
        self.state = SuspendState::Over;
        resumed
    }

    /// Withdraws the request. Returns a value that has arrived by then.
    fn withdraw(&mut self) -> Option<T> {
        let SuspendState::Waits { mut value, withdraw } =
            std::mem::replace(&mut self.state, SuspendState::Over)
        else {
            return None;
        };
        withdraw();
        value.close();
        value.try_recv().ok()
    }
}

impl<T, F, W: FnOnce()> Drop for Suspend<T, F, W> {
    fn drop(&mut self) {
        drop(self.withdraw());
    }
}

impl<T, F, W: FnOnce()> fmt::Debug for Suspend<T, F, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Suspend").finish_non_exhaustive()
    }
}
