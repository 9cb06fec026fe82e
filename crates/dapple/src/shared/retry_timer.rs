//! Clock of the access lock: a timer that makes waiters re-check, and a test for contended states.

pub(crate) use crate::sched::wake_timer::WakeTimer;

/// Clock and scheduler, as far as the access lock needs them.
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

/// Wakes `waker` after [`AGAIN`]. Returns `false` if it will not: this thread is in no runtime, or in one that has ended, or
/// was held up for so long that the time has come.
pub(crate) fn wake_later(waker: crate::task::guarded::GuardedWaker) -> bool {
    use crate::driver::clock::Time;
    let due = Time::now().later(AGAIN);
    let mut timer = None;
    crate::sched::Sched::current(|sched| sched.enter_timer(due, waker, &mut timer));
    timer.is_some()
}

/// Interval at which a waiter checks whether the woken waiters have been polled.
pub(crate) const AGAIN: std::time::Duration = std::time::Duration::from_millis(2);
