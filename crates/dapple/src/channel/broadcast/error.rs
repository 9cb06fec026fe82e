//! Why a receiver of a broadcast got nothing.

use std::error::Error;
use std::fmt;

use crate::Cancelled;

/// Error of [`Receiver::recv`](super::Receiver::recv): there is no message.
///
/// # Examples
///
/// ```
/// use dapple::channel::broadcast::{self, RecvError};
///
/// dapple::run(async {
///     let (sender, mut slow) = broadcast::bounded(1);
///     sender.send(1).unwrap();
///     sender.send(2).unwrap();
///     drop(sender);
///     let mut received = Vec::new();
///     loop {
///         match slow.recv().await {
///             Ok(number) => received.push(number),
///             Err(RecvError::Lagged(missed)) => eprintln!("missed {missed} messages"), // goes on with the oldest
///             Err(RecvError::Closed) | Err(RecvError::Cancelled) => break,
///         }
///     }
///     assert_eq!(received, [2]);
/// });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvError {
    /// The receiver was too slow, and has missed this number of messages. The next one that it receives is the oldest that
    /// is still there.
    Lagged(u64),
    /// All senders are gone, and all messages have been received.
    Closed,
    /// The wait was cancelled. The next `recv` goes on where this one was.
    Cancelled,
}

impl RecvError {
    /// Whether all senders are gone and all messages have been received.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        *self == RecvError::Closed
    }

    /// Whether the wait was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self == RecvError::Cancelled
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RecvError::Lagged(missed) => write!(f, "the receiver was too slow and missed {missed} messages"),
            RecvError::Closed => f.write_str("nothing more will come"),
            RecvError::Cancelled => f.write_str("the wait was cancelled"),
        }
    }
}

impl Error for RecvError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.is_cancelled().then_some(&Cancelled as _)
    }
}

impl From<Cancelled> for RecvError {
    fn from(Cancelled: Cancelled) -> RecvError {
        RecvError::Cancelled
    }
}

impl From<RecvError> for std::io::Error {
    /// An error for which [`is_cancelled`](crate::is_cancelled) holds if the wait was cancelled.
    fn from(error: RecvError) -> std::io::Error {
        std::io::Error::other(error)
    }
}

/// Error of [`Receiver::try_recv`](super::Receiver::try_recv): there is no message now.
///
/// # Examples
///
/// ```
/// use dapple::channel::broadcast::{self, TryRecvError};
///
/// let (sender, mut receiver) = broadcast::bounded(1);
/// assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
/// sender.send(1).unwrap();
/// assert_eq!(receiver.try_recv(), Ok(1));
/// drop(sender);
/// assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// The receiver was too slow, and has missed this number of messages. The next one that it receives is the oldest that
    /// is still there.
    Lagged(u64),
    /// All senders are gone, and all messages have been received.
    Closed,
    /// All messages so far have been received.
    Empty,
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryRecvError::Lagged(missed) => RecvError::Lagged(*missed).fmt(f),
            TryRecvError::Closed => RecvError::Closed.fmt(f),
            TryRecvError::Empty => f.write_str("nothing has come yet"),
        }
    }
}

impl Error for TryRecvError {}
