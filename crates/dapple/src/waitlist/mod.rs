//! Wait queues: the building blocks of locks, channels and [`Shared`](crate::Shared).
//!
//! ```text
//! wait        start, suspend and end a wait; wakers carried out of a lock
//! threads     blocking waits of threads that run no tasks
//! wait_queue  waiters in arrival order, and which of them have been woken
//! wait_list   waiters for a condition
//! exchange    values that are put and taken, with a wait queue for each side: mpmc channels, MVar
//! permits     a permit count with a wait queue: semaphore, mutex, read-write lock
//! ```

pub(crate) mod exchange;
pub(crate) mod permits;
mod threads;
pub(crate) mod wait;
pub(crate) mod wait_list;
pub(crate) mod wait_queue;
