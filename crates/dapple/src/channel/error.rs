//! Errors of receivers, shared by all channels.

use std::error::Error;
use std::fmt;

/// Error of a wait for a message, a value or a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError {
    pub(super) cancelled: bool,
}

impl RecvError {
    /// Whether the channel is closed and all messages have been received.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        !self.cancelled
    }

    /// Whether the wait was cancelled. The receiver can be awaited again.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.cancelled { "the wait was cancelled" } else { "the channel is closed" })
    }
}

impl Error for RecvError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.is_cancelled().then_some(&crate::Cancelled as _)
    }
}

impl From<RecvError> for std::io::Error {
    /// [`is_cancelled`](crate::is_cancelled) holds for the error if the wait was cancelled.
    fn from(error: RecvError) -> std::io::Error {
        std::io::Error::other(error)
    }
}

/// Error of a receiver's `try_recv`.
///
/// # Examples
///
/// ```
/// use dapple::channel::mpsc;
///
/// let (sender, mut receiver) = mpsc::bounded::<u32>(1);
/// assert!(receiver.try_recv().unwrap_err().is_empty());
/// drop(sender);
/// assert!(receiver.try_recv().unwrap_err().is_closed());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryRecvError {
    pub(super) closed: bool,
}

impl TryRecvError {
    /// Whether the channel is closed and all messages have been received.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the channel is open, and empty now.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.closed
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.closed { "the channel is closed" } else { "the channel is empty" })
    }
}

impl Error for TryRecvError {}
