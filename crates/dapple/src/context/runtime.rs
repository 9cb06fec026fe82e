//! The runtime that this thread is in, for code that needs one. How a missing one is reported is worded here alone.

use std::io;

use super::context::with_context;
use super::runtime_shared::RuntimeShared;
use crate::world;

/// Advice for the second argument of [`require`].
pub(crate) const HANDLE: &str = ", or use a Handle";

/// The runtime that this thread works for or has entered. The caller does not keep it.
///
/// # Panics
///
/// If there is none, with `what` needs it and, behind the usual advice, `or` what else there is to do.
#[inline]
#[track_caller]
pub(crate) fn require<'a>(what: &str, or: &str) -> &'a RuntimeShared {
    let home = with_context(|here| here.home.get());
    // SAFETY: it is set only while this thread works for a runtime or has entered it, and the
    // caller does not keep it.
    match unsafe { home.as_ref() } {
        Some(home) => home,
        None => missing(what, or),
    }
}

#[cold]
#[track_caller]
fn missing(what: &str, or: &str) -> ! {
    panic!("{what} needs a runtime: call it inside dapple::run, block_on or a task{or}");
}

/// The message of a future that is awaited where there is no runtime; `to` is the need for one, such as "wait in".
#[cold]
pub(crate) fn no_runtime(to: &str) -> String {
    let places = if world::is_simulated() {
        "Sim::run, or a task"
    } else {
        "dapple::run, a task, or Runtime::block_on"
    };
    format!("no runtime here to {to}: await it inside of {places}")
}

/// The same as an error.
#[cold]
pub(crate) fn no_runtime_error(to: &str) -> io::Error {
    io::Error::other(no_runtime(to))
}
