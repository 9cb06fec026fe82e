//! Running transactions: the futures of `atomically` and `atomically_or`, and the forms for threads outside.
//!
//! # Invariants
//!
//! * **ALONE-IN-CLOSURE**: while a transaction runs alone, its thread runs no foreign code but its closure. Calls after the
//!   commit and destructors of values wait until others may commit again: they may begin transactions themselves.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use super::Abort;
use super::local::TxWorld;
use super::log::TxState;
use super::parking::Parked;
use super::run_alone::Alone;
use super::transaction::{Leftovers, STRAY, Transaction};
use crate::Cancelled;
use crate::context::{closure, with_context};
use crate::task::guarded::GuardedWaker;
use crate::waitlist::wait::{Wait, block_on};
use crate::world;

/// A transaction that was aborted so often runs alone.
const ALONE_AFTER: u32 = 16;
/// Conflicts in one poll after which other tasks may go first.
const YIELD_AFTER: u32 = 8;
/// As `YIELD_AFTER`, of a transaction that runs alone.
const YIELD_ALONE_AFTER: u32 = 256;

/// Completes "waits for".
const PARKED: &str = "a variable to be written that its transaction has read";
const IN_THE_WAY: &str = "transactions that are in the way of its own";

/// How one run of a closure has ended. A transaction that was not committed is still to be dropped.
enum Attempt<'tx, R, E> {
    Committed(R),
    Failed(Transaction<'tx>, E),
    Retry(Transaction<'tx>),
    Conflict(Transaction<'tx>),
}

/// Lets other transactions commit again if the closure unwinds, before its pending values are dropped. ALONE-IN-CLOSURE
struct EndsAlone<'a, 'b>(&'a mut Option<Alone<'b>>);

impl Drop for EndsAlone<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.is_some() && std::thread::panicking() {
            *self.0 = None;
        }
    }
}

/// Runs the closure once: alone, if it has the right to.
#[inline]
fn attempt<'tx, R, E>(
    alone: &mut Option<Alone<'_>>,
    f: impl FnOnce(&mut Transaction<'tx>) -> Result<R, E>,
) -> Attempt<'tx, R, E> {
    let mut tx = Transaction::begin(alone.is_some());
    let ends = EndsAlone(alone);
    let result = inside(|| f(&mut tx));
    match (tx.state(), result) {
        (TxState::Running, Ok(result)) => match tx.commit(ends.0) {
            Ok(()) => Attempt::Committed(result),
            Err(tx) => Attempt::Conflict(tx),
        },
        (TxState::Running, Err(error)) => Attempt::Failed(tx, error),
        (TxState::Conflict, _) => Attempt::Conflict(tx),
        (TxState::Retry, _) => Attempt::Retry(tx),
    }
}

/// Calls `f`, in which nothing may wait and no other transaction may begin.
#[inline]
fn inside<R>(f: impl FnOnce() -> R) -> R {
    struct LeaveTransaction;
    impl Drop for LeaveTransaction {
        #[inline]
        fn drop(&mut self) {
            with_context(|context| context.set_in_transaction(false));
        }
    }
    with_context(|context| context.set_in_transaction(true));
    let _leave = LeaveTransaction;
    closure::enter(&"a transaction", f)
}

/// Panics if this thread is in a transaction. `true`: it is, and it is panicking, so that a panic would end the process.
#[inline]
#[track_caller]
fn is_nested(what: &str) -> bool {
    with_context(|context| context.in_transaction()) && refuse_nested(what)
}

#[cold]
#[track_caller]
fn refuse_nested(what: &str) -> bool {
    assert!(
        std::thread::panicking(),
        "{what} inside of a transaction: transactions do not nest. Pass `tx` on to the function that is called, or begin the \
         other transaction in tx.after_commit"
    );
    true
}

/// A transaction that is tried until it is committed, parked in between.
#[derive(Default)]
struct TxRun {
    parked: Option<Parked>,
    wait: Wait,
    conflicts: u32,
    is_done: bool,
}

