//! async-stm, on tokio. Its transaction is thread-local, so that the closures get none.

use async_stm::{StmControl, TVar};

use super::{Stm, Value};
use crate::crowd;

pub(crate) struct AsyncStm;

impl Stm for AsyncStm {
    const TASKS: usize = crowd::TASKS;

    type Var<T> = TVar<T>;
    type Transaction<'t> = ();
    type Abort = StmControl;

    fn var<T: Value>(value: T) -> TVar<T> {
        TVar::new(value)
    }

    #[inline]
    fn with<T: Value, R>(_: &mut (), var: &TVar<T>, f: impl FnOnce(&T) -> R) -> async_stm::Stm<R> {
        Ok(f(&*var.read()?))
    }

    #[inline]
    fn write<T: Value>(_: &mut (), var: &TVar<T>, value: T) -> async_stm::Stm<()> {
        var.write(value)
    }

    #[inline]
    fn modify<T: Value, R>(_: &mut (), var: &TVar<T>, f: impl FnOnce(&mut T) -> R) -> async_stm::Stm<R> {
        var.modify_mut(f)
    }

    #[inline]
    fn retry<R>(_: &mut ()) -> async_stm::Stm<R> {
        async_stm::retry()
    }

    #[inline]
    async fn atomically<R, F>(f: F) -> R
    where
        R: Send,
        F: Fn(&mut ()) -> async_stm::Stm<R> + Send + Sync,
    {
        async_stm::atomically(|| f(&mut ())).await
    }
}
