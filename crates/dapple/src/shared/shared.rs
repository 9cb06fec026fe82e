//! A state that many share: the value, its gate and its name.
//!
//! # Invariants
//!
//! * **GUARDED**: the value is touched by who is in by the gate ([`AccessLock`]), as it allows: read by many, or
//!   written by one; or by who has the last `Shared` of it exclusively.

use std::any::type_name;
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use super::access::{Access, AccessGuard, Reading, Wish, Writing};
use super::access_lock::AccessLock;
use super::futures::{Read, Write};
use super::reader_slots::{REGISTRY, own_row};
use super::retry_timer::AGAIN;
use super::when::{When, when};
use crate::Cancelled;
use crate::task::closure;
use crate::waitlist::wait::block_on_again;
use crate::world;

/// A value that any task or thread can read, together with others, or write, alone.
///
/// What is to be done with it is said by a closure, which runs at once if it can, and otherwise when those
/// before it are done. A closure cannot await, so that whoever has the state is running: nobody waits for
/// long, and nobody waits for somebody who waits. For several states at once there is
/// [`together`](crate::together).
///
/// Clones share the value. It works in any task of any runtime, on any executor, and after a runtime has
/// ended.
///
/// # Who comes when
///
/// Whoever comes while nobody waits, and nobody is in the way, goes ahead at once. Who has to wait waits in
/// line; readers who come while a writer waits go behind it. Whoever leaves wakes the first in line and
/// leaves the state *free*: it belongs to nobody until that one is polled. Who comes in between gives way once,
/// and takes what is free when he is polled again; for the rest of that poll, of at most 128 results, his task
/// need not give way again to write. So who waits may be overtaken by what each of the other tasks does in a poll,
/// and by more only if he comes too late for what he was woken for. One who is never polled again, or forgotten,
/// holds up nobody: those behind him look again by themselves, within some milliseconds, wherever there is a
/// runtime.
///
/// A task that finds the state free again and again gives way to the other tasks of its worker after 128
/// turns.
///
/// # Panics
///
/// A panic in a closure goes on to its caller alone; the state is as the closure left it, and free.
///
/// A closure must not wait. Whatever would wait inside of one panics, and says of which states, and where: to
/// poll [`read`](Self::read), [`write`](Self::write) or [`together`](crate::together) of any state,
/// and all that blocks ([`read_blocking`](Self::read_blocking), [`Runtime::block_on`](crate::Runtime::block_on)).
///
/// # Examples
///
/// ```
/// use dapple::Shared;
///
/// dapple::run(async {
///     let hits = Shared::named("hits", Vec::new());
///     let visitors: Vec<_> = (0..3)
///         .map(|number| {
///             let hits = hits.clone();
///             dapple::spawn(async move { hits.write(|hits| hits.push(number)).await })
///         })
///         .collect();
///     for visitor in visitors {
///         visitor.await.unwrap().unwrap();
///     }
///     let longest = String::from("borrowed, and given back");
///     let len = hits.read(|hits| (hits.len(), &longest)).await.unwrap();
///     assert_eq!(len, (3, &longest));
/// });
/// ```
///
/// What many are to read must be `Sync`; what is only written need not be:
///
/// ```compile_fail,E0277
/// let state = dapple::Shared::new(std::cell::Cell::new(0));
/// dapple::run(async { state.read(|cell| cell.get()).await });
/// ```
///
/// ```
/// let state = dapple::Shared::new(std::cell::Cell::new(0));
/// dapple::run(async { state.write(|cell| cell.get()).await }).unwrap();
/// ```
///
/// The value does not leave its closure:
///
/// ```compile_fail
/// let state = dapple::Shared::new(String::new());
/// dapple::run(async { state.read(|value| value).await });
/// ```
///
/// ```
/// let state = dapple::Shared::new(String::new());
/// dapple::run(async { state.read(|value| value.clone()).await }).unwrap();
/// ```
///
/// And a closure cannot await:
///
/// ```compile_fail,E0728
/// let state = dapple::Shared::new(0);
/// dapple::run(async { state.read(|_| dapple::task::yield_now().await).await });
/// ```
pub struct Shared<T>(Arc<SharedCell<T>>);

/// In this order, so that a small value and the word of its gate lie together.
#[repr(C)]
pub(super) struct SharedCell<T> {
    value: UnsafeCell<T>,
    gate: AccessLock,
    label: StateLabel,
}

