//! Times that a scheduler of this thread has read already, in nanoseconds of the runtime's clock.

use std::cell::Cell;

use super::ThreadContext;

pub(super) struct ClockPart {
    /// The time since which the running task was ready; 0 if that is not known.
    ready_since: Cell<u64>,
    /// The time of the events that a driver is handing out; 0 if it is handing out none.
    event_time: Cell<u64>,
}

impl ClockPart {
    pub(super) const fn new() -> ClockPart {
        ClockPart { ready_since: Cell::new(0), event_time: Cell::new(0) }
    }

    pub(super) fn swap(&self, other: &ClockPart) {
        self.ready_since.swap(&other.ready_since);
        self.event_time.swap(&other.event_time);
    }
}

impl ThreadContext {
    /// The time since which the running task was ready; 0 if that is not known.
    #[inline]
    pub(crate) fn ready_since(&self) -> u64 {
        self.clock.ready_since.get()
    }

    #[inline]
    pub(crate) fn set_ready_since(&self, nanos: u64) {
        self.clock.ready_since.set(nanos);
    }

    /// The time of the events that a driver is handing out; 0 if it is handing out none.
    #[inline]
    pub(crate) fn event_time(&self) -> u64 {
        self.clock.event_time.get()
    }

    #[inline]
    pub(crate) fn set_event_time(&self, nanos: u64) {
        self.clock.event_time.set(nanos);
    }
}
