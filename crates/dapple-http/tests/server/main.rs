//! Connections of any kind, from their first byte to the end of the server.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/identity.rs"]
mod identity;

mod cancel;
mod encrypted;
mod encrypted_streams;
mod first_bytes;
mod half_close;
mod limits;
mod own_answers;
mod send_sync;
mod serve;
mod shutdown;
mod simulated;
mod slow;
mod state;
mod strict;
mod strict_pipelined;
mod upgrade;
