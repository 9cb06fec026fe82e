//! What can be asked of a state: to read it, or to write it.

use std::fmt;
use std::panic::Location;
use std::task::{Context, Poll};

use super::gate::{Gate, Hold};
use super::slots::{REGISTRY, own_row};
use super::state::{Label, State};
use crate::Cancelled;
use crate::sync::permits::Place;

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
    pub(super) state: &'a State<T>,
    pub(super) place: &'static Location<'static>,
}

/// That a state is to be written: see [`Shared::writing`](crate::Shared::writing).
pub struct Writing<'a, T> {
    pub(super) state: &'a State<T>,
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
    pub(super) gate: &'a Gate,
    pub(super) label: &'a Label,
    pub(super) writes: bool,
    pub(super) place: &'static Location<'static>,
}

impl<'a> Wish<'a> {
    /// By what states are put in order, and told from each other.
    #[inline]
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self.gate).addr()
    }

    /// Enters, if nobody is in the way and nobody waits, or soon so.
    #[inline]
    pub(super) fn try_enter(&self) -> Option<Entered<'a>> {
        let hold = match self.writes {
            true => self.gate.look(|| self.gate.try_write(&REGISTRY)),
            false => self.gate.look(|| self.gate.try_read(own_row())),
        };
        hold.map(|hold| Entered { gate: self.gate, hold })
    }

    /// Waits until it has entered.
    #[inline]
    pub(super) fn poll_enter(
        &self,
        place: &mut Place,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Entered<'a>, Cancelled>> {
        let polled = match self.writes {
            true => self.gate.poll_write(place, &REGISTRY, cx),
            false => self.gate.poll_read(place, own_row(), cx),
        };
        // A gate is never closed.
        polled.map(|polled| polled.map(|hold| Entered { gate: self.gate, hold }).map_err(|_| Cancelled))
    }

    /// Gives up waiting.
    #[cold]
    pub(super) fn give_up(&self, place: &mut Place) {
        self.gate.give_up(place, self.writes);
    }
}

impl fmt::Display for Wish<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.writes { "written" } else { "read" };
        write!(f, "{}, {how} at {}", self.label, self.place)
    }
}

impl fmt::Debug for Wish<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Somebody is in, until this is dropped: also when a closure panics.
pub(super) struct Entered<'a> {
    pub(super) gate: &'a Gate,
    pub(super) hold: Hold<'a>,
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave(self.hold);
    }
}
