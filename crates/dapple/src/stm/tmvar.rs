//! `TMVar`: a place for one value, in transactions.

use std::fmt;

use super::{Abort, TVar, Transaction};

/// A place that holds one value or none, and waits in both directions: [`take`](Self::take) while it is empty,
/// [`put`](Self::put) while it is full.
///
/// Use it to hand values over one by one, or as a lock around a value, where this is a part of a larger transaction.
/// Outside of transactions, [`sync::MVar`](crate::sync::MVar) does the same at a lower cost, and serves waiters in order.
///
/// A clone is another handle of the same place. A value that is taken is cloned, as the transaction may still be undone:
/// put large ones behind an [`Arc`](std::sync::Arc).
///
/// # Examples
///
/// ```
/// use dapple::stm::{TMVar, atomically};
///
/// dapple::run(async {
///     let (left, right) = (TMVar::new("fork"), TMVar::empty());
///     let eater = dapple::spawn({
///         let (left, right) = (left.clone(), right.clone());
///         atomically(move |tx| Ok((left.take(tx)?, right.take(tx)?))) // both, or none
///     });
///     atomically(|tx| right.put(tx, "spoon")).await.unwrap();
///     assert_eq!(eater.await.unwrap(), Ok(("fork", "spoon")));
///     assert_eq!(atomically(|tx| left.try_take(tx)).await, Ok(None));
/// });
/// ```
pub struct TMVar<T>(TVar<Option<T>>);

impl<T: Clone + Send + Sync + 'static> TMVar<T> {
    /// Makes a place that holds this value.
    #[must_use]
    pub fn new(value: T) -> TMVar<T> {
        TMVar(TVar::new(Some(value)))
    }

    /// Makes a place without a value.
    #[must_use]
    pub fn empty() -> TMVar<T> {
        TMVar(TVar::new(None))
    }

    /// Takes the value out, and returns it. If there is none, calls [`retry`](Transaction::retry): the transaction waits.
    ///
    /// # Errors
    ///
    /// If there is no value, or the transaction is aborted.
    pub fn take(&self, tx: &mut Transaction<'_>) -> Result<T, Abort> {
        match self.try_take(tx)? {
            Some(value) => Ok(value),
            None => tx.retry(),
        }
    }

    /// Takes the value out, and returns it; `None` if there is no value.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn try_take(&self, tx: &mut Transaction<'_>) -> Result<Option<T>, Abort> {
        let value = tx.read(&self.0)?;
        if value.is_some() {
            tx.write(&self.0, None)?;
        }
        Ok(value)
    }

    /// Puts a value in. If there is one already, calls [`retry`](Transaction::retry): the transaction waits.
    ///
    /// # Errors
    ///
    /// If there is a value, or the transaction is aborted: this one is dropped.
    pub fn put(&self, tx: &mut Transaction<'_>, value: T) -> Result<(), Abort> {
        match self.try_put(tx, value)? {
            Ok(()) => Ok(()),
            Err(_full) => tx.retry(),
        }
    }

    /// Puts a value in, or returns it if there is one.
    ///
    /// # Errors
    ///
    /// `Err`, if the transaction is aborted: the value is dropped. `Ok(Err(value))`, if the value was not put in.
    pub fn try_put(&self, tx: &mut Transaction<'_>, value: T) -> Result<Result<(), T>, Abort> {
        if !self.is_empty(tx)? {
            return Ok(Err(value));
        }
        tx.write(&self.0, Some(value)).map(Ok)
    }

    /// Returns a clone of the value, which stays. If there is none, calls [`retry`](Transaction::retry): the transaction waits.
    ///
    /// # Errors
    ///
    /// If there is no value, or the transaction is aborted.
    pub fn read(&self, tx: &mut Transaction<'_>) -> Result<T, Abort> {
        match self.try_read(tx)? {
            Some(value) => Ok(value),
            None => tx.retry(),
        }
    }

    /// Returns a clone of the value, which stays; `None` if there is no value.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn try_read(&self, tx: &mut Transaction<'_>) -> Result<Option<T>, Abort> {
        tx.read(&self.0)
    }

    /// Whether there is no value.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn is_empty(&self, tx: &mut Transaction<'_>) -> Result<bool, Abort> {
        tx.with(&self.0, Option::is_none)
    }
}

impl<T> Clone for TMVar<T> {
    /// Makes another handle of the same place.
    fn clone(&self) -> TMVar<T> {
        TMVar(self.0.clone())
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for TMVar<T> {
    /// Shows the value of the last commit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TMVar").field(&self.0).finish()
    }
}
