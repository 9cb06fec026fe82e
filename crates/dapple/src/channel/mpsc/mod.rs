//! A channel from many senders to one receiver, bounded or not.
//!
//! ```
//! use dapple::channel::mpsc;
//!
//! dapple::run(async {
//!     let (sender, mut receiver) = mpsc::bounded(10);
//!     for number in 0..3 {
//!         let sender = sender.clone();
//!         dapple::spawn(async move { sender.send(number).await }).detach();
//!     }
//!     drop(sender);
//!     let mut sum = 0;
//!     while let Ok(number) = receiver.recv().await {
//!         sum += number;
//!     }
//!     assert_eq!(sum, 3);
//! });
//! ```

mod chan;
mod error;
mod permit;
mod receiver;
mod room;
mod sender;

use crate::waitlist::permits::MAX;

pub use super::error::{RecvError, TryRecvError};
pub use error::{ReserveError, SendError, TrySendError};
pub use permit::{OwnedPermit, Permit};
pub use receiver::Receiver;
pub use sender::{Sender, WeakSender};

/// Creates a channel for at most `capacity` messages. A sender that finds it full waits (backpressure).
///
/// # Examples
///
/// ```
/// use dapple::channel::mpsc;
///
/// dapple::run(async {
///     let (sender, mut receiver) = mpsc::bounded(1);
///     sender.send(1).await.unwrap();
///     assert!(sender.try_send(2).unwrap_err().is_full());
///     assert_eq!(receiver.recv().await.unwrap(), 1);
/// });
/// ```
///
/// # Panics
///
/// If `capacity` is 0, or more than `usize::MAX >> 8`.
#[must_use]
#[track_caller]
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "mpsc::bounded(0): a channel needs a capacity of 1 or more");
    assert!(
        capacity <= MAX,
        "mpsc::bounded({capacity}): a channel counts up to {MAX} messages; use mpsc::unbounded"
    );
    chan::channel(capacity)
}

/// Creates a channel for any number of messages: sending never waits. Use it only if the number of messages
/// is bounded in another way, since the queue grows without limit.
///
/// # Examples
///
/// ```
/// use dapple::channel::mpsc;
///
/// dapple::run(async {
///     let (sender, mut receiver) = mpsc::unbounded();
///     sender.try_send("at once").unwrap(); // never full
///     assert_eq!(receiver.recv().await, Ok("at once"));
/// });
/// ```
#[must_use]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    chan::channel(MAX)
}
