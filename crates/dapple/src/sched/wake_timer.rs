//! Entering timers, and a timeout beside another wait.

use std::task::Context;
use std::time::Duration;

use super::Sched;
use crate::driver::clock::Time;
use crate::driver::timers::{Fired, Key, TimerInsert, Timers};
use crate::task::guarded::GuardedWaker;

/// Location of a timer, if one was entered.
pub(crate) type TimerSlot = Option<(&'static Timers, Key)>;

impl Sched {
    /// Enters a timer with the driver of this thread's worker, or with any driver, and wakes the worker that sleeps
    /// there if the timer is the first to fire. Enters nothing if its time has come or the runtime has ended.
    ///
    /// `time::Sleep` repeats these lines: calling this function would cost it 5 instructions.
    pub(crate) fn enter_timer(&self, due: Time, waker: GuardedWaker, timer: &mut TimerSlot) {
        let driver = self.driver_here();
        if let TimerInsert::At { key, is_first } = driver.timers.insert(due.not_before(), waker) {
            *timer = Some((driver.timers, key));
            if is_first && !Sched::owns_slot_here() {
                driver.wake();
            }
        }
    }
}

/// Timeout beside another wait: wakes the waiter after a while. Without a runtime it never fires.
#[derive(Default)]
pub(crate) struct WakeTimer {
    due: Option<Time>,
    timer: TimerSlot,
}

impl WakeTimer {
    /// Whether it was set and its time has come.
    pub(crate) fn is_late(&self) -> bool {
        self.due.is_some_and(|due| Time::now() >= due)
    }

    /// Sets the timer to `after` from now, unless it is set and has not fired yet.
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
