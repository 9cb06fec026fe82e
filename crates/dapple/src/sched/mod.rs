//! Scheduling settings for programs: the [`Priority`] of tasks and colors, and a [`Policy`], which is a program's own choice of
//! worker and order.
//!
//! # Inside
//!
//! Workers, their queues, how they sleep and are woken, and how they leave.
//!
//! ```text
//! run_queue    the run queue of a worker, from which others steal half
//! injector     the shared queue: runnables from outside, and those that do not fit into run queues
//! idle         which workers sleep, and which one to wake
//! ranks        lanes that are queued by priority
//! policy       the public trait; policy_queues: the queues of a runtime with a policy
//! worker       picks and runs the next runnable
//! scheduler    shared by all workers; wake_timer: how timers are entered
//! own_color    tasks with a color of their own; clocked: those that know when they were queued
//! worker_slot  replaces a stuck worker by a spare; slot_owner: which of the two owns the slot
//! monitor      notices stuck workers; stall_reports: counts and reports them
//! metrics      the counters of all of these, as a snapshot for users
//! ```
//!
//! # Invariants
//!
//! * **ONE-DRIVER**: a worker, also a spare, is driven by one thread, from `enter_worker` to its end.
//! * **LAST-OUT**: the last driving thread to leave closes the scheduler. From then on a thread that makes something
//!   runnable also ends it, one runnable after the other.

pub(crate) mod clocked;
pub(crate) mod idle;
mod injector;
pub(crate) mod metrics;
mod monitor;
pub(crate) mod own_color;
mod policy;
mod policy_queues;
mod ranks;
pub(crate) mod run_queue;
pub(crate) mod slot_owner;
mod stall_reports;
pub(crate) mod wake_timer;
mod worker;
mod worker_slot;

pub use crate::task::priority::Priority;
pub(crate) use policy::Chosen;
pub use policy::{
    FirstLanes, Home, LaneView, LongestLane, MOST_WEIGHED, Policy, ShortestQueue, WorkerView, Workers,
};
pub(crate) use scheduler::{Sched, SchedSettings};
pub(crate) use worker::drive::MainTurn;
// Facade: another path of the type, for programs that were written against the design.
#[doc(hidden)]
pub use crate::limit::Limit;

mod scheduler;
