//! A moment at which who waits for something else is to be polled, too.

use std::task::Context;
use std::time::Duration;

use super::Sched;
use crate::driver::clock::Time;
use crate::driver::timers::{Fired, Key, TimerInsert, Timers};
use crate::task::guarded::GuardedWaker;

/// Wakes who waits after a while, if nobody does before. Where there is no runtime, nobody wakes him.
#[derive(Default)]
pub(crate) struct WakeTimer {
    due: Option<Time>,
    timer: Option<(&'static Timers, Key)>,
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
            let driver = sched.driver_here();
            let entered = driver.timers.insert(due.not_before(), GuardedWaker::of(cx.waker()));
            if let TimerInsert::At { key, is_first } = entered {
                self.timer = Some((driver.timers, key));
                if is_first && !Sched::is_at_post() {
                    driver.ring();
                }
            }
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
