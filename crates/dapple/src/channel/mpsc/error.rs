//! Errors of senders.

use std::error::Error;
use std::fmt;

use crate::waitlist::permits::PermitRefusal;

/// Error of [`Sender::send`](super::Sender::send), with the message that was not sent.
pub struct SendError<T> {
    pub(in crate::channel) message: T,
    pub(in crate::channel) cancelled: bool,
}

impl<T> SendError<T> {
    /// Whether the receiver is dropped or closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        !self.cancelled
    }

    /// Whether the wait was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    /// Returns the message.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.message
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.cancelled { CANCELLED } else { CLOSED })
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SendError({self})")
    }
}

impl<T> Error for SendError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.is_cancelled().then_some(&crate::Cancelled as _)
    }
}

const CANCELLED: &str = "the wait was cancelled";
const CLOSED: &str = "the channel is closed";

/// Error of [`Sender::try_send`](super::Sender::try_send), with the message that was not sent.
///
/// # Examples
///
/// ```
/// use dapple::channel::mpsc;
///
/// let (sender, _receiver) = mpsc::bounded(1);
/// sender.try_send("first").unwrap();
/// let error = sender.try_send("second").unwrap_err();
/// assert!(error.is_full());
/// assert_eq!(error.into_inner(), "second"); // nothing is lost
/// ```
pub struct TrySendError<T> {
    pub(in crate::channel) message: T,
    pub(in crate::channel) closed: bool,
}

impl<T> TrySendError<T> {
    /// Whether the receiver is dropped or closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether the channel is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.closed
    }

    /// Returns the message.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.message
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.closed { CLOSED } else { "the channel is full" })
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TrySendError({self})")
    }
}

impl<T> Error for TrySendError<T> {}

/// Error of [`Sender::reserve`](super::Sender::reserve) and its variants.
///
/// # Examples
///
/// ```
/// use dapple::channel::mpsc;
///
/// let (sender, receiver) = mpsc::bounded::<u32>(1);
/// let _permit = sender.try_reserve().unwrap();
/// assert!(sender.try_reserve().unwrap_err().is_full());
/// drop(receiver);
/// assert!(sender.try_reserve().unwrap_err().is_closed());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReserveError(pub(super) PermitRefusal);

impl ReserveError {
    /// Whether the receiver is dropped or closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0 == PermitRefusal::Closed
    }

    /// Whether the wait was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0 == PermitRefusal::Cancelled
    }

    /// Whether the channel is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.0 == PermitRefusal::Busy
    }
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            PermitRefusal::Busy => "the channel is full",
            PermitRefusal::Closed => CLOSED,
            PermitRefusal::Cancelled => CANCELLED,
        })
    }
}

impl Error for ReserveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.is_cancelled().then_some(&crate::Cancelled as _)
    }
}

impl From<ReserveError> for std::io::Error {
    /// [`is_cancelled`](crate::is_cancelled) holds for the error if the wait was cancelled.
    fn from(error: ReserveError) -> std::io::Error {
        std::io::Error::other(error)
    }
}
