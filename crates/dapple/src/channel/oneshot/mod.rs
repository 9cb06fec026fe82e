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

mod half;
pub(crate) mod word;

pub use super::error::{RecvError, TryRecvError};
pub use half::{Receiver, Sender, channel};
