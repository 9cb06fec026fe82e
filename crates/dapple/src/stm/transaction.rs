//! `Transaction`: what a closure can do with transactional variables.
//!
//! # Invariants
//!
//! * **BRANDED-BY-ATTEMPT**: the caller of the closure chooses the lifetime `'tx`, and the closure must compile for any
//!   choice. So no reference with that lifetime outlives the closure, after which the log ends.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use super::Abort;
use super::drops::{drop_all, retire_cells};
use super::local::{REALM, TxWorld};
use super::log::{Found, KEEPS, Poisoned, TxLog, TxState};
use super::parking::Parked;
use super::realm::Retired;
use super::run_alone::Alone;
use super::tvar::TVar;
use super::value::{self, is_in_place};
use crate::cancel::wait::wake;
use crate::task::guarded::{GuardedWaker, guarded};
use crate::world;

/// A running transaction, as the closure of [`atomically`](super::atomically) gets it.
///
/// All its operations return [`Abort`] once the transaction cannot go on: another one has written a variable that this
/// one has read, or [`retry`](Self::retry) was called. Return that error from the closure, usually by `?`: the closure is
/// run again when another run may succeed. A closure that ignores the error gets it again from each later operation, and is
/// run again all the same.
///
/// All values that a transaction reads were in memory at one moment, also if the transaction will be aborted.
pub struct Transaction<'tx> {
    /// Given back when the transaction ends.
    log: ManuallyDrop<Box<TxLog>>,
    world: TxWorld,
    /// Invariant. BRANDED-BY-ATTEMPT
    attempt: PhantomData<fn(&'tx ()) -> &'tx ()>,
    /// Not to be sent.
    thread: PhantomData<*const ()>,
}

impl From<Poisoned> for Abort {
    #[inline]
    fn from(_: Poisoned) -> Abort {
        Abort(())
    }
}

