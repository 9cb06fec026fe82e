//! Scopes: `finish` waits for all that was started in it, and `cancel` ends it, exactly.
//!
//! ```text
//! finish    the future of a scope: its body, and what was started in it
//! children  what was started: its memory (`child`), which is polled next (`ready`), its end
//! spawned   tasks that were spawned in a scope
//! started   the wait for what was started
//! shield    shield, or_cancelled
//! region    a scope without children; race, and timeout, which is `time::timeout`
//! suspend   from a callback to an await
//! ```
//!
//! How a wait learns that it is cancelled is in `cancel/frame.rs` and `cancel/item.rs`; how what was started
//! is woken, in `cancel/child_waker.rs`.

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
