//! Cancellation: waits that can be cancelled, scopes that cancel them, and the budget of a poll.
//!
//! A cancel sets a flag, of a task or of a scope, and wakes the code inside. Every wait of the crate looks at the flags around
//! it when it is polled ([`wait`]), and returns [`Cancelled`] in place of its result. `docs/design/scopes.md` has the reasons.
//!
//! ```text
//! wait         what all waits share: how they begin, rest and end; the budget
//! check        whether the code that is polled here is cancelled
//! frame        the cancellation stack: scopes and shields around the code that is polled
//! scope        the counted part of a scope: its flag, and how its poller is woken
//! child_waker  the waker of a child of a scope;  ready_list: children that are to be polled
//! item         registrations of waits that a cancel has to wake;  table: where these are kept
//! grace        cancelled tasks that wait in nothing that could answer
//! join         the handle of a task: a wait for its output
//! points       the waits of a simulation, one of which is cancelled, dropped or held back
//! error        `Cancelled`
//! ```

pub(crate) mod check;
pub(crate) mod child_waker;
pub(crate) mod error;
pub(crate) mod frame;
pub(crate) mod grace;
pub(crate) mod item;
pub(crate) mod join;
pub(crate) mod points;
pub(crate) mod ready_list;
pub(crate) mod scope;
pub(crate) mod table;
pub(crate) mod wait;

pub use {
    error::{Cancelled, is_cancelled},
    join::{JoinError, JoinHandle},
};
