//! A value that is computed once, by an async initialiser.
//!
//! # Invariants
//!
//! * **ONE-INITIALISER**: there is one permit. The one that has taken it may set the value, and then closes the
//!   permits, so that all waiters look again; or it gives the permit back, also by panicking or being dropped. A caller
//!   that finds the permits closed sees the value: it was written before the closing.

use std::error::Error;
use std::fmt;
use std::sync::OnceLock;

use crate::Cancelled;
use crate::waitlist::permits::{PermitRefusal, PermitWait, Permits};

/// Cell for a value that is set once, possibly by an async initialiser. Many tasks may ask for the value at the same
/// time; one of them computes it. It may be a `static`.
///
/// # Examples
///
/// ```
/// use dapple::sync::OnceCell;
///
/// static ADDRESS: OnceCell<String> = OnceCell::new();
///
/// async fn address() -> Result<&'static String, dapple::Cancelled> {
///     ADDRESS.get_or_init(|| async { String::from("looked up once") }).await
/// }
///
/// dapple::run(async {
///     assert_eq!(address().await.unwrap(), "looked up once");
///     assert!(ADDRESS.get().is_some());
/// });
/// ```
pub struct OnceCell<T> {
    value: OnceLock<T>,
    /// ONE-INITIALISER; made by the first that needs it.
    turn: OnceLock<Permits>,
}

/// The turn of one initialiser. ONE-INITIALISER
struct InitTurn<'a>(&'a Permits);

impl Drop for InitTurn<'_> {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

impl<T> OnceCell<T> {
    /// Makes an empty cell.
    #[must_use]
    pub const fn new() -> OnceCell<T> {
        OnceCell { value: OnceLock::new(), turn: OnceLock::new() }
    }

    /// Returns the value, if it has been set. Never waits.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        self.value.get()
    }

    /// Returns the value by mutable reference, if it has been set.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut()
    }

    /// Whether the value has been set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.get().is_some()
    }

    /// Returns the value, if it has been set.
    #[must_use]
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }

    fn turn(&self) -> &Permits {
        self.turn.get_or_init(|| Permits::new(1))
    }

    /// Sets the value, unless there is one or an initialiser runs.
    ///
    /// # Errors
    ///
    /// If there is one, or an initialiser runs: hands the value back.
    pub fn set(&self, value: T) -> Result<(), SetError<T>> {
        if self.turn().try_take(1).is_err() {
            return Err(SetError { value, is_set: self.is_set() });
        }
        let turn = InitTurn(self.turn());
        self.settle(turn, value);
        Ok(())
    }

    /// Returns the value. If there is none, runs `init` to compute it. Of many callers one runs its `init`, and the
    /// others wait. If that one panics or is dropped, the next caller runs its own.
    ///
    /// An `init` that asks for the value of its own cell waits for itself, until it is cancelled.
    ///
    /// A cancel reaches the waits inside of `init`, which has to return a value nevertheless: use
    /// [`get_or_try_init`](Self::get_or_try_init) for an initialiser that waits.
    ///
    /// # Errors
    ///
    /// If the wait for the turn was cancelled: `init` has not run.
    ///
    /// # Panics
    ///
    /// If `init` does. The cell has no value then.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** the turn to the next caller; its `init` is dropped.
    /// *Scope cancelled*: returns [`Cancelled`], and `init` has not run; or the value, if there was one when the wait was
    /// polled again, or `init` has begun and returned one.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::sync::OnceCell;
    ///
    /// dapple::run(async {
    ///     let config = OnceCell::new();
    ///     assert_eq!(config.get_or_init(async || "read once").await, Ok(&"read once"));
    ///     assert_eq!(config.get_or_init(async || unreachable!()).await, Ok(&"read once"));
    /// });
    /// ```
    pub async fn get_or_init<F, Fut>(&self, init: F) -> Result<&T, Cancelled>
    where
        F: FnOnce() -> Fut,
        Fut: Future<Output = T>,
    {
        if let Some(turn) = self.wait().await? {
            let value = init().await;
            self.settle(turn, value);
        }
        Ok(self.get().expect("set, or settled just now"))
    }

    /// As [`get_or_init`](Self::get_or_init), with an `init` that may fail. Its error goes to its own caller, the
    /// cell stays empty, and the next caller runs its own `init`.
    ///
    /// # Errors
    ///
    /// That of `init`; and [`Cancelled`], as an `E`, if the wait for the turn was cancelled: `init` has not run.
    ///
    /// # Panics
    ///
    /// If `init` does. The cell has no value then.
    ///
    /// # Cancellation
    ///
    /// *Dropped early*: **hands over** the turn to the next caller; its `init` is dropped.
    /// *Scope cancelled*: as [`get_or_init`](Self::get_or_init).
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::{Cancelled, sync::OnceCell};
    ///
    /// dapple::run(async {
    ///     let cell = OnceCell::new();
    ///     let failed = cell.get_or_try_init(|| async { Err::<u32, _>(Cancelled) }).await;
    ///     assert_eq!(failed, Err(Cancelled));
    ///     assert_eq!(cell.get_or_try_init(|| async { Ok::<_, Cancelled>(7) }).await, Ok(&7));
    /// });
    /// ```
    pub async fn get_or_try_init<E, F, Fut>(&self, init: F) -> Result<&T, E>
    where
        E: From<Cancelled>,
        F: FnOnce() -> Fut,
        Fut: Future<Output = Result<T, E>>,
    {
        if let Some(turn) = self.wait().await? {
            let value = init().await?; // on an error the turn is given back
            self.settle(turn, value);
        }
        Ok(self.get().expect("set, or settled just now"))
    }

    /// Waits for the turn to set the value; `None` if there is one.
    async fn wait(&self) -> Result<Option<InitTurn<'_>>, Cancelled> {
        match PermitWait::new(self.turn(), 1).await {
            Ok(()) => Ok(Some(InitTurn(self.turn()))),
            Err(PermitRefusal::Closed) => Ok(None),
            Err(_) => Err(Cancelled),
        }
    }

    /// Sets the value, and lets all waiters see it. ONE-INITIALISER
    fn settle(&self, turn: InitTurn<'_>, value: T) {
        // No one else has a turn, so that there is none.
        let set = self.value.set(value);
        debug_assert!(set.is_ok());
        std::mem::forget(turn);
        self.turn().close();
    }
}

