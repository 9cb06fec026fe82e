//! Signals of the operating system, as events to wait for.
//!
//! Any number of listeners may wait for a signal, and each gets every signal that was delivered after
//! the listener was made. There is no handler to write. A handler that the program had installed before is
//! still called.
//!
//! For a graceful shutdown there is [`shutdown`], which waits for SIGINT or SIGTERM.
//!
//! **The first listener removes the signal's default action for good**, also after the last
//! listener was dropped: a program that has once waited for Ctrl-C is no longer ended by it.
//!
//! ```no_run
//! use dapple::signal::{SignalKind, signal};
//!
//! # fn main() -> std::io::Result<()> {
//! dapple::run(async {
//!     let mut hangups = signal(SignalKind::hangup())?;
//!     loop {
//!         hangups.recv().await?;
//!         println!("reading the configuration again");
//!     }
//! })
//! # }
//! ```
//!
//! # Merged signals
//!
//! If a standard signal is sent while the same one is pending, the kernel merges them, and
//! delivers one; real-time signals are all delivered. Every delivered signal is counted.

mod kind;
mod listener;

pub use kind::SignalKind;
pub use listener::{CtrlC, ShutdownSignal, Signal, ctrl_c, shutdown, signal};
