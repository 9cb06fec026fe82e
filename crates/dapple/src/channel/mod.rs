//! Channels between tasks: [`oneshot`], [`mpsc`], [`mpmc`], [`broadcast`], [`watch`].
//!
//! | to send | use |
//! |---|---|
//! | one value, once | [`oneshot`] |
//! | many values, from many senders to one receiver | [`mpsc`], bounded or not |
//! | many values, each to one of many receivers | [`mpmc`], bounded |
//! | many values, each to all receivers | [`broadcast`], bounded; a slow receiver misses the oldest |
//! | the latest value, to many receivers | [`watch`] |
//!
//! They work between tasks of any runtimes and on any executor, and with plain threads by the methods with
//! `blocking` in their names. Nothing is lost when a wait is dropped or cancelled: a message that was not
//! taken stays in the channel, and a value that was not sent is returned.

pub mod broadcast;
mod error;
pub mod mpmc;
pub mod mpsc;
pub mod oneshot;
pub mod watch;

pub use error::{RecvError, TryRecvError};