impl<T> Default for OnceCell<T> {
    fn default() -> OnceCell<T> {
        OnceCell::new()
    }
}

impl<T: Clone> Clone for OnceCell<T> {
    /// A cell of its own, with a clone of the value if that has been set.
    fn clone(&self) -> OnceCell<T> {
        self.get().cloned().map_or_else(OnceCell::new, OnceCell::from)
    }
}

impl<T: PartialEq> PartialEq for OnceCell<T> {
    fn eq(&self, other: &OnceCell<T>) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceCell<T> {}

impl<T> From<T> for OnceCell<T> {
    /// One that has this value.
    fn from(value: T) -> OnceCell<T> {
        let cell = OnceCell::new();
        cell.settle(InitTurn(cell.turn()), value);
        cell
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceCell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OnceCell").field(&self.get()).finish()
    }
}

/// Error of [`OnceCell::set`]: there is a value, or one is being computed. Hands the other value back.
///
/// # Examples
///
/// ```
/// use dapple::sync::OnceCell;
///
/// let cell = OnceCell::new();
/// cell.set("first").unwrap();
/// let error = cell.set("second").unwrap_err();
/// assert!(error.is_set());
/// assert_eq!(error.into_inner(), "second");
/// ```
pub struct SetError<T> {
    value: T,
    is_set: bool,
}

impl<T> SetError<T> {
    /// Whether the cell has a value. `false`: an initialiser is running.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.is_set
    }

    /// Returns the value that was not set.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.value
    }
}

impl<T> fmt::Display for SetError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_set { "the cell has a value" } else { "the cell is being initialised" })
    }
}

impl<T> fmt::Debug for SetError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SetError({self})")
    }
}

impl<T> Error for SetError<T> {}
