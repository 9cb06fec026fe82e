//! Files, through a ring and through the pool.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/fs.rs"]
mod fs_common;
#[macro_use]
#[path = "../common/pin.rs"]
mod pin;

mod cancel;
mod edges;
mod fair;
mod file;
mod names;
mod promised;
mod room;
mod send_file;
mod shutdown;
mod whole;