impl TxRun {
    fn poll<R, E>(
        &mut self,
        cx: &mut Context<'_>,
        what: &'static str,
        f: &mut impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Poll<Result<Result<R, E>, Cancelled>> {
        if is_nested(what) {
            return Poll::Ready(Err(Cancelled));
        }
        closure::assert_may_wait(&what);
        assert!(!self.is_done, "{what}: polled again after it was done");
        self.is_done = true; // also if a call after the commit panics
        let polled = self.poll_tries(cx, what, f);
        self.is_done = polled.is_ready();
        polled
    }

    #[inline]
    fn poll_tries<R, E>(
        &mut self,
        cx: &mut Context<'_>,
        what: &'static str,
        f: &mut impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Poll<Result<Result<R, E>, Cancelled>> {
        if let Err(cancelled) = ready!(self.wait.begin(cx)) {
            self.parked = None;
            return Poll::Ready(Err(cancelled));
        }
        if self.parked.is_some() {
            ready!(self.poll_parked(cx))?;
        }
        match attempt(&mut None, &mut *f) {
            Attempt::Committed(result) => {
                self.wait.end();
                Poll::Ready(Ok(Ok(result)))
            }
            other => self.poll_again(cx, what, other, f),
        }
    }

    /// Sleeps on, or goes on after a commit.
    #[cold]
    fn poll_parked(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Cancelled>> {
        let Some(parked) = &mut self.parked else { return Poll::Ready(Ok(())) };
        if !parked.is_woken() {
            if self.wait.is_cancelled() {
                self.parked = None;
                self.wait.end();
                return Poll::Ready(Err(Cancelled));
            }
            if parked.sleep_on(cx.waker()) {
                self.wait.rest(cx, &PARKED);
                return Poll::Pending;
            }
        }
        self.parked = None;
        Poll::Ready(Ok(()))
    }

    /// The first run in this poll has not committed.
    #[cold]
    fn poll_again<R, E>(
        &mut self,
        cx: &mut Context<'_>,
        what: &'static str,
        mut last: Attempt<'_, R, E>,
        f: &mut impl FnMut(&mut Transaction<'_>) -> Result<R, E>,
    ) -> Poll<Result<Result<R, E>, Cancelled>> {
        let tx_world = TxWorld::current();
        let mut later = Leftovers::default();
        let mut alone: Option<Alone<'_>> = None; // dropped before `later`. ALONE-IN-CLOSURE
        let mut conflicts = 0;
        loop {
            match last {
                Attempt::Committed(result) => {
                    self.wait.end();
                    return Poll::Ready(Ok(Ok(result)));
                }
                Attempt::Failed(tx, error) => {
                    drop(alone);
                    drop(tx);
                    self.wait.end();
                    return Poll::Ready(Ok(Err(error)));
                }
                Attempt::Retry(tx) => {
                    alone = None;
                    assert!(
                        tx.has_read(),
                        "{what}: the closure has called retry and has read no variable: it would wait for ever, as no write \
                         can wake it. Read the variables that the condition depends on in the transaction"
                    );
                    if self.wait.is_cancelled() {
                        drop(tx);
                        self.wait.end();
                        return Poll::Ready(Err(Cancelled));
                    }
                    self.conflicts = 0;
                    if let Some(parked) = tx.park(GuardedWaker::of(cx.waker())) {
                        self.parked = Some(parked);
                        self.wait.rest(cx, &PARKED);
                        return Poll::Pending;
                    }
                }
                Attempt::Conflict(tx) => {
                    self.conflicts = self.conflicts.saturating_add(1);
                    if alone.is_some() {
                        tx.set_aside(&mut later);
                    }
                }
            }
            conflicts += 1;
            if self.wait.is_cancelled() {
                self.wait.end();
                return Poll::Ready(Err(Cancelled));
            }
            if alone.is_none() && self.conflicts >= ALONE_AFTER {
                alone = tx_world.run_alone().try_take();
            }
            let yield_after = if alone.is_some() { YIELD_ALONE_AFTER } else { YIELD_AFTER };
            if conflicts >= yield_after {
                drop(alone);
                cx.waker().wake_by_ref();
                self.wait.rest(cx, &IN_THE_WAY);
                return Poll::Pending;
            }
            back_off(conflicts);
            last = attempt(&mut alone, &mut *f);
        }
    }
}

/// Gives the transaction that is in the way time to end.
fn back_off(conflicts: u32) {
    world::look_out(1 << conflicts.min(7));
    if conflicts > YIELD_AFTER && !world::is_simulated() {
        std::thread::yield_now();
    }
}

/// Runs `f` as a transaction: all its reads and writes happen at one moment, or none of them.
///
/// `f` is run again if another transaction has written a variable that it has read. If it calls
/// [`tx.retry()`](Transaction::retry), the task sleeps until one of these variables is written. So `f` may run several
/// times: it has no effect but by its transaction, or in [`tx.after_commit`](Transaction::after_commit).
///
/// A transaction that was aborted 16 times runs alone: other transactions wait until it has been committed.
///
/// # Errors
///
/// If the wait was cancelled: nothing has been written.
///
/// # Panics
///
/// If `f` does: nothing has been written. Also if `f` calls `retry` before it has read a variable, if it returns an
/// [`Abort`] of another transaction, and when it is polled in a closure that must not wait: another transaction, or the
/// closure of a [`Shared`](crate::Shared).
///
/// # Cancellation
///
/// *Dropped early*: **clean**.
/// *Scope cancelled*: returns [`Cancelled`], and nothing has been written; or the result, if the transaction could be
/// committed when it was polled again.
///
/// # Examples
///
/// ```
/// use dapple::stm::{TVar, atomically};
///
/// dapple::run(async {
///     let (stock, sold) = (TVar::new(0), TVar::new(0));
///     let buyer = dapple::spawn({
///         let (stock, sold) = (stock.clone(), sold.clone());
///         atomically(move |tx| {
///             let left = tx.read(&stock)?;
///             tx.check(left >= 3)?;
///             tx.write(&stock, left - 3)?;
///             tx.modify(&sold, |sold| *sold += 3)
///         })
///     });
///     atomically(|tx| tx.modify(&stock, |stock| *stock += 5)).await.unwrap();
///     buyer.await.unwrap().unwrap();
///     assert_eq!((stock.load(), sold.load()), (2, 3));
/// });
/// ```
///
/// A closure cannot await:
///
/// ```compile_fail,E0728
/// use dapple::stm::{TVar, atomically};
///
/// let count = TVar::new(0);
/// dapple::run(async { atomically(|tx| { dapple::task::yield_now().await; tx.read(&count) }).await });
/// ```
pub fn atomically<R, F: FnMut(&mut Transaction<'_>) -> Result<R, Abort>>(f: F) -> Atomically<F> {
    Atomically { f, run: TxRun::default() }
}

/// The future of [`atomically`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Atomically<F> {
    f: F,
    run: TxRun,
}

// The closure is called in place, and never pinned.
impl<F> Unpin for Atomically<F> {}

impl<R, F: FnMut(&mut Transaction<'_>) -> Result<R, Abort>> Future for Atomically<F> {
    type Output = Result<R, Cancelled>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Atomically { f, run } = self.get_mut();
        run.poll(cx, "stm::atomically", f).map_ok(|result| result.unwrap_or_else(|_: Abort| stray()))
    }
}

impl<F> fmt::Debug for Atomically<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Atomically").field("parked", &self.run.parked.is_some()).finish_non_exhaustive()
    }
}

