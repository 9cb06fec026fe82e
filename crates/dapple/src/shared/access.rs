//! What can be asked of a state: to read it, or to write it.

use std::fmt;
use std::panic::Location;
use std::task::{Context, Poll, ready};

use super::access_lock::{AccessLock, AccessWait, Hold};
use super::reader_slots::{REGISTRY, own_row};
use super::shared::{SharedCell, StateLabel};
use super::watch_list::WatchList;
use crate::Cancelled;
use crate::task::wait::{begin_at_once, got_at_once};
use crate::world::is_simulated;

/// What [`together`](crate::together) takes: a [`Reading`] or a [`Writing`].
pub trait Access: sealed::Sealed {
    /// What the state keeps.
    type Value;

    /// What the closure gets: `&Value` or `&mut Value`.
    type Guard<'g>
    where
        Self::Value: 'g;

    #[doc(hidden)]
    fn wish(&self) -> Wish<'_>;

    /// # Safety
    ///
    /// The caller is in by the gate, for as long as what is returned lives.
    #[doc(hidden)]
    unsafe fn guard<'g>(&self) -> Self::Guard<'g>;
}

mod sealed {
    pub trait Sealed {}
}

/// That a state is to be read: see [`Shared::reading`](crate::Shared::reading).
pub struct Reading<'a, T> {
    pub(super) state: &'a SharedCell<T>,
    pub(super) place: &'static Location<'static>,
}

/// That a state is to be written: see [`Shared::writing`](crate::Shared::writing).
pub struct Writing<'a, T> {
    pub(super) state: &'a SharedCell<T>,
    pub(super) place: &'static Location<'static>,
}

impl<T> sealed::Sealed for Reading<'_, T> {}
impl<T> sealed::Sealed for Writing<'_, T> {}

// A `Reading` is made where `T` is `Sync`, as its guard wants it.
impl<T> Access for Reading<'_, T> {
    type Value = T;
    type Guard<'g>
        = &'g T
    where
        T: 'g;

    #[inline]
    fn wish(&self) -> Wish<'_> {
        self.state.wish(false, self.place)
    }

    #[inline]
    unsafe fn guard<'g>(&self) -> &'g T
    where
        T: 'g,
    {
        // SAFETY: the caller is in to read, for so long. GUARDED
        unsafe { &*self.state.value() }
    }
}

impl<T> Access for Writing<'_, T> {
    type Value = T;
    type Guard<'g>
        = &'g mut T
    where
        T: 'g;

    #[inline]
    fn wish(&self) -> Wish<'_> {
        self.state.wish(true, self.place)
    }

    #[inline]
    unsafe fn guard<'g>(&self) -> &'g mut T
    where
        T: 'g,
    {
        // SAFETY: the caller is in to write, for so long, alone. GUARDED
        unsafe { &mut *self.state.value() }
    }
}

impl<T> Reading<'_, T> {
    /// Enters, if nobody is in the way and nobody waits. A look of a few instructions, in line.
    #[inline]
    pub(super) fn try_at_once(&self) -> Option<AccessGuard<'_>> {
        let gate = self.state.gate();
        gate.try_read(false, own_row()).map(|hold| AccessGuard { gate, hold })
    }
}

impl<T> Writing<'_, T> {
    /// As [`Reading::try_at_once`]; and nobody may be in a slot.
    #[inline]
    pub(super) fn try_at_once(&self) -> Option<AccessGuard<'_>> {
        let gate = self.state.gate();
        gate.write_at_once().then(|| AccessGuard { gate, hold: Hold::Writes }) // not made if it is not in
    }
}

/// Says what is asked of a state, as its [`Wish`] does, which is made only then.
pub(super) struct Shown<'a, A>(pub(super) &'a A);

impl<A: Access> fmt::Display for Shown<'_, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.wish().fmt(f)
    }
}

impl<T> fmt::Debug for Reading<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wish().fmt(f)
    }
}

impl<T> fmt::Debug for Writing<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wish().fmt(f)
    }
}

/// A state, whatever its type, and what is asked of it.
#[derive(Clone, Copy)]
pub struct Wish<'a> {
    pub(super) gate: &'a AccessLock,
    pub(super) label: &'a StateLabel,
    pub(super) type_name: fn() -> &'static str,
    pub(super) writes: bool,
    pub(super) place: &'static Location<'static>,
}

