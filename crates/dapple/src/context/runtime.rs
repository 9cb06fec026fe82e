//! The runtime that this thread is in, for code that needs one. A missing runtime is reported by this file alone.

use std::io;

use super::{Fills, OfRuntime, with_context};
use crate::world;

/// Advice for the second argument of [`require`].
pub(crate) const HANDLE: &str = ", or use a Handle";

/// The runtime that this thread works for or has entered. The caller does not keep it.
///
/// # Panics
///
/// Without a runtime. `what` names the operation that needs one, and `or` completes the advice.
#[inline]
#[track_caller]
pub(crate) fn require<'a, T: Fills<OfRuntime>>(what: &str, or: &str) -> &'a T {
    let runtime = with_context(|context| context.runtime::<T>());
    // SAFETY: the pointer is set only while this thread works for the runtime or has entered it, and the caller does not
    // keep it.
    match unsafe { runtime.as_ref() } {
        Some(runtime) => runtime,
        None => missing(what, or),
    }
}

#[cold]
#[track_caller]
fn missing(what: &str, or: &str) -> ! {
    panic!("{what} needs a runtime: call it inside dapple::run, block_on or a task{or}");
}

/// The message of a future that is awaited without a runtime. `to` names the need for one, such as "wait in".
#[cold]
pub(crate) fn no_runtime(to: &str) -> String {
    let places = if world::is_simulated() {
        "Sim::run, or a task"
    } else {
        "dapple::run, a task, or Runtime::block_on"
    };
    format!("no runtime here to {to}: await it inside of {places}")
}

/// [`no_runtime`] as an error.
#[cold]
pub(crate) fn no_runtime_error(to: &str) -> io::Error {
    io::Error::other(no_runtime(to))
}
