//! Requests for access to a state: to read or to write it.

use std::fmt;
use std::panic::Location;
use std::task::{Context, Poll, ready};

use super::access_lock::{AccessLock, AccessWait, Hold};
use super::own_slots::{REGISTRY, own_slots};
use super::shared::{SharedCell, StateLabel};
use super::watch_list::{WatchList, WatchPlace};
use crate::Cancelled;
use crate::cancel::wait::{begin_at_once, got_at_once};
use crate::waitlist::wait::{GuardedWaker, Wakers};

/// Request for access to one state: a [`Reading`] or a [`Writing`]. An argument of
/// [`together`](crate::together).
///
/// # Examples
///
/// ```
/// use dapple::shared::Reading;
/// use dapple::{Shared, together_all};
///
/// dapple::run(async {
///     let accounts = [Shared::new(1), Shared::new(2)];
///     let readings: Vec<Reading<i64>> = accounts.iter().map(|account| account.reading()).collect();
///     let sum = together_all(&readings, |values| values.iter().map(|value| **value).sum::<i64>());
///     assert_eq!(sum.await, Ok(3));
/// });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a request to use a state",
    note = "name each state with its use: `state.reading()` or `state.writing()`"
)]
pub trait Access: sealed::Sealed {
    /// Type of the state's value.
    type Value;

    /// Argument of the closure: `&Value` or `&mut Value`.
    type Guard<'g>
    where
        Self::Value: 'g;

    #[doc(hidden)]
    fn wish(&self) -> Wish<'_>;

    /// # Safety
    ///
    /// The caller has entered by the access lock, and stays for as long as the guard lives.
    #[doc(hidden)]
    unsafe fn guard<'g>(&self) -> Self::Guard<'g>;
}

mod sealed {
    pub trait Sealed {}
}

/// Request to read a state: see [`Shared::reading`](crate::Shared::reading).
pub struct Reading<'a, T> {
    pub(super) state: &'a SharedCell<T>,
    pub(super) place: &'static Location<'static>,
}

/// Request to write a state: see [`Shared::writing`](crate::Shared::writing).
pub struct Writing<'a, T> {
    pub(super) state: &'a SharedCell<T>,
    pub(super) place: &'static Location<'static>,
}

impl<T> sealed::Sealed for Reading<'_, T> {}
impl<T> sealed::Sealed for Writing<'_, T> {}

// No `T: Sync` here: `Shared::reading`, which makes a `Reading`, requires it.
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
        // SAFETY: the caller has entered to read, and stays while the guard lives. GUARDED
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
        // SAFETY: the caller has entered to write, alone, and stays while the guard lives. GUARDED
        unsafe { &mut *self.state.value() }
    }
}

impl<T> Reading<'_, T> {
    /// Enters if there is no writer and no waiter. A few instructions, inlined.
    #[inline]
    pub(super) fn try_at_once(&self) -> Option<AccessGuard<'_>> {
        let access_lock = self.state.access_lock();
        access_lock.try_read(false, own_slots()).map(|hold| AccessGuard { access_lock, hold })
    }
}

impl<T> Writing<'_, T> {
    /// As [`Reading::try_at_once`], if there is also no reader.
    #[inline]
    pub(super) fn try_at_once(&self) -> Option<AccessGuard<'_>> {
        let access_lock = self.state.access_lock();
        access_lock.write_at_once().then(|| AccessGuard { access_lock, hold: Hold::Writes }) // built only after entering
    }
}

/// Displays a request as its [`Wish`] does. Builds the `Wish` only when formatted.
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

/// Request for access to a state, without the type of its value.
#[derive(Clone, Copy)]
pub struct Wish<'a> {
    pub(super) access_lock: &'a AccessLock,
    pub(super) label: &'a StateLabel,
    pub(super) type_name: fn() -> &'static str,
    pub(super) writes: bool,
    pub(super) place: &'static Location<'static>,
}

