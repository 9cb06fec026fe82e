//! Race: the first future to finish wins; the others are cancelled and waited for.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::children::ChildPanic;
use super::region::{Region, RegionVerdict};

/// Runs futures concurrently and returns the output of the first to finish. The others are cancelled and
/// waited for, and their outputs are dropped.
///
/// They run in this task, never in parallel. The first of the tuple is polled first. Use
/// [`finish`](crate::finish) to get the outputs of all.
///
/// ```text
/// race((a, b))  ---- polls both ----- b ends: b has won ---- a is cancelled ---- a ends ---> output of b
/// ```
///
/// No message is lost: a wait in a loser that has taken nothing takes nothing afterwards, even if it could.
/// (A wait cancelled in any other way returns a value that is ready, since its result is used.) So `loop {
/// race((receiver.recv(), sleep(d))).await }` receives every message. Values that a loser *already holds*
/// when it loses are dropped with it, unless its own code saves them: the first half of a `read_exact`, a
/// message between two waits, the result of a file operation in progress.
/// A task that a loser has [spawned](crate::Scope::spawn) in a scope is cancelled as any task: a wait of
/// that task may still take a value that is ready.
///
/// Losers are waited for as [`timeout`](crate::time::timeout()) waits for a future whose time is up. They are
/// dropped under the same conditions: if they wait in no future of this crate that could return `Cancelled`.
/// Put clean-up code that awaits foreign futures into a [`shield`](crate::shield).
///
/// # Panics
///
/// If one of the futures panics: the others are cancelled, and when they have ended the panic goes on.
///
/// # Cancellation
///
/// *Dropped early*: as each of the futures.
/// *Scope cancelled*: all futures are cancelled; the first to end wins.
///
/// # Examples
///
/// ```
/// use dapple::time::{Duration, sleep};
///
/// dapple::run(async {
///     let slow = async { sleep(Duration::from_secs(60)).await.map(|()| "slow") };
///     let quick = async { sleep(Duration::from_millis(1)).await.map(|()| "quick") };
///     assert_eq!(dapple::race((slow, quick)).await, Ok("quick"));
/// });
/// ```
pub fn race<R: Racers>(racers: R) -> Race<R::Output, R::Running> {
    Race { racers: R::start(racers), winner: None, panic: None, region: Region::new() }
}

/// Polls one future. Returns `true` if it has ended.
type PollOne<'a, T> = dyn FnMut(&mut Context<'_>, Pin<&mut dyn Future<Output = T>>) -> bool + 'a;

/// Argument of [`race`]: a tuple of two to eight futures with the same output.
pub trait Racers: sealed::Sealed + Sized {
    /// Output of each future.
    type Output;
    #[doc(hidden)]
    type Running: Running<Self::Output>;
    #[doc(hidden)]
    fn start(self) -> Self::Running;
}

/// Futures of a running race. Not a part of [`Racers`]: whether a race is `Send` must not depend on a
/// projection that needs all outputs to be of the same type, since the compiler erases lifetimes there.
#[doc(hidden)]
pub trait Running<T>: sealed::Sealed {
    /// Polls all futures that have not ended, and drops those that end. Returns whether all have ended, and
    /// the payload of the first destructor that panicked.
    fn poll(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        poll: &mut PollOne<'_, T>,
    ) -> (bool, Option<ChildPanic>);

    /// Drops all futures that have not ended. Returns the payload of the first destructor that panicked.
    fn clear(self: Pin<&mut Self>) -> Option<ChildPanic>;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! impl_racers {
    ($($name:ident $index:tt),+) => {
        impl<$($name),+> sealed::Sealed for ($($name,)+) {}

        impl<Out, $($name: Future<Output = Out>),+> Racers for ($($name,)+) {
            type Output = Out;
            type Running = ($(Option<$name>,)+);

            fn start(self) -> Self::Running {
                ($(Some(self.$index),)+)
            }
        }

        impl<Out, $($name: Future<Output = Out>),+> Running<Out> for ($(Option<$name>,)+) {
            fn poll(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                poll: &mut PollOne<'_, Out>,
            ) -> (bool, Option<ChildPanic>) {
                // SAFETY: the futures are not moved, and are dropped in place.
                let running = unsafe { self.get_unchecked_mut() };
                let (mut ended, mut first) = (true, None);
                $(
                    // SAFETY: structurally pinned.
                    let mut future = unsafe { Pin::new_unchecked(&mut running.$index) };
                    if let Some(polled) = future.as_mut().as_pin_mut() {
                        if poll(cx, polled) {
                            let dropped = catch_unwind(AssertUnwindSafe(|| future.set(None)));
                            first = first.or(dropped.err());
                        } else {
                            ended = false;
                        }
                    }
                )+
                (ended, first)
            }

            fn clear(self: Pin<&mut Self>) -> Option<ChildPanic> {
                // SAFETY: the futures are not moved, and are dropped in place.
                let running = unsafe { self.get_unchecked_mut() };
                let mut first = None;
                $(
                    // SAFETY: structurally pinned.
                    let mut future = unsafe { Pin::new_unchecked(&mut running.$index) };
                    let dropped = catch_unwind(AssertUnwindSafe(|| future.set(None)));
                    first = first.or(dropped.err());
                )+
                first
            }
        }
    };
}

impl_racers!(A 0, B 1);
impl_racers!(A 0, B 1, C 2);
impl_racers!(A 0, B 1, C 2, D 3);
impl_racers!(A 0, B 1, C 2, D 3, E 4);
impl_racers!(A 0, B 1, C 2, D 3, E 4, F 5);
impl_racers!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
impl_racers!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// Future of [`race`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Race<T, R> {
    racers: R,
    winner: Option<T>,
    panic: Option<ChildPanic>,
    region: Region,
}

impl<T, R: Running<T>> Future for Race<T, R> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // SAFETY: the racers are not moved; the other fields need not be pinned.
        let Race { racers, winner, panic, region } = unsafe { self.get_unchecked_mut() };
        loop {
            let was_decided = winner.is_some() || panic.is_some();
            // SAFETY: structurally pinned.
            let mut pinned = unsafe { Pin::new_unchecked(&mut *racers) };
            region.begin_pass();
            let (mut ended, mut dropped) = pinned.as_mut().poll(cx, &mut |cx, future| {
                match region.poll(cx, None, |cx| future.poll(cx)) {
                    Ok(Poll::Pending) => return false,
                    Ok(Poll::Ready(output)) if winner.is_none() => *winner = Some(output),
                    Ok(Poll::Ready(output)) => {
                        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(output))) {
                            panic.get_or_insert(payload);
                        }
                    }
                    Err(payload) => drop(panic.get_or_insert(payload)),
                }
                region.lose();
                true
            });
            // Futures polled before the winner ended have not seen the cancel: they are polled once more.
            if !ended && was_decided {
                match region.verdict(cx) {
                    RegionVerdict::Waits => {}
                    RegionVerdict::Again => continue,
                    RegionVerdict::Drop => (ended, dropped) = (true, dropped.or(pinned.clear())),
                }
            }
            if let Some(payload) = dropped {
                panic.get_or_insert(payload);
                region.lose();
            }
            if ended {
                region.end();
                return match panic.take() {
                    Some(payload) => resume_unwind(payload),
                    None => Poll::Ready(winner.take().expect("a race is polled until it is over")),
                };
            }
            if was_decided || (winner.is_none() && panic.is_none()) {
                region.rest(cx);
                return Poll::Pending;
            }
        }
    }
}

impl<T, R> fmt::Debug for Race<T, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Race").field("is_decided", &self.winner.is_some()).finish_non_exhaustive()
    }
}
