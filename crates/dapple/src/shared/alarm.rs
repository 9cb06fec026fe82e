//! What a gate has to do with time: whoever waits in line looks again after a while, by himself; and whether a
//! state is wanted by many just now.
//!
//! A model has no clock: there, nobody looks again.

#[cfg(not(loom))]
pub(crate) use in_time::{AGAIN, Alarm};
#[cfg(loom)]
pub(crate) use out_of_time::{Alarm, hurry};

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

#[cfg(not(loom))]
mod in_time {
    use std::task::Context;
    use std::time::Duration;

    use crate::driver::clock::Time;
    use crate::driver::timers::{Entered, Fired, Key, Timers};
    use crate::sched::Sched;
    use crate::sync::wait::drop_wakers;

    /// After this long, who waits looks whether those have come who were woken.
    pub(crate) const AGAIN: Duration = Duration::from_millis(2);

    /// When who waits in line looks again, if nobody wakes him. Where there is no runtime, nobody wakes him for
    /// that.
    #[derive(Default)]
    pub(crate) struct Alarm {
        due: Option<Time>,
        timer: Option<(&'static Timers, Key)>,
    }

    impl Alarm {
        /// Whether he has waited for so long.
        pub(crate) fn is_late(&self) -> bool {
            self.due.is_some_and(|due| Time::now() >= due)
        }

        /// Sees to it that the waker is woken in time.
        pub(crate) fn set(&mut self, cx: &mut Context<'_>) {
            if let Some((timers, key)) = self.timer {
                match timers.has_fired(key, cx.waker()) {
                    Fired::NotYet => return,
                    Fired::Yes | Fired::Gone => self.timer = None,
                }
            }
            let due = Time::now().later(AGAIN);
            self.due = Some(due);
            Sched::current(|sched| {
                let (driver, is_own) = sched.driver_here();
                let entered = driver.timers.insert(due.not_before(), cx.waker().clone());
                if let Entered::At { key, is_first } = entered {
                    self.timer = Some((driver.timers, key));
                    if is_first && !is_own {
                        driver.ring();
                    }
                }
            });
        }

        pub(crate) fn unset(&mut self) {
            self.due = None;
            if let Some((timers, key)) = self.timer.take() {
                drop_wakers(Withdrawn(timers, key));
            }
        }
    }

    /// A timer that is taken out, with the waker in it.
    struct Withdrawn(&'static Timers, Key);

    impl Drop for Withdrawn {
        fn drop(&mut self) {
            self.0.remove(self.1);
        }
    }

    impl Drop for Alarm {
        #[inline]
        fn drop(&mut self) {
            if self.timer.is_some() {
                self.unset();
            }
        }
    }
}

#[cfg(loom)]
mod out_of_time {
    use std::task::Context;

    #[derive(Default)]
    pub(crate) struct Alarm;

    impl Alarm {
        pub(crate) fn is_late(&self) -> bool {
            false
        }

        pub(crate) fn set(&mut self, _cx: &mut Context<'_>) {}

        pub(crate) fn unset(&mut self) {}
    }

    pub(crate) mod hurry {
        pub(crate) fn micros() -> u32 {
            0
        }

        pub(crate) fn contended() {}
    }
}
