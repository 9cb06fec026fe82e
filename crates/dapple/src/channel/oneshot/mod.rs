//! A channel for one value: one allocation, and one atomic operation on each side.
//!
//! ```
//! use dapple::channel::oneshot;
//!
//! dapple::run(async {
//!     let (sender, receiver) = oneshot::channel();
//!     dapple::spawn(async move { sender.send("done") }).detach();
//!     assert_eq!(receiver.await.unwrap(), "done");
//! });
//! ```

#[cfg(not(loom))]
mod half;
pub(crate) mod word;

#[cfg(not(loom))]
pub use super::error::{RecvError, TryRecvError};
#[cfg(not(loom))]
pub use half::{Receiver, Sender, channel};
