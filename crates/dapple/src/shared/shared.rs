//! Shared state: a value, its access lock and its name.
//!
//! # Invariants
//!
//! * **GUARDED**: only code that has entered by the [`AccessLock`] touches the value: many readers, or one
//!   writer. The exception is the exclusive owner of the last `Shared`.

use std::any::type_name;
use std::cell::UnsafeCell;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use super::access::{Access, AccessGuard, Reading, Wish, Writing};
use super::access_lock::AccessLock;
use super::futures::{ReadFuture, WriteFuture};
use super::own_slots::{REGISTRY, own_slots};
use super::retry_timer::AGAIN;
use super::when::{When, when};
use crate::Cancelled;
use crate::context::closure;
use crate::waitlist::wait::block_on_again;
use crate::world;

/// A value that any task or thread can read, together with other readers, or write, alone.
///
/// Use it for state that several tasks change, in place of a mutex. Callers pass a closure, which runs at
/// once if the state is free, and otherwise after the closures before it. A closure cannot await, so the
/// holder of a state is always running: waits are short, and cannot form a cycle.
/// [`together`](crate::together) uses several states at once.
///
/// Clones share the value. It works in any task of any runtime, on any executor, and after a runtime has
/// ended.
///
/// # Order and fairness
///
/// A caller that finds the state free and no waiter enters at once. Otherwise it waits in a queue; a reader
/// that arrives while a writer waits queues behind it. A holder that leaves wakes the first waiter and leaves
/// the state *free*: no task owns it until that waiter is polled. A caller that arrives in between yields
/// once, and takes the free state when it is polled again. For the rest of that poll, of at most 128 results,
/// its task need not yield again to write.
///
/// So a waiter may be overtaken by the accesses that each of the other tasks makes in one poll, and by more
/// only if the waiter is polled too late after its wake-up. A waiter that is never polled again, or
/// forgotten, delays no other: the waiters behind it re-check by a timer, within some milliseconds, wherever
/// there is a runtime.
///
/// A task that finds the state free again and again yields to the other tasks of its worker after 128
/// accesses.
///
/// # Panics
///
/// A panic in a closure reaches its caller alone. The state is as the closure left it, and free.
///
/// A closure must not wait. A call inside of a closure that would wait panics, and its message names the
/// states and the places. Such calls are: polling [`read`](Self::read), [`write`](Self::write) or
/// [`together`](crate::together) of any state, and all blocking calls
/// ([`read_blocking`](Self::read_blocking), [`Runtime::block_on`](crate::Runtime::block_on)).
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
/// A value that is read must be `Sync`; one that is only written need not be:
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
/// The value cannot leave its closure:
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
/// A closure cannot await:
///
/// ```compile_fail,E0728
/// let state = dapple::Shared::new(0);
/// dapple::run(async { state.read(|_| dapple::task::yield_now().await).await });
/// ```
pub struct Shared<T>(Arc<SharedCell<T>>);

/// The order of the fields puts a small value and the word of its access lock into one cache line.
#[repr(C)]
pub(super) struct SharedCell<T> {
    value: UnsafeCell<T>,
    access_lock: AccessLock,
    label: StateLabel,
}

// SAFETY: one writer at a time reaches the value, possibly on another thread. Many readers reach it only
// where `T` is `Sync`, which `read` and `reading` require. GUARDED
unsafe impl<T: Send> Sync for SharedCell<T> {}
// SAFETY: the cell owns its value.
unsafe impl<T: Send> Send for SharedCell<T> {}

/// Name of a state in errors.
pub(super) struct StateLabel {
    /// In two boxes, for a state of fewer bytes: few have a name.
    pub(super) name: Option<Box<Box<str>>>,
    pub(super) made: &'static Location<'static>,
    /// Position in the order of states in a simulation, where addresses differ from run to run.
    pub(super) number: u64,
}

impl<T> Shared<T> {
    /// Creates a state. Errors name it by its type and by the place of this call.
    #[must_use]
    #[track_caller]
    pub fn new(value: T) -> Shared<T> {
        Shared::made(None, value)
    }

    /// Creates a state with a name, which the messages of errors and panics show.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::Shared;
    ///
    /// let state = Shared::named("till", 0); // the name is in panics and in `dump`
    /// assert_eq!(state.name(), Some("till"));
    /// ```
    #[must_use]
    #[track_caller]
    pub fn named(name: impl Into<Box<str>>, value: T) -> Shared<T> {
        Shared::made(Some(name.into()), value)
    }

    #[track_caller]
    fn made(name: Option<Box<str>>, value: T) -> Shared<T> {
        let name = name.map(Box::new);
        let label = StateLabel { name, made: Location::caller(), number: world::number() };
        Shared(Arc::new(SharedCell { value: UnsafeCell::new(value), access_lock: AccessLock::new(), label }))
    }

