//! Callbacks for signals.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use super::callback_tasks::Occasion;
use super::files::go_on;
use super::{Often, Registration, submit::CallSite};
use crate::signal::{self, Signal, SignalKind};
use crate::world;

impl Occasion for Signal {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        Stream::poll_next(Pin::new(self), cx).map(|came| came.is_some_and(|came| go_on(&came)))
    }
}

/// Calls a callback for each signal of a kind that is delivered from now on: libasync's `sigcb`.
///
/// The callback is an ordinary one, not a signal handler: it may call any function. The default action of the
/// signal is disabled for the rest of the process: see [`dapple::signal`](crate::signal).
///
/// # Errors
///
/// If the signal cannot be handled: see [`signal::signal`](signal::signal()). In a [simulation](crate::sim),
/// which has no signals.
///
/// # Panics
///
/// If the callback has no color, and there is [no main color](super#colors) for it.
///
/// # Examples
///
/// ```
/// use dapple::event::{self, Callback};
/// use dapple::signal::SignalKind;
///
/// # fn main() -> std::io::Result<()> {
/// dapple::run(async {
///     let (came, mut signals) = dapple::channel::mpsc::unbounded();
///     let tell = Callback::new(move || drop(came.try_send("SIGUSR2")));
///     let listening = event::signal(SignalKind::user_defined2(), tell)?;
///     std::process::Command::new("sh").args(["-c", "kill -USR2 $PPID"]).status()?;
///     assert_eq!(signals.recv().await, Ok("SIGUSR2"));
///     listening.withdraw().await?;
///     Ok(())
/// })
/// # }
/// ```
#[track_caller]
pub fn signal<C: Often>(kind: SignalKind, callback: C) -> io::Result<Registration> {
    let site = CallSite::of_caller("event::signal");
    world::outside("event::signal")?;
    Ok(callback.often(signal::signal(kind)?, site))
}
