//! A channel from many to many, bounded: every message goes to all receivers.
//!
//! Sending never waits. A receiver that is behind by more than the capacity misses the oldest messages, and learns how many
//! they were.
//!
//! ```
//! use dapple::channel::broadcast::{self, RecvError};
//!
//! dapple::run(async {
//!     let (sender, mut fast) = broadcast::bounded(2);
//!     let mut slow = sender.subscribe();
//!     for number in 0..3 {
//!         sender.send(number).unwrap();
//!         assert_eq!(fast.recv().await, Ok(number));
//!     }
//!     assert_eq!(slow.recv().await, Err(RecvError::Lagged(1)));
//!     assert_eq!(slow.recv().await, Ok(1));
//! });
//! ```

mod error;
mod receiver;
mod ring;
mod sender;

use crate::waitlist::permits::MAX;

pub use super::watch::SendError;
pub use error::{RecvError, TryRecvError};
pub use receiver::Receiver;
pub use sender::Sender;

/// Makes a channel whose messages go to every receiver. It keeps the newest `capacity` messages, rounded up to a
/// power of two, for receivers that are behind. Sending never waits.
///
/// A sender that comes round to a message spins while a receiver clones that message. So `T::clone` is to be short, and must
/// not send to the same channel: the sender would wait for itself. An [`Arc`](std::sync::Arc) is cloned at once.
///
/// # Panics
///
/// If `capacity` is 0, or more than half of [`Semaphore::MAX_PERMITS`](crate::sync::Semaphore::MAX_PERMITS).
///
/// # Examples
///
/// ```
/// use dapple::channel::broadcast;
///
/// dapple::run(async {
///     let (sender, mut receiver) = broadcast::bounded(16);
///     let mut late = sender.subscribe(); // hears of messages from now on
///     assert_eq!(sender.send("bach").unwrap(), 2); // to two receivers
///     assert_eq!(receiver.recv().await, Ok("bach"));
///     assert_eq!(late.recv().await, Ok("bach"));
/// });
/// ```
#[must_use]
#[track_caller]
pub fn bounded<T: Clone>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "broadcast::bounded(0): a channel without room passes nothing on; use 1 or more");
    assert!(
        capacity <= MAX / 2,
        "broadcast::bounded({capacity}): a channel counts up to {} messages; use fewer",
        MAX / 2
    );
    let sender = Sender::new(capacity);
    let receiver = sender.subscribe();
    (sender, receiver)
}
