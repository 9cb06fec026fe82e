//! Dapple's own.

use dapple::stm::{Abort, TVar, Transaction};

use super::{Stm, Value};
use crate::crowd;

pub(crate) struct DappleStm;

impl Stm for DappleStm {
    const TASKS: usize = crowd::TASKS;

    type Var<T> = TVar<T>;
    type Transaction<'t> = Transaction<'t>;
    type Abort = Abort;

    fn var<T: Value>(value: T) -> TVar<T> {
        TVar::new(value)
    }

    #[inline]
    fn with<T: Value, R>(
        transaction: &mut Transaction<'_>,
        var: &TVar<T>,
        f: impl FnOnce(&T) -> R,
    ) -> Result<R, Abort> {
        transaction.with(var, f)
    }

    #[inline]
    fn write<T: Value>(transaction: &mut Transaction<'_>, var: &TVar<T>, value: T) -> Result<(), Abort> {
        transaction.write(var, value)
    }

    #[inline]
    fn modify<T: Value, R>(
        transaction: &mut Transaction<'_>,
        var: &TVar<T>,
        f: impl FnOnce(&mut T) -> R,
    ) -> Result<R, Abort> {
        transaction.modify(var, f)
    }

    #[inline]
    fn retry<R>(transaction: &mut Transaction<'_>) -> Result<R, Abort> {
        transaction.retry()
    }

    #[inline]
    async fn atomically<R, F>(f: F) -> R
    where
        R: Send,
        F: Fn(&mut Transaction<'_>) -> Result<R, Abort> + Send + Sync,
    {
        dapple::stm::atomically(f).await.expect("nobody cancels")
    }
}
