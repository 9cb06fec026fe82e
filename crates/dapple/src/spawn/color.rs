//! Spawning and calling in a color.

use super::submit::{InColor, submit};
use crate::Color;
use crate::cancel::JoinHandle;
use crate::task::header::Meta;
use crate::task::poll::ClosureFuture;

impl Color {
    /// Spawns a task in this color. It never runs at the same time as another of the color, and gets its first poll
    /// after all tasks and calls that were submitted before.
    ///
    /// If the runtime has ended, the handle returns an error ([`JoinError::is_gone`](crate::JoinError)).
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        submit(InColor::new(self), future, Meta::of_caller())
    }

    /// Calls a closure in this color, after all tasks and calls that were submitted before.
    ///
    /// # Cancellation
    ///
    /// *Handle dropped*: the closure is called all the same. *Scope cancelled* in which the handle is awaited: the
    /// wait is cancelled, and the closure is called all the same.
    #[track_caller]
    pub fn call<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        submit(InColor::new(self), ClosureFuture::new(f), Meta::of_caller())
    }
}
