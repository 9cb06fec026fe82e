//! Spawning and calling in a color.

use super::submit::{InColor, submit};
use crate::Color;
use crate::cancel::JoinHandle;
use crate::task::header::Meta;
use crate::task::poll::ClosureFuture;

impl Color {
    /// Spawns a task in this color: it never runs at the same time as another task of the color, and gets its
    /// first poll after all work that was submitted before.
    ///
    /// If the runtime has ended, [`is_gone`](crate::JoinError::is_gone) holds for the error of the handle.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::Color;
    ///
    /// dapple::run(async {
    ///     let room = Color::keyed("room 7");
    ///     let first = room.spawn(async { 1 }); // the two never run at the same time
    ///     let second = room.spawn(async { 2 });
    ///     assert_eq!(first.await.unwrap() + second.await.unwrap(), 3);
    /// });
    /// ```
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        submit(InColor::new(self), future, Meta::of_caller())
    }

    /// Calls a closure in this color, after all work that was submitted before.
    ///
    /// # Cancellation
    ///
    /// *Handle dropped*: the closure is called nevertheless.
    /// *Scope cancelled*: awaiting the handle returns an error, and the closure is called nevertheless.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::{Color, ColorCell};
    /// use std::sync::Arc;
    ///
    /// dapple::run(async {
    ///     let color = Color::new();
    ///     let seats = Arc::new(ColorCell::in_color(&color, 100));
    ///     let left = color.call({
    ///         let seats = seats.clone();
    ///         move || seats.with(|seats| { *seats -= 1; *seats })
    ///     });
    ///     assert_eq!(left.await.unwrap(), 99);
    /// });
    /// ```
    #[track_caller]
    pub fn call<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        submit(InColor::new(self), ClosureFuture::new(f), Meta::of_caller())
    }
}
