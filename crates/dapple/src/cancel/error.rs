//! The error of a cancelled wait.

use std::error::Error;
use std::io;

/// A wait was cancelled: what it waited for has not happened, and nothing has been taken or lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cancelled;

impl std::fmt::Display for Cancelled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the wait was cancelled")
    }
}

impl std::error::Error for Cancelled {}

impl From<Cancelled> for io::Error {
    /// An error for which [`is_cancelled`] holds.
    fn from(cancelled: Cancelled) -> io::Error {
        // Not `Interrupted`, which is tried again.
        io::Error::other(cancelled)
    }
}

/// Whether an I/O error reports that its wait was cancelled. It also looks at the errors that this error wraps, since
/// libraries wrap them. Use it to tell the end of a task from a failure of its I/O.
///
/// # Examples
///
/// ```
/// let error = std::io::Error::from(dapple::Cancelled);
/// assert!(dapple::is_cancelled(&error));
/// assert!(!dapple::is_cancelled(&std::io::ErrorKind::TimedOut.into()));
/// ```
#[must_use]
pub fn is_cancelled(error: &io::Error) -> bool {
    causes(error).any(|cause| cause.is::<Cancelled>())
}

/// An error and its sources, from the outside in.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| {
        // `io::Error::source` is the source of the wrapped error, not the wrapped error itself.
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        wrapped.map(|wrapped| wrapped as &(dyn Error + 'static)).or_else(|| error.source())
    })
}
