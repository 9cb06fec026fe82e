//! Locks, semaphores, notifications and channels.

#[path = "../common/mod.rs"]
mod common;
#[expect(unsafe_code, reason = "makes wakers by hand")]
#[path = "../common/hostile.rs"]
mod hostile_common;
#[path = "../common/shared.rs"]
mod shared_common;

mod barrier;
mod broadcast;
mod broadcast_model;
mod condvar;
mod executors;
mod hostile_wakers;
mod hostile_wakers_conditions;
mod hostile_wakers_lost;
mod many_random;
mod mpmc;
mod mpsc;
mod mpsc_cancel;
mod mutex;
mod mvar;
mod notify;
mod once_cell;
mod oneshot;
mod rwlock;
mod semaphore;
mod watch;
