//! In place of modules of the runtime that models have no use for. Each is named as the module that it replaces.

/// A model has no clock and no simulation.
pub(crate) mod world {
    pub(crate) fn clock() -> Option<u64> {
        None
    }

    pub(crate) fn is_simulated() -> bool {
        false
    }

    pub(crate) fn pause() {}

    pub(crate) fn let_others() {}

    /// No time passes. The callers look a few times and then go on; a thread that yields here would be run again only
    /// after all others, and a model would never see it find what they are at.
    pub(crate) fn look_out(_spins: u8) {}
}

/// `task::cell`.
pub(crate) mod cell {
    use std::any::Any;

    /// A panic is a failure of the model.
    pub(crate) fn discard(result: Result<(), Box<dyn Any + Send>>) {
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    }
}

/// `cancel::check`: no task is cancelled.
pub(crate) mod check {
    use crate::context::ThreadContext;

    pub(crate) fn is_task_cancelled(_context: &ThreadContext) -> bool {
        false
    }
}

/// `cancel::points`: waits are not observed.
pub(crate) mod points {
    use crate::context::ThreadContext;

    pub(crate) const OBSERVES: bool = false;

    pub(crate) fn is_cancelled(_context: &ThreadContext) -> bool {
        false
    }
}

/// `cancel::item`: no wait is registered. `models/cancel_table.rs` has the order of a registration and a cancel.
pub(crate) mod item {
    pub(crate) fn cancel_registered(_at: usize, _is_first: bool) {}

    pub(crate) fn end_registered(_at: usize) {}
}

/// `cancel::wait`: no cancellation and no budget.
pub(crate) mod wait {
    use std::task::{Context, Poll};

    use crate::task::guarded::GuardedWaker;

    #[derive(Default)]
    pub(crate) struct Wait;

    impl Wait {
        pub(crate) fn shielded() -> Wait {
            Wait
        }

        pub(crate) fn begun() -> Wait {
            Wait
        }

        pub(crate) fn begin(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), ()>> {
            Poll::Ready(Ok(()))
        }

        pub(crate) fn is_cancelled(&self) -> bool {
            false
        }

        pub(crate) fn is_lost(&self) -> bool {
            false
        }

        pub(crate) fn rest(&mut self, _cx: &mut Context<'_>, _what: &'static &'static str) {}

        pub(crate) fn end(&mut self) {}

        pub(crate) fn give_up(&mut self) {}
    }

    pub(crate) fn got_at_once() {}

    pub(crate) fn wake(waker: GuardedWaker) {
        waker.wake();
    }
}

/// `shared::retry_timer`: no time passes, and no waiter is forgotten.
pub(crate) mod retry_timer {
    use std::task::Context;
    use std::time::Duration;

    pub(crate) const AGAIN: Duration = Duration::from_millis(2);

    #[derive(Default)]
    pub(crate) struct WakeTimer;

    impl WakeTimer {
        pub(crate) fn is_late(&self) -> bool {
            false
        }

        pub(crate) fn set(&mut self, _after: Duration, _cx: &mut Context<'_>) {}

        pub(crate) fn unset(&mut self) {}
    }

    pub(crate) fn wake_later(_waker: crate::task::guarded::GuardedWaker) -> bool {
        true
    }

    pub(crate) mod hurry {
        pub(crate) fn micros() -> u32 {
            0
        }

        pub(crate) fn contended() {}
    }
}
