//! The color that this thread runs, and the lane whose turn it has.

use std::cell::Cell;

use super::ThreadContext;
use super::slot::{Fills, OfTask, Slot};

pub(super) struct TurnPart {
    /// The identity of the running color; 0 if there is none.
    color: Cell<usize>,
    /// The lane whose turn this thread has; null for a task with a color of its own.
    lane: Slot<OfTask>,
    /// The main color's lane of the innermost `run` or `block_on` on this thread.
    main_lane: Slot<OfTask>,
}

impl TurnPart {
    pub(super) const fn new() -> TurnPart {
        TurnPart { color: Cell::new(0), lane: Slot::null(), main_lane: Slot::null() }
    }

    pub(super) fn swap(&self, other: &TurnPart) {
        self.color.swap(&other.color);
        self.lane.swap(&other.lane);
        self.main_lane.swap(&other.main_lane);
    }
}

impl ThreadContext {
    /// The identity of the running color; 0 if there is none.
    #[inline]
    pub(crate) fn color(&self) -> usize {
        self.turn.color.get()
    }

    #[inline]
    pub(crate) fn set_color(&self, id: usize) {
        self.turn.color.set(id);
    }

    /// The lane whose turn this thread has; null for a task with a color of its own.
    #[inline]
    pub(crate) fn lane<T: Fills<OfTask>>(&self) -> *const T {
        self.turn.lane.get()
    }

    #[inline]
    pub(crate) fn has_lane(&self) -> bool {
        !self.turn.lane.is_null()
    }

    /// The address of that lane; 0 if there is none.
    pub(crate) fn lane_address(&self) -> usize {
        self.turn.lane.addr()
    }

    /// The turn of `lane` is this thread's from now on.
    #[inline]
    pub(crate) fn take_turn<T: Fills<OfTask>>(&self, lane: *const T) {
        self.turn.lane.set(lane);
    }

    /// The turn of a lane is not this thread's any more; the color stays what it is.
    #[inline]
    pub(crate) fn give_turn_up(&self) {
        self.turn.lane.clear();
    }

    /// Neither a turn nor a color is this thread's any more.
    #[inline]
    pub(crate) fn end_turn(&self) {
        self.turn.lane.clear();
        self.turn.color.set(0);
    }

    /// The main color's lane of the innermost `run` or `block_on` on this thread; null outside.
    pub(crate) fn main_lane<T: Fills<OfTask>>(&self) -> *const T {
        self.turn.main_lane.get()
    }

    pub(crate) fn replace_main_lane<T: Fills<OfTask>>(&self, lane: *const T) -> *const T {
        self.turn.main_lane.replace(lane)
    }

    pub(crate) fn has_main_lane(&self) -> bool {
        !self.turn.main_lane.is_null()
    }

    /// Whether the running color is the main color of this thread.
    pub(crate) fn is_in_main_color(&self) -> bool {
        self.has_main_lane() && self.color() == self.turn.main_lane.addr()
    }
}
