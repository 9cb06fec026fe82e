//! Signals of the operating system, as something to wait for.
//!
//! Any number of listeners may wait for a signal, and each is told of each one that was delivered after
//! it was made. There is no handler to write. A handler that the program had installed before is
//! still called.
//!
//! **From the first listener on, the signal's default action is gone for good**, also after the last
//! listener was dropped: a program that has once waited for Ctrl-C is not ended by it any more.
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
//! # What the kernel merges
//!
//! A standard signal that is sent while the same one is on its way already is one with it, and is
//! delivered once; real-time signals are all delivered. What is delivered is counted, each one.

mod kind;
mod listener;

pub use kind::SignalKind;
pub use listener::{CtrlC, Signal, ctrl_c, signal};