#[cold]
fn stray() -> ! {
    panic!("{STRAY}");
}

/// As [`atomically`], for a closure with errors of its own: if it returns one, its writes are undone, and the error is
/// returned.
///
/// `E: From<Abort>` lets the closure use `?` on the operations of the transaction. [`std::io::Error`] and
/// `Box<dyn Error + Send + Sync>` have it; your own type needs a line for it as below. Whether the transaction was aborted is
/// known to the transaction itself: if it was, the error that the closure returns is dropped, and the closure is run again.
///
/// # Errors
///
/// The outer one, if the wait was cancelled: nothing has been written. The inner one is that of the closure.
///
/// # Panics
///
/// As [`atomically`].
///
/// # Cancellation
///
/// *Dropped early*: **clean**.
/// *Scope cancelled*: returns [`Cancelled`], and nothing has been written; or the result, if the transaction could be
/// committed when it was polled again.
///
/// # Examples
///
/// ```
/// use dapple::stm::{Abort, TVar, atomically_or};
///
/// #[derive(Debug, PartialEq)]
/// struct TooLittle;
/// impl From<Abort> for TooLittle {
///     fn from(_: Abort) -> TooLittle {
///         TooLittle // never seen: the closure is run again
///     }
/// }
///
/// dapple::run(async {
///     let (from, to) = (TVar::new(10), TVar::new(0));
///     let transfer = |amount| {
///         let (from, to) = (from.clone(), to.clone());
///         atomically_or(move |tx| {
///             tx.modify(&to, |to| *to += amount)?;
///             let left = tx.read(&from)?;
///             if left < amount {
///                 return Err(TooLittle); // `to` is as it was
///             }
///             Ok(tx.write(&from, left - amount)?)
///         })
///     };
///     assert_eq!(transfer(7).await, Ok(Ok(())));
///     assert_eq!(transfer(7).await, Ok(Err(TooLittle)));
///     assert_eq!(to.load(), 7);
/// });
/// ```
pub fn atomically_or<R, E: From<Abort>, F: FnMut(&mut Transaction<'_>) -> Result<R, E>>(
    f: F,
) -> AtomicallyOr<F> {
    AtomicallyOr { f, run: TxRun::default() }
}

