//! fast-stm: it parks its thread where a transaction waits, so its tasks are threads.
//!
//! In its default form. The feature `hash-registers` would look variables up in a hash map, but keeps only their address: a
//! list whose nodes are removed while a transaction has read them would be a use after free.

use fast_stm::{StmClosureResult, StmError, TVar, Transaction};

use super::{Stm, Value};
use crate::sides::WORKERS;

pub(crate) struct FastStm;

impl Stm for FastStm {
    const TASKS: usize = WORKERS;

    type Var<T> = TVar<T>;
    type Transaction<'t> = Transaction;
    type Abort = StmError;

    fn var<T: Value>(value: T) -> TVar<T> {
        TVar::new(value)
    }

    #[inline]
    fn with<T: Value, R>(
        transaction: &mut Transaction,
        var: &TVar<T>,
        f: impl FnOnce(&T) -> R,
    ) -> StmClosureResult<R> {
        Ok(f(&transaction.read(var)?))
    }

    #[inline]
    fn write<T: Value>(transaction: &mut Transaction, var: &TVar<T>, value: T) -> StmClosureResult<()> {
        transaction.write(var, value)
    }

    #[inline]
    fn modify<T: Value, R>(
        transaction: &mut Transaction,
        var: &TVar<T>,
        f: impl FnOnce(&mut T) -> R,
    ) -> StmClosureResult<R> {
        let mut result = None;
        transaction.modify(var, |mut value| {
            result = Some(f(&mut value));
            value
        })?;
        Ok(result.expect("a closure that was called"))
    }

    #[inline]
    fn retry<R>(_: &mut Transaction) -> StmClosureResult<R> {
        fast_stm::retry()
    }

    #[inline]
    async fn atomically<R, F>(f: F) -> R
    where
        R: Send,
        F: Fn(&mut Transaction) -> StmClosureResult<R> + Send + Sync,
    {
        fast_stm::atomically(f)
    }
}
