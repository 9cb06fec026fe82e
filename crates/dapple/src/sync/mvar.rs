//! A place for one value, which is empty or full: the MVar of Concurrent Haskell.
//!
//! An `MVar` is an [`Exchange`] of one value. A caller takes or puts the value under a short lock, together with the look at
//! the waiters. Order, giving way and cancelling are those of `exchange`: each change wakes one waiter, the first.
//!
//! # Invariants
//!
//! * **LENT-OUT**: `with` and `read` take the value out, and put it back when their closure ends, also by a panic. Until
//!   then there is neither a value nor room for one, so foreign code runs without the lock and has the value alone.

use std::error::Error;
use std::fmt;
use std::future::poll_fn;
use std::ops::{Deref, DerefMut};

use crate::Cancelled;
use crate::waitlist::exchange::{
    Exchange, ExchangePlace, ExchangeQueues, ExchangeSide, Stock, ToPut, ToTake,
};
use crate::waitlist::permits::PermitRefusal;
use crate::waitlist::wait::block_on;
use crate::waitlist::wait_queue::WaitQueue;

/// A place for one value, which is empty or full. `take` waits until it is full and empties it, `put` waits until it is
/// empty and fills it.
///
/// It is a lock with its data, a channel of one message, or a signal that carries a value. Waiters are served in the order
/// in which they came, one by one: each `put` wakes one waiter, and so does each `take`. A caller that comes while others
/// wait gives way to them once.
///
/// # Examples
///
/// ```
/// use dapple::sync::MVar;
/// use std::sync::Arc;
///
/// dapple::run(async {
///     let (ping, pong) = (Arc::new(MVar::empty()), Arc::new(MVar::empty()));
///     let echo = dapple::spawn({
///         let (ping, pong) = (ping.clone(), pong.clone());
///         async move {
///             let number: u32 = ping.take().await.unwrap();
///             pong.put(number + 1).await.unwrap();
///         }
///     });
///     ping.put(1).await.unwrap();
///     assert_eq!(pong.take().await, Ok(2));
///     echo.await.unwrap();
/// });
/// ```
pub struct MVar<T> {
    exchange: Exchange<ValuePlace<T>>,
}

/// The value, if it is there.
struct ValuePlace<T> {
    value: Option<T>,
    /// A closure has the value. LENT-OUT
    is_lent: bool,
}

impl<T> Stock for ValuePlace<T> {
    type Item = T;
    const ROOM: &'static &'static str = &"an empty MVar";
    const ITEM: &'static &'static str = &"a value in an MVar";

    #[inline]
    fn room(&self) -> usize {
        usize::from(self.value.is_none() && !self.is_lent)
    }

    #[inline]
    fn filled(&self) -> usize {
        usize::from(self.value.is_some())
    }

    #[inline]
    fn put(&mut self, value: Option<T>) {
        self.value = value; // there was none, so nothing is dropped
    }

    #[inline]
    fn take(&mut self) -> Option<T> {
        self.value.take()
    }
}

/// The value that was lent. LENT-OUT
struct ToLend<T>(Option<T>);

impl<T> ExchangeSide<ValuePlace<T>> for ToLend<T> {
    const WHAT: &'static &'static str = ValuePlace::<T>::ITEM;
    const ENDS_AT_CLOSE: bool = false;
    const WAKES_OTHERS: bool = false; // there is no room

    #[inline]
    fn free(place: &ValuePlace<T>) -> usize {
        place.filled()
    }

    #[inline]
    fn queue(queues: &mut ExchangeQueues) -> &mut WaitQueue {
        <ToTake<T> as ExchangeSide<ValuePlace<T>>>::queue(queues)
    }

    #[inline]
    fn others(queues: &mut ExchangeQueues) -> &mut WaitQueue {
        <ToTake<T> as ExchangeSide<ValuePlace<T>>>::others(queues)
    }

    #[inline]
    fn take(&mut self, place: &mut ValuePlace<T>) {
        self.0 = place.value.take();
        place.is_lent = true;
    }
}

impl<T> MVar<T> {
    /// Makes a full MVar, with this value.
    #[must_use]
    pub fn new(value: T) -> MVar<T> {
        MVar::of(Some(value))
    }

    /// Makes an empty MVar.
    #[must_use]
    pub fn empty() -> MVar<T> {
        MVar::of(None)
    }

    fn of(value: Option<T>) -> MVar<T> {
        MVar { exchange: Exchange::new(ValuePlace { value, is_lent: false }) }
    }