impl<'tx> Transaction<'tx> {
    #[inline]
    pub(super) fn begin(is_alone: bool) -> Transaction<'tx> {
        let world = TxWorld::current();
        let mut log = world.take_log();
        world::pause();
        log.begin(&REALM, is_alone);
        Transaction { log: ManuallyDrop::new(log), world, attempt: PhantomData, thread: PhantomData }
    }

    /// Returns a clone of the value of a variable, as this transaction sees it: its own writes included. To read a large
    /// value without a clone, use [`with`](Self::with) or [`snapshot`](Self::snapshot).
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    #[inline]
    pub fn read<T: Clone + Send + Sync + 'static>(&mut self, var: &TVar<T>) -> Result<T, Abort> {
        self.with(var, T::clone)
    }

    /// Calls `f` with the value of a variable, which need not be cloned.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted: `f` has not run.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::stm::{TVar, atomically};
    ///
    /// dapple::run(async {
    ///     let names = TVar::new(vec!["ada", "grace"]);
    ///     assert_eq!(atomically(|tx| tx.with(&names, |names| names.len())).await, Ok(2));
    /// });
    /// ```
    ///
    /// The value does not leave the closure:
    ///
    /// ```compile_fail
    /// use dapple::stm::{TVar, atomically};
    ///
    /// let name = TVar::new(String::from("kept"));
    /// dapple::run(async { atomically(|tx| tx.with(&name, |name| name)).await }).unwrap();
    /// ```
    ///
    /// ```
    /// use dapple::stm::{TVar, atomically};
    ///
    /// let name = TVar::new(String::from("kept"));
    /// dapple::run(async { atomically(|tx| tx.with(&name, |name| name.clone())).await }).unwrap();
    /// ```
    #[inline]
    pub fn with<T: Send + Sync + 'static, R>(
        &mut self,
        var: &TVar<T>,
        f: impl FnOnce(&T) -> R,
    ) -> Result<R, Abort> {
        let bits = match self.log.find(&REALM, var.cell_ref())? {
            Found::Committed(bits) => bits,
            Found::Own(at) => self.log.writes[at].value,
        };
        // SAFETY: the announcement keeps the value of the cell, or the log its pending value, which `f` cannot reach.
        // RETIRED-LATER, LOG-OWNS
        Ok(unsafe { value::with(bits, f) })
    }

    /// Returns a reference to the value of a variable, for the rest of this run of the closure.
    ///
    /// Use it to follow variables that are in the values of other variables, such as those of a list or a tree, without
    /// cloning the nodes on the way. If the transaction writes the variable later, the reference still shows the value from
    /// before. For numbers, [`read`](Self::read) is faster.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::stm::{TVar, atomically};
    ///
    /// struct Node {
    ///     value: u32,
    ///     next: TVar<Option<Box<Node>>>,
    /// }
    ///
    /// dapple::run(async {
    ///     let last = Node { value: 2, next: TVar::default() };
    ///     let list = TVar::new(Some(Box::new(Node { value: 1, next: TVar::new(Some(Box::new(last))) })));
    ///     let sum = atomically(|tx| {
    ///         let (mut sum, mut at) = (0, tx.get(&list)?);
    ///         while let Some(node) = at {
    ///             sum += node.value;
    ///             at = tx.get(&node.next)?;
    ///         }
    ///         Ok(sum)
    ///     });
    ///     assert_eq!(sum.await, Ok(3));
    /// });
    /// ```
    ///
    /// The reference does not leave the closure:
    ///
    /// ```compile_fail
    /// use dapple::stm::{TVar, atomically};
    ///
    /// let name = TVar::new(String::from("kept"));
    /// dapple::run(async { atomically(|tx| tx.get(&name)).await }).unwrap();
    /// ```
    ///
    /// ```
    /// use dapple::stm::{TVar, atomically};
    ///
    /// let name = TVar::new(String::from("kept"));
    /// dapple::run(async { atomically(|tx| Ok(tx.get(&name)?.len())).await }).unwrap();
    /// ```
    #[inline]
    pub fn get<T: Send + Sync + 'static>(&mut self, var: &TVar<T>) -> Result<&'tx T, Abort> {
        let bits = match self.log.find(&REALM, var.cell_ref())? {
            Found::Committed(bits) => bits,
            Found::Own(at) => {
                self.log.writes[at].is_lent = true; // LENT-STAYS
                self.log.writes[at].value
            }
        };
        let value: *const T = if is_in_place::<T>() {
            // SAFETY: as in `with`.
            let number = Arc::into_raw(unsafe { value::to_arc::<T>(bits) });
            self.log.keep(number.cast_mut().cast(), value::drop_arc::<T>);
            number
        } else {
            bits.cast()
        };
        // SAFETY: the announcement keeps the value of the cell, or the log its pending or kept value, until the closure has
        // returned. RETIRED-LATER, LENT-STAYS, BRANDED-BY-ATTEMPT
        Ok(unsafe { &*value })
    }

    /// Returns the value of a variable in an `Arc`, which outlives the transaction. Use it for large values: nothing is
    /// copied.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted.
    pub fn snapshot<T: Send + Sync + 'static>(&mut self, var: &TVar<T>) -> Result<Arc<T>, Abort> {
        let bits = match self.log.find(&REALM, var.cell_ref())? {
            Found::Committed(bits) => bits,
            Found::Own(at) => self.log.writes[at].value,
        };
        // SAFETY: as in `with`.
        Ok(unsafe { value::to_arc(bits) })
    }

    /// Writes a variable. Other transactions see the new value when this one commits, together with its other writes.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted: the value is dropped.
    #[inline]
    pub fn write<T: Send + Sync + 'static>(&mut self, var: &TVar<T>, value: T) -> Result<(), Abort> {
        let of = var.cell_ref();
        match self.log.find_own(of)? {
            None => self.log.push(of, value::to_bits(value)),
            Some(at) => self.replace::<T>(at, value),
        }
        Ok(())
    }

    fn replace<T: Send + Sync + 'static>(&mut self, at: usize, value: T) {
        let old = self.log.replace(at, value::to_bits(value));
        if let (Some(old), Some(kind)) = (old, value::kind::<T>()) {
            // SAFETY: it was the pending value, and is not lent. LOG-OWNS
            unsafe { (kind.drop_bits)(old) };
        }
    }

    /// Calls `f` with the value of a variable, to change it, and returns the result of `f`.
    ///
    /// # Errors
    ///
    /// If the transaction is aborted: `f` has not run.
    #[inline]
    pub fn modify<T: Clone + Send + Sync + 'static, R>(
        &mut self,
        var: &TVar<T>,
        f: impl FnOnce(&mut T) -> R,
    ) -> Result<R, Abort> {
        let of = var.cell_ref();
        match self.log.find(&REALM, of)? {
            Found::Committed(bits) => {
                // SAFETY: the announcement keeps the value. RETIRED-LATER
                let mut value = unsafe { value::with(bits, T::clone) };
                let result = f(&mut value);
                self.log.push(of, value::to_bits(value));
                Ok(result)
            }
            Found::Own(at) => Ok(self.modify_own(at, f)),
        }
    }

    fn modify_own<T: Clone + Send + Sync + 'static, R>(
        &mut self,
        at: usize,
        f: impl FnOnce(&mut T) -> R,
    ) -> R {
        let bits = self.log.writes[at].value;
        if !is_in_place::<T>() && self.log.is_changeable(at) {
            // SAFETY: it is the log's, and neither lent nor kept for another branch. LOG-OWNS, LENT-STAYS
            if let Some(value) = unsafe { value::get_mut(bits) } {
                return f(value);
            }
        }
        // SAFETY: as in `with`.
        let mut value = unsafe { value::with(bits, T::clone) };
        let result = f(&mut value);
        self.replace(at, value);
        result
    }

    /// Waits: undoes this run, lets the task sleep until one of the variables that the closure has read is written, and then
    /// runs the closure again. Use it when a condition does not hold yet.
    ///
    /// If the closure has read no variable, no write could wake it: [`atomically`](super::atomically) panics then.
    ///
    /// # Errors
    ///
    /// Always: return the error from the closure, and the task sleeps.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::stm::{TVar, atomically};
    ///
    /// dapple::run(async {
    ///     let jobs = TVar::new(Vec::new());
    ///     let worker = dapple::spawn({
    ///         let jobs = jobs.clone();
    ///         atomically(move |tx| match tx.modify(&jobs, Vec::pop)? {
    ///             Some(job) => Ok(job),
    ///             None => tx.retry(),
    ///         })
    ///     });
    ///     atomically(|tx| tx.modify(&jobs, |jobs| jobs.push(7))).await.unwrap();
    ///     assert_eq!(worker.await.unwrap(), Ok(7));
    /// });
    /// ```
    #[inline]
    pub fn retry<R>(&mut self) -> Result<R, Abort> {
        if self.log.state == TxState::Running {
            self.log.state = TxState::Retry;
        }
        Err(Abort(()))
    }

    /// Goes on if `condition` holds, and otherwise calls [`retry`](Self::retry), which waits.
    ///
    /// # Errors
    ///
    /// If the condition does not hold, or the transaction is aborted.
    #[inline]
    pub fn check(&mut self, condition: bool) -> Result<(), Abort> {
        if !condition || self.log.state != TxState::Running {
            return self.retry();
        }
        Ok(())
    }

    /// Runs `a`. If `a` calls [`retry`](Self::retry), undoes its writes and runs `b`. Use it to take the first of two
    /// alternatives that does not have to wait.
    ///
    /// If `b` calls `retry`, too, the task sleeps until a variable is written that `a` or `b` has read.
    ///
    /// # Errors
    ///
    /// If `b` retries, or the transaction is aborted.
    ///
    /// # Panics
    ///
    /// If `a` returns an [`Abort`] that no operation of this transaction has returned.
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::stm::{TVar, atomically};
    ///
    /// dapple::run(async {
    ///     let (fast, slow) = (TVar::new(None), TVar::new(Some("slow")));
    ///     let taken = atomically(|tx| {
    ///         tx.or_else(
    ///             |tx| tx.modify(&fast, Option::take)?.map_or_else(|| tx.retry(), Ok),
    ///             |tx| tx.modify(&slow, Option::take)?.map_or_else(|| tx.retry(), Ok),
    ///         )
    ///     });
    ///     assert_eq!(taken.await, Ok("slow"));
    /// });
    /// ```
    pub fn or_else<R>(
        &mut self,
        a: impl FnOnce(&mut Transaction<'tx>) -> Result<R, Abort>,
        b: impl FnOnce(&mut Transaction<'tx>) -> Result<R, Abort>,
    ) -> Result<R, Abort> {
        if self.log.state != TxState::Running {
            return Err(Abort(()));
        }
        let before = self.log.savepoint();
        let result = a(self);
        match self.log.state {
            TxState::Running => {
                assert!(result.is_ok(), "{STRAY}");
                self.log.merge(before);
                result
            }
            TxState::Conflict => Err(Abort(())),
            TxState::Retry => {
                let hooks = self.log.roll_back(before);
                self.log.state = TxState::Running;
                drop((result, hooks));
                b(self)
            }
        }
    }

    /// Calls `f` once the transaction has been committed. Use it for effects, such as sending a message, since the closure of
    /// a transaction may run several times.
    ///
    /// `f` is called once, on this thread, before `atomically` returns, and may begin other transactions. It is not called if
    /// this run of the closure, or the branch of [`or_else`](Self::or_else) that added it, is undone. Several calls are made
    /// in the order in which they were added. A panic in one of them goes on to the caller after the others were made; the
    /// commit stands.
    pub fn after_commit(&mut self, f: impl FnOnce() + 'static) {
        if self.log.state == TxState::Running {
            self.log.hooks.push(Box::new(f));
        }
    }

    /// Calls `f` with the value of the last commit, outside of any transaction.
    pub(super) fn look<T: Send + Sync + 'static, R>(var: &TVar<T>, f: impl FnOnce(&T) -> R) -> R {
        let mut tx = Transaction::begin(false);
        let bits = loop {
            match tx.log.read(&REALM, var.cell_ref()) {
                Ok(bits) => break bits,
                Err(_) => {
                    tx.log.state = TxState::Running; // the cell was locked, by one that may be waiting for this processor
                    std::thread::yield_now();
                }
            }
        };
        // SAFETY: the announcement keeps the value. RETIRED-LATER
        unsafe { value::with(bits, f) }
    }

    pub(super) fn state(&self) -> TxState {
        self.log.state
    }

    pub(super) fn has_read(&self) -> bool {
        !self.log.reads().is_empty()
    }

    /// Commits, lets others commit again, and does what comes after that. On a conflict the transaction is handed back.
    #[inline]
    pub(super) fn commit(mut self, alone: &mut Option<Alone<'_>>) -> Result<(), Self> {
        if self.log.commit(&REALM, self.world.run_alone()).is_err() {
            return Err(self);
        }
        *alone = None; // ALONE-IN-CLOSURE
        if self.log.hooks.is_empty() {
            drop(self); // wakes, and drops old values
        } else {
            self.end_with_calls();
        }
        Ok(())
    }

    /// Ends a transaction that was committed, and makes its calls.
    #[cold]
    fn end_with_calls(mut self) {
        let hooks = std::mem::take(&mut self.log.hooks);
        drop(self); // wakes, and drops old values
        call_all(hooks);
    }

    /// Ends a transaction that was not committed, and puts its values aside, to be dropped later. ALONE-IN-CLOSURE
    #[cold]
    pub(super) fn set_aside(mut self, later: &mut Leftovers) {
        self.log.discard();
        self.log.end(&REALM);
        later.retired.append(&mut self.log.retired);
        later.hooks.append(&mut self.log.hooks);
    }

    /// Ends the transaction, and parks the task until one of the variables is written that it has read. `None`: one of them
    /// has been written already.
    #[cold]
    pub(super) fn park(mut self, waker: GuardedWaker) -> Option<Parked> {
        self.log.unite_reads();
        let mut dead = Vec::new();
        let parked = Parked::park(self.log.reads(), waker, &mut dead);
        drop(self);
        retire_cells(dead);
        parked
    }
}

