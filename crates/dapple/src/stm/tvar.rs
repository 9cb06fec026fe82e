//! `TVar`: a handle of a cell.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;

use super::cell::{CellHead, CellRef};
use super::drops::retire_cell;
use super::transaction::Transaction;
use super::value;

/// A variable of transactions.
///
/// Use it for state that several tasks change, where one change concerns several variables, or where a task waits until
/// some of them have certain values. It is read and written in [`atomically`](super::atomically) by a
/// [`Transaction`]; [`load`](Self::load) reads it outside of transactions.
///
/// A clone is another handle of the same variable. A variable needs no runtime: it can be made anywhere, and be a part of
/// the value of another variable.
///
/// A variable takes 40 bytes. Numbers, `bool` and `char` are in these bytes. Any other value is behind an
/// [`Arc`](std::sync::Arc), and each write allocates a new one.
///
/// Old values are dropped as soon as no running transaction can use them, on the thread that notices it. A panic in the
/// destructor of a value is discarded, also when the last handle of its variable is dropped.
///
/// # Examples
///
/// ```
/// use dapple::stm::{TVar, atomically};
///
/// dapple::run(async {
///     let (from, to) = (TVar::new(10), TVar::new(0));
///     atomically(|tx| {
///         tx.modify(&from, |from| *from -= 3)?;
///         tx.modify(&to, |to| *to += 3)
///     })
///     .await
///     .unwrap();
///     assert_eq!((from.load(), to.load()), (7, 3));
/// });
/// ```
pub struct TVar<T> {
    cell: NonNull<CellHead>,
    /// It owns a `T`, which any thread may replace.
    of: PhantomData<UnsafeCell<T>>,
}

// SAFETY: values are seen by several threads, and dropped by any. SENDABLE in `value`
unsafe impl<T: Send + Sync> Send for TVar<T> {}
// SAFETY: as above. The cell is changed by its owner alone. LOCK-BIT in `cell`
unsafe impl<T: Send + Sync> Sync for TVar<T> {}

// A panic in a transaction leaves no trace in its variables.
impl<T> UnwindSafe for TVar<T> {}
impl<T> RefUnwindSafe for TVar<T> {}

impl<T: Send + Sync + 'static> TVar<T> {
    /// Makes a variable with this value. Inside of a transaction it is a variable of its own at once: if the transaction is
    /// undone, the variable still exists.
    #[must_use]
    pub fn new(value: T) -> TVar<T> {
        let cell = Box::new(CellHead::new(value::to_bits(value), value::kind::<T>()));
        TVar { cell: NonNull::from(Box::leak(cell)), of: PhantomData }
    }

    /// Returns a clone of the last committed value, outside of transactions. It never waits.
    ///
    /// Two loads, one after the other, may see values that were never there together: read both in a transaction for that.
    /// Inside of a transaction, [`Transaction::read`] also sees what the transaction has written.
    #[must_use]
    pub fn load(&self) -> T
    where
        T: Clone,
    {
        self.look(T::clone)
    }

    /// Calls `f` with the value of the last commit.
    fn look<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        Transaction::look(self, f)
    }
}

impl<T> TVar<T> {
    pub(super) fn cell(&self) -> &CellHead {
        // SAFETY: this is a handle of the cell, and keeps it. HANDLES-COUNTED
        unsafe { self.cell.as_ref() }
    }

    #[inline]
    pub(super) fn cell_ref(&self) -> CellRef {
        // SAFETY: for a transaction that has announced itself, and was called with this handle (ANNOUNCED-OR-LOCKED); or for
        // the owner of the last handle, which frees it.
        unsafe { CellRef::new(self.cell) }
    }

    /// Whether both are handles of the same variable.
    #[must_use]
    pub fn ptr_eq(&self, other: &TVar<T>) -> bool {
        self.cell == other.cell
    }
}

impl<T> Clone for TVar<T> {
    /// Makes another handle of the same variable.
    fn clone(&self) -> TVar<T> {
        self.cell().handles.add();
        TVar { cell: self.cell, of: PhantomData }
    }
}

impl<T> Drop for TVar<T> {
    #[inline]
    fn drop(&mut self) {
        if self.cell().handles.remove() {
            retire_cell(self.cell_ref());
        }
    }
}

impl<T: Send + Sync + Default + 'static> Default for TVar<T> {
    fn default() -> TVar<T> {
        TVar::new(T::default())
    }
}

impl<T: Send + Sync + 'static> From<T> for TVar<T> {
    fn from(value: T) -> TVar<T> {
        TVar::new(value)
    }
}

impl<T: Send + Sync + fmt::Debug + 'static> fmt::Debug for TVar<T> {
    /// Shows the value of the last commit.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.look(|value| f.debug_tuple("TVar").field(value).finish())
    }
}
