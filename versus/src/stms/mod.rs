//! Software transactional memories, each behind the same small trait.
//!
//! The cases of `stm` write their transactions once, generic over the memory, so that each does literally the same work;
//! the implementations only forward. `with` lends the value where the memory can, and `modify` is the memory's own way to
//! read and write a variable by one lookup, so that no side copies more than it has to.

mod asynchronous;
mod dapple;
mod fast;

pub(crate) use self::asynchronous::AsyncStm;
pub(crate) use self::dapple::DappleStm;
pub(crate) use self::fast::FastStm;

/// The values of variables.
pub(crate) trait Value: Clone + Send + Sync + 'static {}

impl<T: Clone + Send + Sync + 'static> Value for T {}

/// The result of an operation inside of a transaction.
pub(crate) type Step<M, R> = Result<R, <M as Stm>::Abort>;

/// A transactional memory.
pub(crate) trait Stm: Send + Sync + 'static {
    /// Tasks that share the work of a case in which none waits. A memory on threads has one for each worker, since more
    /// threads than processors are only interrupted in the middle of their transactions.
    const TASKS: usize;

    /// Without a bound of its own, so that a value may lead to further variables. The cases say what they need.
    type Var<T>;
    type Transaction<'t>;

    /// Returned by an operation after which the closure must return.
    type Abort;

    fn var<T: Value>(value: T) -> Self::Var<T>;

    /// Reads a variable.
    fn with<T: Value, R>(
        transaction: &mut Self::Transaction<'_>,
        var: &Self::Var<T>,
        f: impl FnOnce(&T) -> R,
    ) -> Step<Self, R>
    where
        Self: Sized;

    fn write<T: Value>(
        transaction: &mut Self::Transaction<'_>,
        var: &Self::Var<T>,
        value: T,
    ) -> Step<Self, ()>
    where
        Self: Sized;

    /// Reads and writes a variable.
    fn modify<T: Value, R>(
        transaction: &mut Self::Transaction<'_>,
        var: &Self::Var<T>,
        f: impl FnOnce(&mut T) -> R,
    ) -> Step<Self, R>
    where
        Self: Sized;

    /// Ends the attempt. The next one begins once a variable that was read has been written.
    fn retry<R>(transaction: &mut Self::Transaction<'_>) -> Step<Self, R>
    where
        Self: Sized;

    /// Runs a transaction until it has been committed.
    fn atomically<R, F>(f: F) -> impl Future<Output = R> + Send
    where
        Self: Sized,
        R: Send,
        F: Fn(&mut Self::Transaction<'_>) -> Step<Self, R> + Send + Sync;
}