impl<'a> Wish<'a> {
    /// Waiters for a write to the state.
    pub(super) fn watchers(&self) -> &'a WatchList {
        self.access_lock.watchers().get_or_make()
    }

    /// Identity of the state.
    #[inline]
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self.access_lock).addr()
    }

    /// Sort key of the order in which states are entered. BY-ADDRESS
    #[inline]
    pub(super) fn rank(&self, by_number: bool) -> (u64, usize) {
        // The label is in another cache line, so it is read only in simulations.
        (if by_number { self.label.number } else { 0 }, self.address())
    }

    /// Enters if the state is free, or becomes free while the caller spins. With `gave_way`, even ahead of
    /// waiters.
    pub(super) fn try_enter(&self, gave_way: bool) -> Option<AccessGuard<'a>> {
        let hold = match self.writes {
            true => self.access_lock.look_to_write(gave_way, &REGISTRY),
            false => self.access_lock.look_to_read(gave_way, own_slots()),
        };
        hold.map(|hold| AccessGuard { access_lock: self.access_lock, hold })
    }

    /// Waits for access. Allocates `waiting` if it has to wait. `has_tried`: in this poll the wait has begun
    /// and [`Reading::try_at_once`] failed.
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

    /// As `enter_at_once`, after a failed `try_at_once`.
    fn enter_soon(&self) -> Option<AccessGuard<'a>> {
        if self.writes {
            return self.try_enter(self.access_lock.has_given_way());
        }
        let hold = self.access_lock.look_again_to_read(false, own_slots());
        hold.map(|hold| AccessGuard { access_lock: self.access_lock, hold })
    }

    /// Enters if the state is free and has no waiter, or becomes so while the caller spins.
    #[inline]
    pub(super) fn enter_at_once(&self) -> Option<AccessGuard<'a>> {
        match self.writes && self.access_lock.write_glanced() {
            true => Some(AccessGuard { access_lock: self.access_lock, hold: Hold::Writes }),
            false => self.try_enter(self.writes && self.access_lock.has_given_way()),
        }
    }

    /// As `poll_enter`, for a caller that could not enter at once. With `is_hungry`, no caller may overtake
    /// the queue.
    pub(super) fn poll_in_line(
        &self,
        waiting: &mut AccessWait,
        is_hungry: bool,
        cx: &mut Context<'_>,
    ) -> Poll<Result<AccessGuard<'a>, Cancelled>> {
        let polled = match self.writes {
            true => self.access_lock.poll_write(waiting, is_hungry, &REGISTRY, cx),
            false => self.access_lock.poll_read(waiting, is_hungry, own_slots(), cx),
        };
        // An access lock is never closed, so the only error is cancellation.
        polled.map(|polled| {
            polled.map(|hold| AccessGuard { access_lock: self.access_lock, hold }).map_err(|_| Cancelled)
        })
    }

    /// Ends the wait.
    #[cold]
    pub(super) fn give_up(&self, waiting: &mut AccessWait) {
        self.access_lock.give_up(waiting, self.writes);
    }

    /// As `give_up`, for a wait in a box of its own.
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

/// Access to a state. Dropping it leaves the state, also when a closure panics.
pub(super) struct AccessGuard<'a> {
    pub(super) access_lock: &'a AccessLock,
    pub(super) hold: Hold<'a>,
}

impl AccessGuard<'_> {
    /// Leaves the state. As dropping the guard, but inlined: dropping is for closures that panic.
    #[inline]
    pub(super) fn leave(self) {
        let this = std::mem::ManuallyDrop::new(self);
        this.access_lock.leave(this.hold);
    }

    /// Leaves one of several states: see [`AccessLock::leave_into`].
    #[inline]
    pub(super) fn leave_into(
        self,
        own: Option<&mut WatchPlace>,
        wakers: &mut Wakers,
    ) -> Option<GuardedWaker> {
        let this = std::mem::ManuallyDrop::new(self);
        this.access_lock.leave_into(this.hold, own, wakers)
    }

    /// Leaves, as one that has changed nothing.
    #[inline]
    pub(super) fn leave_unwritten(self) {
        let this = std::mem::ManuallyDrop::new(self);
        this.access_lock.leave_unwritten(this.hold);
    }
}

impl Drop for AccessGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.access_lock.leave(self.hold);
    }
}
