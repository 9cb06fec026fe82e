//! Spawning for users: `spawn`, `spawn_local`, `blocking`, `Color::spawn`, and the task builder.
//!
//! ```text
//! submit   the only way of a new task to its queue; a layer of its own, below the runtime
//! builder  tasks with a name, a color, a priority, a limit or a drop closure
//! color    Color::spawn and Color::call
//! ```

mod builder;
mod color;
pub(crate) mod submit;

pub use self::builder::{Builder, DropClosure, NoDropClosure};
use self::submit::{FreshColor, submit, submit_local};
use crate::cancel::JoinHandle;
use crate::context::{HANDLE, require};
use crate::runtime::{Core, OnPool};
use crate::task::header::Meta;
use crate::task::poll::ClosureFuture;
use crate::task::runtime_shared::WholeRuntime;

/// Spawns a task with a color of its own: it runs in parallel with all other tasks.
///
/// If the runtime is shutting down, [`is_gone`](crate::JoinError::is_gone) holds for the error of the handle.
///
/// # Panics
///
/// Outside of a runtime.
///
/// # Examples
///
/// ```
/// dapple::run(async {
///     let handles: Vec<_> = (0..10).map(|i| dapple::spawn(async move { i * i })).collect();
///     let mut sum = 0;
///     for handle in handles {
///         sum += handle.await.unwrap();
///     }
///     assert_eq!(sum, 285);
/// });
/// ```
#[track_caller]
#[inline]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    submit(FreshColor(require("dapple::spawn", HANDLE)), future, Meta::of_caller())
}

/// Spawns a task in the main color: it runs on this thread, and need not be `Send`.
///
/// # Panics
///
/// If the caller does not run in a main color: in the future of [`run`](crate::run) or
/// [`block_on`](crate::Runtime::block_on), or in a task spawned there with `spawn_local`.
///
/// # Examples
///
/// ```
/// use std::{cell::Cell, rc::Rc};
/// dapple::run(async {
///     let count = Rc::new(Cell::new(0));
///     let task = { let count = count.clone(); dapple::spawn_local(async move { count.set(1) }) };
///     task.await.unwrap();
///     assert_eq!(count.get(), 1);
/// });
/// ```
#[track_caller]
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    submit_local(future, Meta::of_caller())
}

/// Calls `f` on a thread of the blocking pool, where it may block for any time. Use it for blocking system
/// calls, and for long computations.
///
/// The pool starts threads when needed, up to a limit
/// ([`max_blocking_threads`](crate::runtime::Builder::max_blocking_threads)), and ends idle ones. A call that
/// has not begun can be aborted; one that has begun cannot. If not even one thread can be started,
/// [`is_refused`](crate::JoinError::is_refused) holds for the error of the handle.
///
/// A task that blocks in its poll instead delays its own color, and its worker until a spare worker replaces
/// it ([`stall_after`](crate::runtime::Builder::stall_after)).
///
/// # Cancellation
///
/// *Handle dropped*: the call goes on, or will begin, and its result is dropped.
/// *Scope cancelled*, also by a [`timeout`](crate::time::timeout()) or a [`race`](crate::race): awaiting the
/// handle returns an error with [`is_cancelled`](crate::JoinError::is_cancelled) at once. A call that has
/// begun goes on, and awaiting `&mut handle` again returns its result. A call that has not begun never will,
/// and awaiting again returns an error with [`is_aborted`](crate::JoinError::is_aborted). Await the handle in
/// a [`shield`](crate::shield) to wait in any case. Blocking waits inside of the call return an error if the
/// call itself was cancelled ([`JoinHandle::cancel`]).
///
/// # Panics
///
/// Outside of a runtime.
///
/// # Examples
///
/// ```
/// dapple::run(async {
///     let text = dapple::blocking(|| std::fs::read_to_string("/proc/version")).await.unwrap();
///     assert!(text.unwrap().starts_with("Linux"));
/// });
/// ```
#[track_caller]
pub fn blocking<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    submit(OnPool(Core::of(require("dapple::blocking", HANDLE))), ClosureFuture::new(f), Meta::of_caller())
}
