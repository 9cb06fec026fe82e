//! Locks and signals for tasks: [`Mutex`], [`RwLock`], [`Condvar`], [`Semaphore`], [`Notify`], [`MVar`], [`Barrier`],
//! [`OnceCell`].
//!
//! They work in any task of any runtime, and on any executor. The methods with `blocking` in their names are
//! for threads that run no tasks. All of them keep the same promises:
//!
//! * Nothing is lost when a wait is dropped or cancelled: a permit that was not taken stays free, and a
//!   wake-up goes to the next waiter.
//! * A released permit stays free until a waiter is polled and takes it. So a future that is leaked, or never
//!   polled again, delays no later caller.
//! * Waiters are served in order. A caller that arrives while others wait yields to them once.

mod barrier;
mod condvar;
mod mutex;
mod mvar;
mod notify;
mod once_cell;
mod rwlock;
mod semaphore;

pub use {
    barrier::{Barrier, BarrierPass, BarrierWait},
    condvar::Condvar,
    mutex::{Mutex, MutexGuard, OwnedMutexGuard, TryLockError},
    mvar::{MVar, PutError},
    notify::{Notified, Notify},
    once_cell::{OnceCell, SetError},
    rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard},
    semaphore::{AcquireError, OwnedSemaphorePermit, Semaphore, SemaphorePermit, TryAcquireError},
};
