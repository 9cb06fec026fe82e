//! Transactions over variables: `stm`.

#[path = "../common/mod.rs"]
mod common;

mod basics;
mod contention;
mod drops;
mod misuse;
mod simulated;
mod waits;
