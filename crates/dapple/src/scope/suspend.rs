//! From a callback to an await.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use crate::Cancelled;
use crate::cancel::wait::Wait;
use crate::channel::oneshot;

/// Waits for a callback: `begin` is given what resumes this wait, hands it to whoever calls back, and
/// returns how to withdraw it.
///
/// If the wait is cancelled, or dropped, before it was resumed, that is called: after it, nobody should
/// call back any more. Who does so all the same gets the value back.
///
/// # Errors
///
/// If it was cancelled. If it was cancelled before it began, `begin` is not called. If whoever was to call
/// back has dropped what resumes it.
///
/// # Cancellation
///
/// *Dropped early*: withdrawn; a value that has come is lost. *Scope cancelled*: withdrawn, and returns
/// [`Cancelled`], unless a value has come until then: then that is returned.
///
/// # Examples
///
/// ```
/// use std::thread;
///
/// dapple::run(async {
///     // A library that calls back, on a thread of its own.
///     let answer = dapple::suspend(|resume| {
///         thread::spawn(move || drop(resume.resume(6 * 7)));
///         || {} // cannot be withdrawn: what comes late is dropped
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

/// Resumes a [`suspend`]ed wait.
#[must_use = "what is never resumed waits until it is cancelled; dropping this cancels it"]
pub struct Resume<T>(oneshot::Sender<T>);

impl<T> Resume<T> {
    /// Resumes the wait with a value.
    ///
    /// # Errors
    ///
    /// The value comes back if the wait is over: it was cancelled, or dropped.
    pub fn resume(self, value: T) -> Result<(), T> {
        self.0.send(value)
    }

    /// Whether the wait is over, so that a value would come back.
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

/// The future of [`suspend`].
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

// Nothing in it is ever pinned.
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
            panic!("it was polled after its end")
        };
        let result = match Pin::new(value).poll(cx) {
            Poll::Pending => {
                this.wait.rest_around(cx);
                return Poll::Pending;
            }
            Poll::Ready(Ok(value)) => {
                this.state = SuspendState::Over; // there is nothing to withdraw
                Ok(value)
            }
            Poll::Ready(Err(_)) => this.withdraw().ok_or(Cancelled),
        };
        this.wait.end_around();
        Poll::Ready(result)
    }
}

impl<T, F, W: FnOnce()> Suspend<T, F, W> {
    /// The value, if it has been resumed: that cannot be undone. Otherwise withdraws what was begun.
    fn give_up(&mut self) -> Option<T> {
        if let SuspendState::Waits { value, .. } = &mut self.state
            && let Ok(value) = value.try_recv()
        {
            self.state = SuspendState::Over; // there is nothing to withdraw
            return Some(value);
        }
        let resumed = self.withdraw();
        self.state = SuspendState::Over;
        resumed
    }

    /// Withdraws what was begun; a value that has come until then is returned.
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
