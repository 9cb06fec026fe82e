//! Simulations: seeds, the network, planted bugs, and waits that are cancelled everywhere.

#[path = "../common/mod.rs"]
mod common;

mod children;

mod attribute;
mod basics;
mod cancel_everywhere;
mod cancel_everywhere_edges;
mod cancel_everywhere_failures;
mod explore;
mod net;
mod net_cancel;
mod net_ends;
mod net_real;
mod net_streams;
mod outside;
mod planted;