// SAFETY: the value is reached by one at a time, possibly on another thread; and by many, only where `T` is
// `Sync` (`read` and `reading` ask for that). GUARDED
unsafe impl<T: Send> Sync for SharedCell<T> {}
// SAFETY: it owns its value.
unsafe impl<T: Send> Send for SharedCell<T> {}

/// What a state is called in errors.
pub(super) struct StateLabel {
    /// In two boxes, for a state of fewer bytes: few have a name.
    pub(super) name: Option<Box<Box<str>>>,
    pub(super) made: &'static Location<'static>,
    /// In a simulation, by which states are put in order: addresses are not the same every time.
    pub(super) number: u64,
}

impl<T> Shared<T> {
    /// A state of its own. In errors it is called by its type and by where this was.
    #[must_use]
    #[track_caller]
    pub fn new(value: T) -> Shared<T> {
        Shared::made(None, value)
    }

    /// As [`new`](Self::new), with a name for errors.
    #[must_use]
    #[track_caller]
    pub fn named(name: impl Into<Box<str>>, value: T) -> Shared<T> {
        Shared::made(Some(name.into()), value)
    }

    #[track_caller]
    fn made(name: Option<Box<str>>, value: T) -> Shared<T> {
        let name = name.map(Box::new);
        let label = StateLabel { name, made: Location::caller(), number: world::number() };
        Shared(Arc::new(SharedCell { value: UnsafeCell::new(value), gate: AccessLock::new(), label }))
    }

    /// The name that it was given.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.label.name.as_deref().map(|name| &**name)
    }

    /// Calls `f` with the value, when nobody writes it.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled: `f` has not run.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; `f` has not run.
    /// *Scope cancelled*: returns [`Cancelled`], and `f` has not run; or what `f` returns, if the state could
    /// be read when the wait was polled again.
    #[track_caller]
    pub fn read<R, F: FnOnce(&T) -> R>(&self, f: F) -> Read<'_, T, F>
    where
        T: Sync,
    {
        Read::new(self.reading(), f)
    }

    /// Calls `f` with the value, when nobody else uses it.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled: `f` has not run.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; `f` has not run.
    /// *Scope cancelled*: returns [`Cancelled`], and `f` has not run; or what `f` returns, if the state was
    /// free when the wait was polled again.
    #[track_caller]
    pub fn write<R, F: FnOnce(&mut T) -> R>(&self, f: F) -> Write<'_, T, F> {
        Write::new(self.writing(), f)
    }

    /// Calls `f` with the value if nobody writes it now, also ahead of those who wait.
    ///
    /// # Errors
    ///
    /// If somebody writes it: `f` has not run.
    #[track_caller]
    pub fn try_read<R>(&self, f: impl FnOnce(&T) -> R) -> Result<R, Busy>
    where
        T: Sync,
    {
        let (gate, reading) = (&self.0.gate, self.reading());
        let hold = gate.try_read(false, own_row()).or_else(|| gate.try_read_now()).ok_or(Busy(()))?;
        let _entered = AccessGuard { gate, hold };
        // SAFETY: we have entered, and leave after `f`, which cannot keep what it gets.
        Ok(closure::enter(&reading.wish(), || f(unsafe { reading.guard() })))
    }

    /// Calls `f` with the value if nobody uses it now, also ahead of those who wait.
    ///
    /// # Errors
    ///
    /// If somebody uses it: `f` has not run.
    #[track_caller]
    pub fn try_write<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R, Busy> {
        let (gate, writing) = (&self.0.gate, self.writing());
        let hold = gate.try_write_now(&REGISTRY).ok_or(Busy(()))?;
        let _entered = AccessGuard { gate, hold };
        // SAFETY: as in `try_read`.
        Ok(closure::enter(&writing.wish(), || f(unsafe { writing.guard() })))
    }

    /// As [`read`](Self::read), for threads outside: waits on this thread.
    ///
    /// # Errors
    ///
    /// If the call was cancelled in [`blocking`](crate::blocking()): `f` has not run.
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks, and inside of any closure of a state.
    #[track_caller]
    pub fn read_blocking<R>(&self, f: impl FnOnce(&T) -> R) -> Result<R, Cancelled>
    where
        T: Sync,
    {
        let what = self.0.wish(false, Location::caller());
        block_on_again(format_args!("read_blocking of {what}"), Some(AGAIN), self.read(f))
    }

    /// As [`write`](Self::write), for threads outside: waits on this thread.
    ///
    /// # Errors
    ///
    /// If the call was cancelled in [`blocking`](crate::blocking()): `f` has not run.
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks, and inside of any closure of a state.
    #[track_caller]
    pub fn write_blocking<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R, Cancelled> {
        let what = self.0.wish(true, Location::caller());
        block_on_again(format_args!("write_blocking of {what}"), Some(AGAIN), self.write(f))
    }

    /// Waits until `f` returns `Some`, with the value to change: see [`shared::when`](crate::shared::when), also for a
    /// condition over several states, and for one that only reads (`when(s.reading(), ...)`).
    ///
    /// `f` is called at first, and again only after the value was written. If it returns `None`, it must have changed
    /// nothing.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled: `f` has not returned `Some`.
    ///
    /// # Panics
    ///
    /// As [`shared::when`](crate::shared::when).
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** to the next waiter what it was woken for; loses its place.
    /// *Scope cancelled*: returns [`Cancelled`]; or what `f` returned, if its condition held when the wait was polled
    /// again.
    ///
    /// # Examples
    ///
    /// ```
    /// dapple::run(async {
    ///     let jobs = dapple::Shared::new(Vec::new());
    ///     let worker = dapple::spawn({
    ///         let jobs = jobs.clone();
    ///         async move { jobs.when(|jobs: &mut Vec<_>| jobs.pop()).await }
    ///     });
    ///     jobs.write(|jobs| jobs.push(7)).await.unwrap();
    ///     assert_eq!(worker.await.unwrap(), Ok(7));
    /// });
    /// ```
    #[track_caller]
    pub fn when<R, F: FnMut(&mut T) -> Option<R>>(&self, f: F) -> When<Writing<'_, T>, F>
    where
        T: 'static,
    {
        when(self.writing(), f)
    }

    /// That it is to be read, for [`together`](crate::together).
    #[must_use = "it is read in `together`"]
    #[track_caller]
    pub fn reading(&self) -> Reading<'_, T>
    where
        T: Sync,
    {
        Reading { state: &self.0, place: Location::caller() }
    }

    /// That it is to be written, for [`together`](crate::together).
    #[must_use = "it is written in `together`"]
    #[track_caller]
    pub fn writing(&self) -> Writing<'_, T> {
        Writing { state: &self.0, place: Location::caller() }
    }

    /// The value, if nobody else shares it.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        Arc::get_mut(&mut self.0).map(|state| state.value.get_mut())
    }

    /// The value, if nobody else shares it.
    ///
    /// # Errors
    ///
    /// If somebody does: gives it back.
    pub fn into_inner(self) -> Result<T, Shared<T>> {
        Arc::try_unwrap(self.0).map(|state| state.value.into_inner()).map_err(Shared)
    }
}

