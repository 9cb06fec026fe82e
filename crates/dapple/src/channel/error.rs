//! Why a receiver got nothing: the same two answers for all channels.

use std::error::Error;
use std::fmt;

/// Why a wait for a message, a value or a change got none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError {
    pub(super) cancelled: bool,
}

impl RecvError {
    /// All there was has been received, and nothing more will come.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        !self.cancelled
    }

    /// The wait was cancelled; the receiver can be waited for again.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.cancelled { "the wait was cancelled" } else { "nothing more will come" })
    }
}

impl Error for RecvError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.is_cancelled().then_some(&crate::Cancelled as _)
    }
}

impl From<RecvError> for std::io::Error {
    /// An error for which [`is_cancelled`](crate::is_cancelled) holds if the wait was cancelled.
    fn from(error: RecvError) -> std::io::Error {
        std::io::Error::other(error)
    }
}

/// Why there is nothing to be received now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryRecvError {
    pub(super) closed: bool,
}

impl TryRecvError {
    /// All there was has been received, and nothing more will come.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Nothing has come yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.closed
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.closed { "nothing more will come" } else { "nothing has come yet" })
    }
}

impl Error for TryRecvError {}
