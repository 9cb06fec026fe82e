//! Channels between tasks: [`oneshot`], [`mpsc`], [`mpmc`], [`broadcast`], [`watch`].
//!
//! | to send | use |
//! |---|---|
//! | one value, once | [`oneshot`] |
//! | many values, from many, to one | [`mpsc`], bounded or not |
//! | many values, from many, each to one of many | [`mpmc`], bounded |
//! | many values, from many, each to all | [`broadcast`], bounded; a slow receiver misses the oldest |
//! | the newest of a value, to many | [`watch`] |
//!
//! They work between tasks of any runtimes, on any executor, and with plain threads through the
//! forms with `blocking` in their names. Nothing is lost when a wait is dropped or cancelled: a
//! message that was not taken stays, and a value that was not sent comes back.

#[cfg(not(loom))]
pub mod broadcast;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
pub mod mpmc;
#[cfg(not(loom))]
pub mod mpsc;
pub mod oneshot;
#[cfg(not(loom))]
pub mod watch;

#[cfg(not(loom))]
pub use error::{RecvError, TryRecvError};
