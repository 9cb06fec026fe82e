//! Simulations: seeds, the network, planted bugs, and waits that are cancelled everywhere.

#[path = "../common/mod.rs"]
mod common;

mod children;

mod attribute;
mod basics;
mod cancel_everywhere;
mod cancel_everywhere_edges;
mod explore;
mod net;
mod net_real;
mod outside;
mod planted;