impl<T> SharedCell<T> {
    #[inline]
    pub(super) fn wish(&self, writes: bool, place: &'static Location<'static>) -> Wish<'_> {
        Wish { gate: &self.gate, label: &self.label, type_name: type_name::<T>, writes, place }
    }

    #[inline]
    pub(super) fn gate(&self) -> &AccessLock {
        &self.gate
    }

    /// The value, for who is in by the gate. GUARDED
    #[inline]
    pub(super) fn value(&self) -> *mut T {
        self.value.get()
    }
}

impl<T> Clone for Shared<T> {
    /// Shares the value.
    fn clone(&self) -> Shared<T> {
        Shared(self.0.clone())
    }
}

impl<T: Default> Default for Shared<T> {
    #[track_caller]
    fn default() -> Shared<T> {
        Shared::new(T::default())
    }
}

impl<T> From<T> for Shared<T> {
    #[track_caller]
    fn from(value: T) -> Shared<T> {
        Shared::new(value)
    }
}

impl<T: fmt::Debug + Sync> fmt::Debug for Shared<T> {
    /// The value, or that it is being written. Never waits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("Shared");
        if let Some(name) = self.name() {
            debug.field("name", &name);
        }
        match self.try_read(|value| debug.field("value", value).finish()) {
            Ok(result) => result,
            Err(Busy(())) => debug.field("value", &format_args!("<being written>")).finish(),
        }
    }
}

/// A state is in use now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy(pub(super) ());

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the state is in use")
    }
}

impl std::error::Error for Busy {}
