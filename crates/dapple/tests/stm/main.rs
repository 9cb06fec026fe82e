//! Transactions over variables: `stm`.

#[path = "../common/mod.rs"]
mod common;

mod basics;
mod contention;
mod drops;
mod history;
mod history_random;
mod history_tokens;
mod map;
mod misuse;
mod simulated;
mod structures;
mod waits;
