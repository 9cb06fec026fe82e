//! The examples, run as users run them.

#[path = "../common/mod.rs"]
mod common;

mod chat;
mod color_picture;
mod commit;
mod deadlines;
mod experiments;
mod fibonacci;
mod guide;
mod lookup;
mod oracle;
mod philosophers;
mod proxy;
mod quotes;
mod scan;
mod simulate;
mod supervise;
mod tickets;
mod todo;
mod webproxy;
