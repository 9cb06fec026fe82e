//! Spawning and calling in a color.

use super::submit::{InColor, submit};
use crate::Color;
use crate::cancel::JoinHandle;
use crate::task::header::Meta;
use crate::task::poll::ClosureFuture;

impl Color {
    /// Spawns a task in this color: it never runs while another of the color does, and gets its
    /// first poll after all that was submitted before.
    ///
    /// If the runtime is gone, the handle says so ([`JoinError::is_gone`](crate::JoinError)).
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        submit(InColor::new(self), future, Meta::of_caller())
    }

    /// Calls a closure in this color, behind all that was submitted before.
    ///
    /// # Cancellation
    ///
    /// *Handle dropped*: it is called all the same. *Scope cancelled* in which the handle is awaited: so is the
    /// wait, and the closure is called all the same.
    #[track_caller]
    pub fn call<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        submit(InColor::new(self), ClosureFuture::new(f), Meta::of_caller())
    }
}
