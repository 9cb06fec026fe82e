//! Timers: how one is entered, and a moment at which the waiter for something else is to be polled, too.

use std::task::Context;
use std::time::Duration;

use super::Sched;
use crate::driver::clock::Time;
use crate::driver::timers::{Fired, Key, TimerInsert, Timers};
use crate::task::guarded::GuardedWaker;

/// Where a timer was entered, if it was.
pub(crate) type TimerSlot = Option<(&'static Timers, Key)>;

impl Sched {
    /// Enters a timer with the driver of this thread's worker, or with any, and wakes the worker that sleeps there if the
    /// timer is the first to fire. Nothing is entered if its time has come, or the runtime has ended.
    ///
    /// `time::Sleep` has these lines once more: by this function it costs 5 instructions more.
    pub(crate) fn enter_timer(&self, due: Time, waker: GuardedWaker, timer: &mut TimerSlot) {
        let driver = self.driver_here();
        if let TimerInsert::At { key, is_first } = driver.timers.insert(due.not_before(), waker) {
            *timer = Some((driver.timers, key));
            if is_first && !Sched::owns_slot_here() {
                driver.ring();
            }
        }
    }
}

/// Wakes who waits after a while, if nobody does before. Where there is no runtime, nobody wakes him.
#[derive(Default)]
pub(crate) struct WakeTimer {
    due: Option<Time>,
    timer: TimerSlot,
}

impl WakeTimer {
    /// Whether it was set, and the time has come.
    pub(crate) fn is_late(&self) -> bool {
        self.due.is_some_and(|due| Time::now() >= due)
    }

    /// Sees to it that the waker is woken after so long, from when it was first set or the time last came.
    pub(crate) fn set(&mut self, after: Duration, cx: &mut Context<'_>) {
        if let Some((timers, key)) = self.timer {
            match timers.has_fired(key, cx.waker()) {
                Fired::NotYet => return,
                Fired::Yes | Fired::Gone => self.timer = None,
            }
        }
        let due = Time::now().later(after);
        self.due = Some(due);
        Sched::current(|sched| {
            sched.enter_timer(due, GuardedWaker::of(cx.waker()), &mut self.timer);
        });
    }

    pub(crate) fn unset(&mut self) {
        self.due = None;
        if let Some((timers, key)) = self.timer.take() {
            timers.remove(key);
        }
    }
}

impl Drop for WakeTimer {
    #[inline]
    fn drop(&mut self) {
        if self.timer.is_some() {
            self.unset();
        }
    }
}
