//! Lists of waiters, of which locks, channels, [`Shared`](crate::Shared) and others are built.
//!
//! ```text
//! wait        how a wait begins, rests and ends; wakers on their way out of a lock
//! threads     a thread that waits
//! wait_queue  waiters in order, and which of them have been woken
//! wait_list   waiters for a condition
//! permits     a number and a queue of waiters: semaphore, mutex, read-write lock
//! ```

pub(crate) mod permits;
#[cfg(not(loom))]
mod threads;
pub(crate) mod wait;
#[cfg(not(loom))]
pub(crate) mod wait_list;
pub(crate) mod wait_queue;