/// Values and calls to be dropped, of transactions that were not committed.
#[derive(Default)]
pub(super) struct Leftovers {
    retired: Vec<Retired>,
    hooks: Vec<Box<dyn FnOnce()>>,
}

impl Drop for Leftovers {
    fn drop(&mut self) {
        drop_all(&mut self.retired);
        drop_hooks(std::mem::take(&mut self.hooks));
    }
}

/// Drops calls that are not made.
#[cold]
fn drop_hooks(hooks: Vec<Box<dyn FnOnce()>>) {
    for hook in hooks {
        guarded(|| drop(hook));
    }
}

/// An error that is not of this transaction.
pub(super) const STRAY: &str = "stm: the closure of a transaction returned an Abort that no operation of this transaction has returned: return the \
     error of the operation that failed, or call tx.retry()";

impl Drop for Transaction<'_> {
    #[inline]
    fn drop(&mut self) {
        let log = &mut **self.log;
        if log.has_pending() {
            log.discard();
        }
        log.end(&REALM);
        if !log.wakers.is_empty() {
            world::pause();
            log.wakers.drain(..).for_each(wake);
            log.wakers.shrink_to(KEEPS);
        }
        if !log.hooks.is_empty() {
            drop_hooks(std::mem::take(&mut log.hooks));
        }
        if !log.retired.is_empty() {
            drop_all(&mut log.retired);
            log.retired.shrink_to(KEEPS);
        }
        // SAFETY: the transaction is being dropped, and does not use it again.
        let log = unsafe { ManuallyDrop::take(&mut self.log) };
        self.world.give_log(log);
    }
}

/// Calls all, and goes on with the first panic.
#[cold]
fn call_all(hooks: Vec<Box<dyn FnOnce()>>) {
    let mut first = None;
    for hook in hooks {
        if let Err(payload) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(hook)) {
            match &first {
                None => first = Some(payload),
                Some(_) => {
                    guarded(|| drop(payload));
                }
            }
        }
    }
    if let Some(payload) = first {
        std::panic::resume_unwind(payload);
    }
}

impl std::fmt::Debug for Transaction<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transaction").field("state", &self.log.state).finish_non_exhaustive()
    }
}

// Pending values are dropped as those are that a commit has replaced.
impl TxLog {
    /// Moves the pending values to `retired`.
    fn discard(&mut self) {
        while let Some((bits, drop_bits)) = self.pop_pending() {
            // SAFETY: no transaction but this one has seen the value. LOG-OWNS
            self.retired.push(unsafe { Retired::new(bits, drop_bits, 0, super::cell::UNBOUND) });
        }
    }
}
