//! The scheduler, as far as a program may have a say in it: [`Priority`] and [`Policy`].
//!
//! # Inside
//!
//! Workers, their queues, who sleeps, and what happens when they leave.
//!
//! ```text
//! run_queue a worker's run queue; thieves take half of it
//! injector  the shared line: from outside, and what does not fit into the rings
//! idle      who sleeps, and whom to wake
//! ranks     what is more or less urgent than the ordinary
//! policy    what a program can change about the order; policy_queues: the queues of one that does
//! worker    what to run next
//! scheduler what workers share; wake_timer: how timers are entered
//! clocked   tasks that know since when they have been in line
//! worker_slot  which spare takes the place of a worker that is stuck; slot_owner: of the two, which has the slot;
//!              monitor: notices that it is stuck; stall_reports: counts and tells
//! ```
//!
//! # Invariants
//!
//! * **ONE-DRIVER**: a worker, a spare too, is driven by one thread, from `take_seat` to its end.
//! * **LAST-OUT**: the last driver to leave closes the scheduler: from then on whatever becomes
//!   runnable is ended on the spot, one after the other, by whoever brings it.

#[cfg(not(loom))]
pub(crate) mod clocked;
pub(crate) mod idle;
#[cfg(not(loom))]
mod injector;
#[cfg(not(loom))]
mod metrics;
#[cfg(not(loom))]
mod monitor;
#[cfg(not(loom))]
pub(crate) mod own_color;
#[cfg(not(loom))]
mod policy;
#[cfg(not(loom))]
mod policy_queues;
#[cfg(not(loom))]
mod ranks;
pub(crate) mod run_queue;
pub(crate) mod slot_owner;
#[cfg(not(loom))]
mod stall_reports;
#[cfg(not(loom))]
pub(crate) mod wake_timer;
#[cfg(not(loom))]
mod worker;
#[cfg(not(loom))]
mod worker_slot;

// Facade: limits, for users of the crate.
#[cfg(not(loom))]
pub use crate::limit::{AdmitError, Admitted, Limit, LimitCounts, Refuse, Refused};
#[cfg(not(loom))]
pub use crate::task::priority::Priority;
#[cfg(not(loom))]
pub(crate) use policy::Chosen;
#[cfg(not(loom))]
pub(crate) use scheduler::{MainTurn, Sched, SchedSettings};
#[cfg(not(loom))]
pub use {
    metrics::{Metrics, WorkerMetrics},
    policy::{
        FirstLanes, Home, LaneView, LongestLane, MOST_WEIGHED, Policy, ShortestQueue, WorkerView, Workers,
    },
};

#[cfg(not(loom))]
mod scheduler;
