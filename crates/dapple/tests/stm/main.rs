//! Transactions over variables: `stm`.

#[path = "../common/mod.rs"]
mod common;

mod basics;
