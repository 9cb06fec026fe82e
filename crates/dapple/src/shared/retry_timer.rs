//! What a gate has to do with time: whoever waits in line looks again after a while, by himself; and whether a
//! state is wanted by many just now.
//!
//! A model has no clock: there, nobody looks again.

#[cfg(not(loom))]
pub(crate) use crate::sched::wake_timer::WakeTimer;
#[cfg(loom)]
pub(crate) use out_of_time::{WakeTimer, hurry, ring_later};

/// What the scheduler and the clock have to say.
#[cfg(not(loom))]
pub(crate) mod hurry {
    use crate::driver::clock::Time;
    use crate::sched::Sched;

    /// Now, in microseconds, which come again after an hour.
    pub(crate) fn micros() -> u32 {
        (Time::now().nanos() / 1_000) as u32
    }

    /// Tells the scheduler that what runs here finds a state in use.
    pub(crate) fn contended() {
        Sched::contended();
    }
}

/// Has `waker` woken after [`AGAIN`]. `false` if this thread is in no runtime.
#[cfg(not(loom))]
pub(crate) fn ring_later(waker: crate::task::guarded::GuardedWaker) -> bool {
    use crate::driver::clock::Time;
    let due = Time::now().later(AGAIN);
    crate::sched::Sched::current(|sched| sched.enter_timer(due, waker, &mut None)).is_some()
}

/// After this long, who waits looks whether those have come who were woken.
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
