//! The runtimes that compete, each behind the same two small traits.
//!
//! A [`Host`] owns a running runtime; a [`Side`] is what a task inside of it
//! can do: spawn, join, detach, yield. The cases are written once, generic over
//! the side, so that every runtime does literally the same work; the traits
//! only forward, and everything in them is inlined.

mod dapple;
mod monoio;
pub(crate) mod net;
mod smol;
mod threads;
mod tokio;

pub(crate) use self::dapple::{Dapple, DappleLane};
pub(crate) use self::monoio::Monoio;
pub(crate) use self::smol::{Smol, SmolDriven, SmolStatic};
pub(crate) use self::threads::Threads;
pub(crate) use self::tokio::{Tokio, TokioDriven, TokioLocalSet};

/// Workers of every runtime that has a choice.
pub(crate) const WORKERS: usize = 2;

/// A running runtime, built before the clock starts and dropped after it stops.
pub(crate) trait Host: Sized {
    /// The name in the ratio lines.
    const NAME: &'static str;

    /// The operations of a task of this runtime.
    type Side: Side;

    /// Starts the runtime and its threads.
    fn start() -> Self;

    /// Runs a future as a spawned task, and waits for it on this thread.
    fn run<F>(&mut self, work: impl FnOnce(Self::Side) -> F) -> F::Output
    where
        F: Future<Output: Send + 'static> + Send + 'static;
}

/// The operations of a task, in the runtime's own way.
///
/// Zero-sized except for a lane, whose side holds its color.
pub(crate) trait Side: Clone + Send + Sync + 'static {
    /// The right to wait for a task.
    type Handle<T: Send + 'static>: Send + 'static;

    /// Spawns a task.
    fn spawn<F>(&self, future: F) -> Self::Handle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static;

    /// Lets the task run on by itself.
    fn detach<T: Send + 'static>(handle: Self::Handle<T>);

    /// Waits for the task's output.
    fn join<T: Send + 'static>(handle: Self::Handle<T>) -> impl Future<Output = T> + Send;

    /// Lets the others run once.
    fn yield_now() -> impl Future<Output = ()> + Send;
}
