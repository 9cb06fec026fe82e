//! A channel from many to many, bounded: every message goes to one receiver.
//!
//! ```
//! use dapple::channel::mpmc;
//!
//! dapple::run(async {
//!     let (sender, receiver) = mpmc::bounded(10);
//!     let workers: Vec<_> = (0..3)
//!         .map(|_| {
//!             let receiver = receiver.clone();
//!             dapple::spawn(async move {
//!                 let mut sum = 0;
//!                 while let Ok(number) = receiver.recv().await {
//!                     sum += number;
//!                 }
//!                 sum
//!             })
//!         })
//!         .collect();
//!     for number in 1..=100 {
//!         sender.send(number).await.unwrap();
//!     }
//!     drop(sender);
//!     let mut sum = 0;
//!     for worker in workers {
//!         sum += worker.await.unwrap();
//!     }
//!     assert_eq!(sum, 5050);
//! });
//! ```

mod handles;
mod message_store;

use crate::waitlist::permits::MAX;

pub use super::error::{RecvError, TryRecvError};
pub use super::mpsc::{SendError, TrySendError};
pub use handles::{Receiver, Sender};

/// Makes a channel with room for `capacity` messages. Each message goes to one receiver, the first that asks for it.
/// When the channel is full, senders wait.
///
/// It closes when all senders or all receivers are gone. Messages that are left can still be received.
///
/// # Panics
///
/// If `capacity` is 0, or more than `usize::MAX >> 8`.
///
/// # Examples
///
/// ```
/// use dapple::channel::mpmc;
///
/// dapple::run(async {
///     let (sender, receiver) = mpmc::bounded(8);
///     let other = receiver.clone(); // each message goes to one of the two
///     sender.send("job").await.unwrap();
///     assert_eq!(other.recv().await, Ok("job"));
///     drop(sender);
///     assert!(receiver.recv().await.unwrap_err().is_closed());
/// });
/// ```
#[must_use]
#[track_caller]
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "mpmc::bounded(0): a channel without room passes nothing on; use 1 or more");
    assert!(capacity <= MAX, "mpmc::bounded({capacity}): a channel counts up to {MAX} messages; use fewer");
    handles::channel(capacity)
}
