//! Ordinary protocols, cancelled at each of their waits: nothing is lost, whatever is cancelled, dropped or late.
//!
//! Each program uses `?` as users do, registers its invariants by `sim::check_after`, and is run by
//! `#[dapple::test(cancel_everywhere)]`.

mod channels;
mod conditions;
mod deadlines;
mod events;
mod ledger;
mod races;
mod requests;
mod scopes;
mod shared;
mod signals;
mod sockets;
mod stm;
mod stm_structures;
mod sync;

/// Any error, so that `?` works for all of them.
type Anything = Box<dyn std::error::Error + Send + Sync>;
