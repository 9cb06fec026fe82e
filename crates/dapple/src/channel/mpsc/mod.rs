//! A channel from many to one, bounded or not.
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

/// A channel that holds so many messages; who sends more waits.
///
/// # Panics
///
/// If `capacity` is 0, or more than a semaphore can count.
#[must_use]
#[track_caller]
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "mpsc::bounded(0): a channel without room passes nothing on; use 1 or more");
    assert!(capacity <= MAX, "mpsc::bounded: more than {MAX} messages");
    chan::channel(capacity)
}

/// A channel that holds as many messages as memory does: sending never waits.
#[must_use]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    chan::channel(MAX)
}