    /// Waits until there is a value, and takes it out.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled: nothing has been taken.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; nothing has been taken.
    /// *Scope cancelled*: returns [`Cancelled`], and nothing has been taken; or the value, if there was one when the
    /// wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::sync::MVar;
    /// use std::sync::Arc;
    ///
    /// dapple::run(async {
    ///     let place = Arc::new(MVar::empty());
    ///     let giver = place.clone();
    ///     dapple::spawn(async move { giver.put("a token").await }).detach();
    ///     assert_eq!(place.take().await, Ok("a token"));
    ///     assert!(place.is_empty());
    /// });
    /// ```
    pub async fn take(&self) -> Result<T, Cancelled> {
        let mut value = ToTake(None);
        self.wait(&mut value).await?;
        Ok(value.0.expect("a value that was taken"))
    }

    /// Takes the value if there is one now, also ahead of waiters. Returns `None` if it is empty, and while another
    /// caller is in [`with`](Self::with) or [`read`](Self::read).
    pub fn try_take(&self) -> Option<T> {
        let mut value = ToTake(None);
        self.exchange.try_take(&mut value).ok()?;
        value.0
    }

    /// Waits until the MVar is empty, and puts a value in.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled: hands the value back.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: the value is dropped with the wait, and has not been put; loses its place.
    /// *Scope cancelled*: returns a [`PutError`] with the value, which has not been put; or `Ok`, if it was empty when the
    /// wait was polled again.
    pub async fn put(&self, value: T) -> Result<(), PutError<T>> {
        let mut value = ToPut(Some(value));
        let put = self.wait(&mut value).await;
        put.map_err(|Cancelled| PutError::of(value, true))
    }

    /// Puts a value in if the MVar is empty now, also ahead of waiters.
    ///
    /// # Errors
    ///
    /// If it is full: hands the value back.
    pub fn try_put(&self, value: T) -> Result<(), PutError<T>> {
        let mut value = ToPut(Some(value));
        let put = self.exchange.try_take(&mut value);
        put.map_err(|_: PermitRefusal| PutError::of(value, false))
    }

    /// Waits until there is a value, and calls `f` with it. The value stays. Meanwhile no other caller takes or reads
    /// it, or puts another one.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled: `f` has not run.
    ///
    /// # Panics
    ///
    /// If `f` does. The value is as `f` left it.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**; `f` has not run.
    /// *Scope cancelled*: returns [`Cancelled`], and `f` has not run; or what `f` returned, if there was a value when the
    /// wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// dapple::run(async {
    ///     let names = dapple::sync::MVar::new(vec!["ada"]);
    ///     names.with(|names| names.push("grace")).await.unwrap();
    ///     assert_eq!(names.read().await.unwrap(), ["ada", "grace"]);
    /// });
    /// ```
    pub async fn with<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R, Cancelled> {
        let mut value = ToLend(None);
        self.wait(&mut value).await?;
        Ok(f(&mut self.lent(value)))
    }

    /// Waits until there is a value, puts `value` in its place, and returns the one that was there. No other caller comes
    /// between.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled: hands `value` back.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **lossy**: `value` is dropped with the wait, and has not been put; loses its place.
    /// *Scope cancelled*: returns a [`PutError`] with `value`, which has not been put; or the other value, if there was one
    /// when the wait was polled again.
    ///
    /// # Examples
    ///
    /// ```
    /// dapple::run(async {
    ///     let latest = dapple::sync::MVar::new(1);
    ///     assert_eq!(latest.swap(2).await.unwrap(), 1);
    ///     assert_eq!(latest.take().await, Ok(2));
    /// });
    /// ```
    pub async fn swap(&self, value: T) -> Result<T, PutError<T>> {
        let mut other = ToLend(None);
        match self.wait(&mut other).await {
            Ok(()) => Ok(std::mem::replace(&mut *self.lent(other), value)),
            Err(Cancelled) => Err(PutError { value, cancelled: true }),
        }
    }

    /// Waits until there is a value, and returns a clone. The value stays.
    ///
    /// # Errors
    ///
    /// If the wait was cancelled.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **loses its place**.
    /// *Scope cancelled*: returns [`Cancelled`]; or the value, if there was one when the wait was polled again.
    pub async fn read(&self) -> Result<T, Cancelled>
    where
        T: Clone,
    {
        let mut value = ToLend(None);
        self.wait(&mut value).await?;
        Ok(T::clone(&self.lent(value)))
    }

    /// Returns a clone of the value if there is one now. Returns `None` if it is empty, and while another caller is
    /// in [`with`](Self::with) or [`read`](Self::read).
    pub fn try_read(&self) -> Option<T>
    where
        T: Clone,
    {
        let mut value = ToLend(None);
        self.exchange.try_take(&mut value).ok()?;
        Some(T::clone(&self.lent(value)))
    }

    /// As [`take`](Self::take), for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// If the call was cancelled in [`blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    #[track_caller]
    pub fn take_blocking(&self) -> Result<T, Cancelled> {
        block_on("MVar::take_blocking", self.take())
    }

