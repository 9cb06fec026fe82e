//! The scheduler: workers, their queues, who sleeps, and what happens when they leave.
//!
//! ```text
//! ring      a worker's run queue; thieves take half of it
//! injector  the shared line: from outside, and what does not fit into the rings
//! idle      who sleeps, and whom to wake
//! worker    what to run next; monitor: notices a worker that does not get on
//! ```
//!
//! # Invariants
//!
//! * **ONE-DRIVER**: a worker is driven by one thread, from `drive` to its end.
//! * **LAST-OUT**: the last driver to leave closes the scheduler: from then on whatever becomes
//!   runnable is ended on the spot, one after the other, by whoever brings it.

pub(crate) mod idle;
#[cfg(not(loom))]
mod injector;
#[cfg(not(loom))]
mod metrics;
#[cfg(not(loom))]
mod monitor;
pub(crate) mod ring;
#[cfg(not(loom))]
mod worker;

#[cfg(not(loom))]
pub use metrics::{Metrics, WorkerMetrics};
#[cfg(not(loom))]
pub(crate) use scheduler::Sched;

#[cfg(not(loom))]
mod scheduler;