    /// Name given by [`named`](Self::named).
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.0.label.name.as_deref().map(|name| &**name)
    }

    /// Calls `f` with the value, once no writer uses it.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled: `f` has not run.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; `f` has not run.
    /// *Scope cancelled*: returns [`Cancelled`], and `f` has not run; or the result of `f`, if the state
    /// could be read when the wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// let state = dapple::Shared::new(vec![1, 2, 3]);
    /// let sum = dapple::run(state.read(|numbers| numbers.iter().sum::<i32>()));
    /// assert_eq!(sum, Ok(6));
    /// ```
    #[track_caller]
    pub fn read<R, F: FnOnce(&T) -> R>(&self, f: F) -> ReadFuture<'_, T, F>
    where
        T: Sync,
    {
        ReadFuture::new(self.reading(), f)
    }

    /// Calls `f` with the value, once no other caller uses it.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled: `f` has not run.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; `f` has not run.
    /// *Scope cancelled*: returns [`Cancelled`], and `f` has not run; or the result of `f`, if the state was
    /// free when the wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// let state = dapple::Shared::new(vec![1]);
    /// dapple::run(async {
    ///     state.write(|numbers| numbers.push(2)).await.unwrap();
    ///     assert_eq!(state.read(|numbers| numbers.len()).await, Ok(2));
    /// });
    /// ```
    #[track_caller]
    pub fn write<R, F: FnOnce(&mut T) -> R>(&self, f: F) -> WriteFuture<'_, T, F> {
        WriteFuture::new(self.writing(), f)
    }

    /// Calls `f` with the value if no writer uses it now, even ahead of waiters.
    ///
    /// # Errors
    ///
    /// If a writer uses it: `f` has not run.
    ///
    /// # Examples
    ///
    /// ```
    /// let state = dapple::Shared::new(7);
    /// assert_eq!(state.try_read(|number| *number).unwrap(), 7); // works outside of a runtime, too
    /// ```
    #[track_caller]
    pub fn try_read<R>(&self, f: impl FnOnce(&T) -> R) -> Result<R, Busy>
    where
        T: Sync,
    {
        let (access_lock, reading) = (&self.0.access_lock, self.reading());
        let hold = access_lock
            .try_read(false, own_slots())
            .or_else(|| access_lock.try_read_now())
            .ok_or(Busy(()))?;
        let _entered = AccessGuard { access_lock, hold };
        // SAFETY: the access guard is dropped after `f` returns, and `f` cannot keep the reference that it
        // gets.
        Ok(closure::enter(&reading.wish(), || f(unsafe { reading.guard() })))
    }

    /// Calls `f` with the value if no caller uses it now, even ahead of waiters.
    ///
    /// # Errors
    ///
    /// If another caller uses it: `f` has not run.
    ///
    /// # Examples
    ///
    /// ```
    /// let state = dapple::Shared::new(1);
    /// assert_eq!(state.try_write(|number| *number += 1), Ok(())); // at once, or `Busy`
    /// assert_eq!(state.try_read(|number| *number), Ok(2));
    /// ```
    #[track_caller]
    pub fn try_write<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R, Busy> {
        let (access_lock, writing) = (&self.0.access_lock, self.writing());
        let hold = access_lock.try_write_now(&REGISTRY).ok_or(Busy(()))?;
        let _entered = AccessGuard { access_lock, hold };
        // SAFETY: as in `try_read`.
        Ok(closure::enter(&writing.wish(), || f(unsafe { writing.guard() })))
    }

    /// As [`read`](Self::read), for threads that run no tasks: blocks the thread.
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

    /// As [`write`](Self::write), for threads that run no tasks: blocks the thread.
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

    /// Request to read this state, for [`together`](crate::together).
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::{Shared, together};
    ///
    /// dapple::run(async {
    ///     let (price, till) = (Shared::new(25), Shared::new(0));
    ///     let sold = together((price.reading(), till.writing()), |(price, till)| *till += *price);
    ///     sold.await.unwrap();
    ///     assert_eq!(till.read(|till| *till).await, Ok(25));
    /// });
    /// ```
    #[must_use = "it is read in `together`"]
    #[track_caller]
    pub fn reading(&self) -> Reading<'_, T>
    where
        T: Sync,
    {
        Reading { state: &self.0, place: Location::caller() }
    }

    /// Request to write this state, for [`together`](crate::together).
    #[must_use = "it is written in `together`"]
    #[track_caller]
    pub fn writing(&self) -> Writing<'_, T> {
        Writing { state: &self.0, place: Location::caller() }
    }

    /// Returns a mutable reference to the value if there is no other clone of this `Shared`.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        Arc::get_mut(&mut self.0).map(|state| state.value.get_mut())
    }

    /// Returns the value if there is no other clone of this `Shared`.
    ///
    /// # Errors
    ///
    /// If there is another clone: returns this one.
    pub fn into_inner(self) -> Result<T, Shared<T>> {
        Arc::try_unwrap(self.0).map(|state| state.value.into_inner()).map_err(Shared)
    }
}

impl<T> SharedCell<T> {
    #[inline]
    pub(super) fn wish(&self, writes: bool, place: &'static Location<'static>) -> Wish<'_> {
        Wish { access_lock: &self.access_lock, label: &self.label, type_name: type_name::<T>, writes, place }
    }

    #[inline]
    pub(super) fn access_lock(&self) -> &AccessLock {
        &self.access_lock
    }

    /// Pointer to the value. Only code that has entered by the access lock may use it. GUARDED
    #[inline]
    pub(super) fn value(&self) -> *mut T {
        self.value.get()
    }
}

impl<T> Clone for Shared<T> {
    /// Makes another handle of the same value.
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
    /// Shows the value, or that a writer uses it. Never waits.
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

/// Error of [`Shared::try_read`] and [`Shared::try_write`]: the state is in use.
///
/// # Examples
///
/// ```
/// use dapple::Shared;
///
/// let state = Shared::named("state", 1);
/// let inside = state.try_read(|_| state.try_write(|number| *number += 1).is_err());
/// assert_eq!(inside, Ok(true)); // busy: it is being read
/// assert!(state.try_write(|number| *number += 1).is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy(pub(super) ());

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the state is in use")
    }
}

impl std::error::Error for Busy {}
