//! Scopes (structured concurrency): [`finish`] waits for all children of a scope, and [`Scope::cancel`] cancels them
//! exactly.
//!
//! The functions are at the root of the crate, such as [`dapple::finish`](crate::finish); this module has their types.
//!
//! # Inside
//!
//! ```text
//! finish    the future of a scope: its body and its children
//! children  started children: memory (`child`), order of polls (`ready`), end
//! spawned   tasks spawned in a scope
//! started   the wait for a started child
//! shield    shield, or_cancelled
//! region    a scope without children; base of race, and of timeout, which is `time::timeout`
//! suspend   turns a callback into an await
//! ```
//!
//! `cancel/scope.rs` and `cancel/frame.rs` tell a wait that it is cancelled; `cancel/child_waker.rs` wakes
//! started children.

mod children;
mod finish;
#[cfg(doctest)]
mod misuse;
mod race;
mod region;
mod shield;
mod spawned;
mod started;
mod suspend;
mod timeout;

pub(crate) use children::drop_started;
pub use finish::{Canceller, Finish, FinishLocal, LocalScope, Scope, finish, finish_local};
pub use race::{Race, Racers, race};
pub use shield::{OrCancelled, Shield, or_cancelled, shield};
pub use started::Started;
pub use suspend::{Resume, Suspend, suspend};
pub use timeout::{Elapsed, Timeout, timeout};