/// The future of [`atomically_or`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct AtomicallyOr<F> {
    f: F,
    run: TxRun,
}

// The closure is called in place, and never pinned.
impl<F> Unpin for AtomicallyOr<F> {}

impl<R, E, F: FnMut(&mut Transaction<'_>) -> Result<R, E>> Future for AtomicallyOr<F> {
    type Output = Result<Result<R, E>, Cancelled>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let AtomicallyOr { f, run } = self.get_mut();
        run.poll(cx, "stm::atomically_or", f)
    }
}

impl<F> fmt::Debug for AtomicallyOr<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtomicallyOr").field("parked", &self.run.parked.is_some()).finish_non_exhaustive()
    }
}

/// As [`atomically`], for threads that run no tasks: blocks the thread.
///
/// # Errors
///
/// If the call was cancelled in [`blocking`](crate::blocking()): nothing has been written. Also in a destructor that a panic
/// inside of a transaction runs, where a second panic would end the process.
///
/// # Panics
///
/// As [`atomically`], and on a thread that runs tasks.
///
/// # Examples
///
/// ```
/// use dapple::stm::{TVar, atomically_blocking};
///
/// let count = TVar::new(1);
/// assert_eq!(atomically_blocking(|tx| tx.modify(&count, |count| *count += 1)), Ok(()));
/// assert_eq!(count.load(), 2);
/// ```
#[track_caller]
pub fn atomically_blocking<R, F: FnMut(&mut Transaction<'_>) -> Result<R, Abort>>(
    f: F,
) -> Result<R, Cancelled> {
    const WHAT: &str = "stm::atomically_blocking";
    if is_nested(WHAT) {
        return Err(Cancelled);
    }
    block_on(WHAT, atomically(f))
}

/// Runs `f` as a transaction once, and never waits. It may be called anywhere but inside of another transaction.
///
/// # Errors
///
/// [`TryError::Retry`] if `f` has called [`retry`](Transaction::retry), [`TryError::Conflict`] if another transaction was
/// in the way. Nothing has been written. `Conflict` also in a destructor that a panic inside of a transaction runs, where a
/// second panic would end the process.
///
/// # Panics
///
/// If `f` does, if it returns an [`Abort`] of another transaction, and inside of another transaction.
///
/// # Examples
///
/// ```
/// use dapple::stm::{TVar, TryError, try_atomically};
///
/// let count = TVar::new(0);
/// assert_eq!(try_atomically(|tx| tx.modify(&count, |count| *count += 1)), Ok(()));
/// assert_eq!(try_atomically(|tx| tx.retry::<()>()), Err(TryError::Retry));
/// ```
#[track_caller]
pub fn try_atomically<R, F: FnOnce(&mut Transaction<'_>) -> Result<R, Abort>>(f: F) -> Result<R, TryError> {
    if is_nested("stm::try_atomically") {
        return Err(TryError::Conflict);
    }
    match attempt(&mut None, f) {
        Attempt::Committed(result) => Ok(result),
        Attempt::Failed(_, Abort(())) => stray(),
        Attempt::Retry(_) => Err(TryError::Retry),
        Attempt::Conflict(_) => Err(TryError::Conflict),
    }
}

/// Error of [`try_atomically`]: nothing has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TryError {
    /// The closure has called [`retry`](Transaction::retry): its condition does not hold now.
    Retry,
    /// Another transaction was in the way. A second try may succeed.
    Conflict,
}

impl fmt::Display for TryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryError::Retry => "the transaction waits for a variable to be written",
            TryError::Conflict => "another transaction was in the way; try again",
        })
    }
}

impl Error for TryError {}