impl<'a> Wish<'a> {
    /// Those that wait for a write.
    pub(super) fn watchers(&self) -> &'a WatchList {
        self.gate.watchers().get_or_make()
    }

    /// By what states are told from each other.
    #[inline]
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self.gate).addr()
    }

    /// By what they are put in order.
    #[inline]
    pub(super) fn rank(&self) -> (u64, usize) {
        // The label is far from what is wanted here: it is looked at only where that matters.
        (if is_simulated() { self.label.number } else { 0 }, self.address())
    }

    /// Enters, if nobody is in the way, or soon so; and nobody waits, unless one gave way to them already.
    pub(super) fn try_enter(&self, gave_way: bool) -> Option<AccessGuard<'a>> {
        let hold = match self.writes {
            true => self.gate.look_to_write(gave_way, &REGISTRY),
            false => self.gate.look_to_read(gave_way, own_row()),
        };
        hold.map(|hold| AccessGuard { gate: self.gate, hold })
    }

    /// Waits until it has entered. `waiting` is made if it has to. `has_tried`: in this poll the wait has begun, and could
    /// not enter at once ([`Reading::try_at_once`]).
    #[cold]
    #[inline(never)]
    pub(super) fn poll_enter(
        &self,
        waiting: &mut Option<Box<AccessWait>>,
        has_tried: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<AccessGuard<'a>, Cancelled>> {
        if waiting.is_none() {
            let entered = if has_tried {
                self.enter_soon()
            } else {
                ready!(begin_at_once(cx, waiting, |waiting, wait| *waiting = Some(Box::new(wait.into()))))?;
                self.enter_at_once()
            };
            if let Some(entered) = entered {
                got_at_once();
                return Poll::Ready(Ok(entered));
            }
        }
        self.poll_in_line(waiting.get_or_insert_with(|| Box::new(AccessWait::begun())), false, cx)
    }

    /// As `enter_at_once`, after a `try_at_once`.
    fn enter_soon(&self) -> Option<AccessGuard<'a>> {
        if self.writes {
            return self.try_enter(self.gate.has_given_way());
        }
        let hold = self.gate.look_again_to_read(false, own_row());
        hold.map(|hold| AccessGuard { gate: self.gate, hold })
    }

    /// Enters, if nobody is in the way and nobody waits, or soon so.
    #[inline]
    pub(super) fn enter_at_once(&self) -> Option<AccessGuard<'a>> {
        match self.writes && self.gate.write_at_once() {
            true => Some(AccessGuard { gate: self.gate, hold: Hold::Writes }),
            false => self.try_enter(self.writes && self.gate.has_given_way()),
        }
    }

    /// As `poll_enter`, for who could not at once. `is_hungry`: nobody is to go ahead of those in line.
    pub(super) fn poll_in_line(
        &self,
        waiting: &mut AccessWait,
        is_hungry: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<AccessGuard<'a>, Cancelled>> {
        let polled = match self.writes {
            true => self.gate.poll_write(waiting, is_hungry, &REGISTRY, cx),
            false => self.gate.poll_read(waiting, is_hungry, own_row(), cx),
        };
        // A gate is never closed.
        polled.map(|polled| polled.map(|hold| AccessGuard { gate: self.gate, hold }).map_err(|_| Cancelled))
    }

    /// Gives up waiting.
    #[cold]
    pub(super) fn give_up(&self, waiting: &mut AccessWait) {
        self.gate.give_up(waiting, self.writes);
    }

    /// As `give_up`, of one that was alone.
    #[cold]
    #[inline(never)]
    pub(super) fn drop_waiting(&self, mut waiting: Box<AccessWait>) {
        self.give_up(&mut waiting);
    }
}

impl fmt::Display for Wish<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.writes { "written" } else { "read" };
        match &self.label.name {
            Some(name) => write!(f, "Shared {name:?}")?,
            None => write!(f, "Shared<{}> made at {}", (self.type_name)(), self.label.made)?,
        }
        write!(f, ", {how} at {}", self.place)
    }
}

impl fmt::Debug for Wish<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Somebody is in, until this is dropped: also when a closure panics.
pub(super) struct AccessGuard<'a> {
    pub(super) gate: &'a AccessLock,
    pub(super) hold: Hold<'a>,
}

impl AccessGuard<'_> {
    /// Leaves, as one that has changed nothing.
    #[inline]
    pub(super) fn leave_unwritten(self) {
        let this = std::mem::ManuallyDrop::new(self);
        this.gate.leave_unwritten(this.hold);
    }
}

impl Drop for AccessGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave(self.hold);
    }
}
