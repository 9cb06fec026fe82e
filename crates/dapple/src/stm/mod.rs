//! Transactions over variables in memory (STM): [`TVar`] and [`atomically`].
//!
//! A transaction reads and writes any number of variables, and other tasks see all of its writes at one moment. It takes no
//! lock that could be forgotten or taken in the wrong order. It composes: a function that takes a [`Transaction`] can be a
//! part of any other transaction. And it waits: [`Transaction::retry`] sleeps until one of the variables that were read is
//! written, by whichever transaction.
//!
//! ```
//! use dapple::stm::{Abort, TVar, Transaction, atomically};
//!
//! fn withdraw(tx: &mut Transaction<'_>, account: &TVar<u64>, amount: u64) -> Result<(), Abort> {
//!     let balance = tx.read(account)?;
//!     tx.check(balance >= amount)?; // sleeps until there is enough
//!     tx.write(account, balance - amount)
//! }
//!
//! dapple::run(async {
//!     let (ada, grace) = (TVar::new(0), TVar::new(0));
//!     let rent = dapple::spawn({
//!         let (ada, grace) = (ada.clone(), grace.clone());
//!         atomically(move |tx| {
//!             withdraw(tx, &ada, 70)?;
//!             tx.modify(&grace, |balance| *balance += 70)
//!         })
//!     });
//!     atomically(|tx| tx.write(&ada, 100)).await.unwrap();
//!     rent.await.unwrap().unwrap();
//!     assert_eq!((ada.load(), grace.load()), (30, 70));
//! });
//! ```
//!
//! # Rules for the closure
//!
//! * **It may run several times.** So it changes only its variables, through the transaction: it sends no message, writes no
//!   file, and increments no counter elsewhere. Put such effects into [`Transaction::after_commit`], or after the `await`.
//! * **It returns the errors of its operations**, by `?`. An aborted transaction is run again by `atomically`.
//! * **It does not wait**, except by `retry`: it cannot await, and blocking calls, locks of [`Shared`](crate::Shared) and
//!   other transactions inside of it panic.
//! * **It keeps its captured values** for the next run: to give one away, clone it (`queue.push(tx, job.clone())`).
//! * **It may fail** with an error of its own, which undoes its writes: see [`atomically_or`].
//! * **It is short.** Short transactions abort a long one, until it runs alone and holds them up.
//!
//! # Which tool when
//!
//! * One state, or a few that are known beforehand, that everyone writes: [`Shared`](crate::Shared) and
//!   [`together`](crate::together()). Each closure runs once, in order, and a value need not be cloned to be changed.
//! * A condition over such states: [`shared::when`](crate::shared::when).
//! * Many small variables, of which each transaction touches a few that it finds on its way (accounts, nodes of a list or
//!   a graph, seats): transactions. Those that touch different variables do not conflict, a transaction that only reads
//!   conflicts with no other reader and aborts no writer, and [`Transaction::or_else`] composes alternatives.
//!
//! # Inside
//!
//! ```text
//! cell         a variable in memory: version, lock, value; value: numbers in place, others in an Arc
//! realm        the clock, announcements of running transactions, and old values that wait for them
//! log          reads and pending writes of a transaction, its checks and its commit
//! parking      tasks that sleep until a variable is written
//! run_alone    a transaction that was aborted many times
//! drops        dropping what no transaction uses any more
//! local        where a thread, or a simulation, has its log
//! tvar, transaction, run: what users see
//! tmvar, tqueue, tbounded_queue, tmap: structures of variables
//! witness      the order of commits, for tests
//! ```
//!
//! docs/design/stm.md argues why this is right.

pub(crate) mod cell;
mod drops;
mod local;
pub(crate) mod log;
pub(crate) mod parking;
pub(crate) mod realm;
mod run;
pub(crate) mod run_alone;
mod tbounded_queue;
mod tmap;
mod tmvar;
mod tqueue;
mod transaction;
mod tvar;
mod value;
mod witness;

use drops::retire_cells;
pub use {
    run::{
        Atomically, AtomicallyOr, TryError, atomically, atomically_blocking, atomically_or, try_atomically,
    },
    tbounded_queue::TBoundedQueue,
    tmap::TMap,
    tmvar::TMVar,
    tqueue::TQueue,
    transaction::Transaction,
    tvar::TVar,
    witness::last_stamp,
};

/// Error of the operations of a [`Transaction`]: it was aborted, or has called [`Transaction::retry`]. Return it from the
/// closure, by `?`: the closure is run again when another run may succeed.
///
/// It is not a failure of the program, and a program cannot make one. Run a closure that may fail with an error of its own
/// by [`atomically_or`].
#[derive(Debug)]
pub struct Abort(());

impl std::fmt::Display for Abort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the transaction was aborted; its closure has to return this error, to be run again")
    }
}

impl std::error::Error for Abort {}

impl From<Abort> for std::io::Error {
    /// For closures that fail with an error of I/O: see [`atomically_or`]. No caller sees the error that this makes.
    fn from(abort: Abort) -> std::io::Error {
        std::io::Error::other(abort)
    }
}
