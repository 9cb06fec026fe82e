//! Channels between tasks: [`oneshot`], [`mpsc`], [`watch`].
//!
//! | to send | use |
//! |---|---|
//! | one value, once | [`oneshot`] |
//! | many values, from many senders to one receiver | [`mpsc`], bounded or not |
//! | the latest value, to many receivers | [`watch`] |
//!
//! They work between tasks of any runtimes and on any executor, and with plain threads by the methods with
//! `blocking` in their names. Nothing is lost when a wait is dropped or cancelled: a message that was not
//! taken stays in the channel, and a value that was not sent is returned.

#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
pub mod mpsc;
pub mod oneshot;
#[cfg(not(loom))]
pub mod watch;

#[cfg(not(loom))]
pub use error::{RecvError, TryRecvError};