    /// As [`put`](Self::put), for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// Hands the value back if the call was cancelled in [`blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    #[track_caller]
    pub fn put_blocking(&self, value: T) -> Result<(), PutError<T>> {
        block_on("MVar::put_blocking", self.put(value))
    }

    /// As [`with`](Self::with), for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// If the call was cancelled in [`blocking`](crate::blocking()): `f` has not run.
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks. And if `f` does: the value is as `f` left it.
    #[track_caller]
    pub fn with_blocking<R>(&self, f: impl FnOnce(&mut T) -> R) -> Result<R, Cancelled> {
        block_on("MVar::with_blocking", self.with(f))
    }

    /// As [`read`](Self::read), for threads that run no tasks: blocks the thread.
    ///
    /// # Errors
    ///
    /// If the call was cancelled in [`blocking`](crate::blocking()).
    ///
    /// # Panics
    ///
    /// On a thread that runs tasks.
    #[track_caller]
    pub fn read_blocking(&self) -> Result<T, Cancelled>
    where
        T: Clone,
    {
        block_on("MVar::read_blocking", self.read())
    }

    /// Whether there is no value now, or another caller has it in [`with`](Self::with). Another thread may change
    /// that at any moment.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exchange.with(|place| place.value.is_none())
    }

    /// Returns the value, if there is one.
    #[must_use]
    pub fn into_inner(self) -> Option<T> {
        self.exchange.with(|place| place.value.take())
    }

    /// Waits until a side has done what it does.
    #[inline]
    async fn wait<S: ExchangeSide<ValuePlace<T>>>(&self, side: &mut S) -> Result<(), Cancelled> {
        let mut waits = MVarWait { exchange: &self.exchange, place: ExchangePlace::default(), side };
        let done = poll_fn(|cx| waits.exchange.poll_take(waits.side, &mut waits.place, cx)).await;
        done.map_err(|_: PermitRefusal| Cancelled) // it is never closed
    }

    /// The value for a closure, until it is dropped.
    fn lent(&self, value: ToLend<T>) -> LentValue<'_, T> {
        LentValue { of: self, value: value.0 }
    }
}

/// A wait for a side. Dropped early, it leaves its queue.
struct MVarWait<'a, T, S: ExchangeSide<ValuePlace<T>>> {
    exchange: &'a Exchange<ValuePlace<T>>,
    place: ExchangePlace,
    side: &'a mut S,
}

impl<T, S: ExchangeSide<ValuePlace<T>>> Drop for MVarWait<'_, T, S> {
    #[inline]
    fn drop(&mut self) {
        self.exchange.leave::<S>(&mut self.place);
    }
}

/// The value, which goes back where it was. LENT-OUT
struct LentValue<'a, T> {
    of: &'a MVar<T>,
    value: Option<T>,
}

impl<T> Deref for LentValue<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value.as_ref().expect("a value that was lent")
    }
}

impl<T> DerefMut for LentValue<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_mut().expect("a value that was lent")
    }
}

impl<T> Drop for LentValue<'_, T> {
    fn drop(&mut self) {
        let value = self.value.take();
        self.of.exchange.give_back(|place| {
            place.is_lent = false;
            place.value = value;
        });
    }
}

impl<T> Default for MVar<T> {
    fn default() -> MVar<T> {
        MVar::empty()
    }
}

impl<T> From<T> for MVar<T> {
    fn from(value: T) -> MVar<T> {
        MVar::new(value)
    }
}

impl<T> fmt::Debug for MVar<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MVar").field("empty", &self.is_empty()).finish_non_exhaustive()
    }
}

/// Error of [`MVar::put`] and [`MVar::try_put`]: the value was not put. Hands the value back.
///
/// # Examples
///
/// ```
/// use dapple::sync::MVar;
///
/// let place = MVar::new(1);
/// let error = place.try_put(2).unwrap_err();
/// assert!(error.is_full());
/// assert_eq!(error.into_inner(), 2);
/// ```
pub struct PutError<T> {
    value: T,
    cancelled: bool,
}

impl<T> PutError<T> {
    fn of(value: ToPut<T>, cancelled: bool) -> PutError<T> {
        PutError { value: value.0.expect("a value that was not put"), cancelled }
    }

    /// Whether the MVar was full: there was a value already.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.cancelled
    }

    /// Whether the wait was cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled
    }

    /// Returns the value that was not put.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> fmt::Display for PutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.cancelled { "the wait was cancelled" } else { "the MVar is full" })
    }
}

impl<T> fmt::Debug for PutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PutError({self})")
    }
}

impl<T> Error for PutError<T> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.is_cancelled().then_some(&Cancelled as _)
    }
}
