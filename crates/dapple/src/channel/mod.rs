//! Channels between tasks: [`oneshot`], [`mpsc`], [`watch`].
//!
//! | to send | use |
//! |---|---|
//! | one value, once | [`oneshot`] |
//! | many values, from many, to one | [`mpsc`], bounded or not |
//! | the newest of a value, to many | [`watch`] |
//!
//! They work between tasks of any runtimes, on any executor, and with plain threads through the
//! forms with `blocking` in their names. Nothing is lost when a wait is dropped or cancelled: a
//! message that was not taken stays, and a value that was not sent comes back.

#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
pub mod mpsc;
pub mod oneshot;
#[cfg(not(loom))]
pub mod watch;

#[cfg(not(loom))]
pub use error::{RecvError, TryRecvError};
