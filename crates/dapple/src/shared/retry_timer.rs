//! Clock of the access lock: a timer that makes waiters re-check, and a test for contended states.
//!
//! A loom model has no clock: its waiters do not re-check.

#[cfg(not(loom))]
pub(crate) use crate::sched::wake_timer::WakeTimer;
#[cfg(loom)]
pub(crate) use out_of_time::{WakeTimer, hurry, ring_later};

/// Clock and scheduler, as far as the access lock needs them.
#[cfg(not(loom))]
pub(crate) mod hurry {
    use crate::driver::clock::Time;
    use crate::sched::Sched;

    /// Current time in microseconds. Wraps around after 71 minutes.
    pub(crate) fn micros() -> u32 {
        (Time::now().nanos() / 1_000) as u32
    }

    /// Tells the scheduler that the running task found a state in use.
    pub(crate) fn contended() {
        Sched::contended();
    }
}

/// Wakes `waker` after [`AGAIN`]. Returns `false` if this thread is in no runtime.
#[cfg(not(loom))]
pub(crate) fn ring_later(waker: crate::task::guarded::GuardedWaker) -> bool {
    use crate::driver::clock::Time;
    let due = Time::now().later(AGAIN);
    crate::sched::Sched::current(|sched| sched.enter_timer(due, waker, &mut None)).is_some()
}

/// Interval at which a waiter checks whether the woken waiters have been polled.
pub(crate) const AGAIN: std::time::Duration = std::time::Duration::from_millis(2);

#[cfg(loom)]
mod out_of_time {
    use std::task::Context;

    #[derive(Default)]
    pub(crate) struct WakeTimer;

    impl WakeTimer {
        pub(crate) fn is_late(&self) -> bool {
            false
        }

        pub(crate) fn set(&mut self, _after: std::time::Duration, _cx: &mut Context<'_>) {}

        pub(crate) fn unset(&mut self) {}
    }

    /// A model has no forgotten waiters.
    pub(crate) fn ring_later(_waker: crate::task::guarded::GuardedWaker) -> bool {
        true
    }

    pub(crate) mod hurry {
        pub(crate) fn micros() -> u32 {
            0
        }

        pub(crate) fn contended() {}
    }
}
