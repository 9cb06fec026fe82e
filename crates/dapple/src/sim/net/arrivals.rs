//! Waiters for an arrival on a simulated connection, each with a timer for the moment of the arrival.
//!
//! A waiter that knows of data in flight sets a timer for its arrival. If data is sent later, the sender sets
//! the timer of the waiter. So a waiter is woken when data arrives, and not when it is sent. The timer belongs to
//! the driver of the worker that sets it.
//!
//! # Invariants
//!
//! * **LOOK-AND-JOIN**: a waiter looks, joins the list and ends its poll without a switch to another virtual thread
//!   (**ONE-RUNS**, see `world`), so that it misses no event.
//! * **FIRST-ALARM**: a waiter is woken at the earliest arrival that was announced since it joined. It then looks
//!   by itself at what has arrived.

use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use std::time::Duration;

use crate::Cancelled;
use crate::cancel::wait::Wait;
use crate::context::no_runtime_error;
use crate::driver::clock::Time;
use crate::driver::timers::{Key, Timers};
use crate::prim::{Mutex, lock};
use crate::sched::Sched;
use crate::task::guarded::GuardedWaker;
use crate::world;

#[derive(Default)]
pub(super) struct Arrivals {
    waiting: Mutex<ArrivalWaiters>,
}

#[derive(Default)]
struct ArrivalWaiters {
    list: Vec<Waiter>,
    last_number: u64,
}

struct Waiter {
    number: u64,
    call: Arc<ArrivalWaker>,
    alarm: Option<ArrivalTimer>,
}

/// The waker of a waiter. It is reference-counted, so that no foreign code runs under a lock.
struct ArrivalWaker(GuardedWaker);

impl ArrivalWaker {
    fn waker(call: Arc<ArrivalWaker>) -> GuardedWaker {
        GuardedWaker::from(Waker::from(call))
    }
}

impl Wake for ArrivalWaker {
    fn wake(self: Arc<ArrivalWaker>) {
        self.0.wake_by_ref();
    }
}

/// A timer. It ends when this value is dropped.
struct ArrivalTimer {
    at: u64,
    timers: &'static Timers,
    key: Key,
}

impl ArrivalTimer {
    /// `None` if there is nothing to wait for: the moment has come, or there is no simulation.
    fn set(at: u64, call: &Arc<ArrivalWaker>) -> Option<ArrivalTimer> {
        if world::clock().is_none_or(|now| at <= now) {
            return None;
        }
        let due = Time::FIRST.later(Duration::from_nanos(at));
        let mut timer = None;
        Sched::current(|sched| sched.enter_timer(due, ArrivalWaker::waker(call.clone()), &mut timer));
        timer.map(|(timers, key)| ArrivalTimer { at, timers, key })
    }
}

impl Drop for ArrivalTimer {
    fn drop(&mut self) {
        self.timers.remove(self.key);
    }
}

impl Arrivals {
    /// Announces an arrival at this moment.
    pub(super) fn expect(&self, at: u64) {
        let mut now = Vec::new();
        let mut waiting = lock(&self.waiting);
        for waiter in &mut waiting.list {
            if waiter.alarm.as_ref().is_some_and(|alarm| alarm.at <= at) {
                continue; // FIRST-ALARM
            }
            // The earlier timer is dropped here. The waiter still counts its waker, so no foreign destructor runs.
            waiter.alarm = ArrivalTimer::set(at, &waiter.call);
            if waiter.alarm.is_none() {
                now.push(waiter.call.clone());
            }
        }
        drop(waiting);
        now.into_iter().for_each(|call| call.0.wake_by_ref());
    }

    /// Announces that something is there now.
    pub(super) fn call(&self) {
        self.expect(0);
    }

    fn join(&self, number: Option<u64>, waker: &Waker, until: Option<u64>) -> u64 {
        let call = Arc::new(ArrivalWaker(GuardedWaker::of(waker)));
        let alarm = until.and_then(|until| ArrivalTimer::set(until, &call));
        let is_over = until.is_some() && alarm.is_none();
        let mut waiting = lock(&self.waiting);
        let number = number.unwrap_or(waiting.last_number + 1);
        waiting.last_number = waiting.last_number.max(number);
        let waiter = Waiter { number, call: call.clone(), alarm };
        let old = match waiting.list.iter_mut().find(|waiter| waiter.number == number) {
            Some(place) => Some(std::mem::replace(place, waiter)),
            None => {
                waiting.list.push(waiter);
                None
            }
        };
        drop(waiting);
        drop(old); // foreign code, not under the lock
        if is_over {
            call.0.wake_by_ref();
        }
        number
    }

    fn leave(&self, number: u64) {
        let mut waiting = lock(&self.waiting);
        let index = waiting.list.iter().position(|waiter| waiter.number == number);
        let left = index.map(|index| waiting.list.remove(index));
        drop(waiting);
        drop(left); // foreign code, not under the lock
    }
}

/// The result of an attempt.
pub(super) enum Tried<T> {
    Done(T),
    /// Try again at this moment, if one is known, or when an event happens.
    NotYet(Option<u64>),
}

/// A wait of one caller, which tries until it succeeds. It can be used for one operation after the other.
#[derive(Default)]
pub(super) struct ArrivalWait {
    wait: Wait,
    place: Option<(Arc<Arrivals>, u64)>,
}

impl ArrivalWait {
    /// Tries, and waits until the attempt succeeds.
    pub(super) fn poll<T>(
        &mut self,
        cx: &mut Context<'_>,
        arrivals: &Arc<Arrivals>,
        what: &'static &'static str,
        attempt: impl FnOnce() -> io::Result<Tried<T>>,
    ) -> Poll<io::Result<T>> {
        if let Err(cancelled) = ready!(self.wait.begin(cx)) {
            self.leave();
            return Poll::Ready(Err(cancelled.into()));
        }
        let done = match attempt() {
            Ok(Tried::Done(done)) => Ok(done),
            Err(error) => Err(error),
            Ok(Tried::NotYet(_)) if self.wait.is_cancelled() => Err(Cancelled.into()),
            Ok(Tried::NotYet(_)) if Sched::current(|_| ()).is_none() => Err(no_runtime_error("wait in")),
            Ok(Tried::NotYet(until)) => {
                let number = self.place.as_ref().map(|(_, number)| *number);
                let number = arrivals.join(number, cx.waker(), until); // LOOK-AND-JOIN
                self.place = Some((arrivals.clone(), number));
                self.wait.rest(cx, what);
                return Poll::Pending;
            }
        };
        self.leave();
        self.wait.end();
        Poll::Ready(done)
    }

    fn leave(&mut self) {
        if let Some((arrivals, number)) = self.place.take() {
            arrivals.leave(number);
        }
    }
}

impl Drop for ArrivalWait {
    fn drop(&mut self) {
        self.leave();
    }
}

impl std::fmt::Debug for ArrivalWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Turn").field("waits", &self.place.is_some()).finish_non_exhaustive()
    }
}
