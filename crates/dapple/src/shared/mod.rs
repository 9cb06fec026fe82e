//! State that any task can reach: [`Shared`], several of them at once ([`together`]), and a map
//! ([`SharedMap`]).
//!
//! Closures come to the state; the state never goes across an await. So whoever has it is running, and will
//! soon be done; whoever waits has nothing. There is no cycle of waiting, and nothing to poison.
//!
//! # Inside
//!
//! ```text
//! slots     where readers announce themselves, each in a cache line of their thread
//! gate      who may be in: permits and slots, in one protocol; alarm: who waits looks again
//! state     Shared: a gate, a value, a name
//! access    what can be asked of a state: to read it, or to write it
//! wait      the futures of read and write
//! together  several states, all at once: a tuple of them; all: a slice
//! when      together, once a condition holds; watch_list: those who wait for a write
//! map       SharedMap
//! ```

#[cfg(not(loom))]
mod access;
pub(crate) mod access_lock;
#[cfg(not(loom))]
mod futures;
#[cfg(not(loom))]
mod map;
pub(crate) mod reader_slots;
pub(crate) mod retry_timer;
#[cfg(not(loom))]
#[expect(clippy::module_inception, reason = "the file is about `Shared` itself")]
mod shared;
#[cfg(not(loom))]
mod together;
#[cfg(not(loom))]
mod together_all;
pub(crate) mod watch_list;
#[cfg(not(loom))]
mod when;

#[cfg(not(loom))]
pub use {
    access::{Access, Reading, Writing},
    futures::{Read, Write},
    map::{GetOrInsert, GetOrTryInsert, KeyHasher, MapHasher, SharedMap},
    shared::{Busy, Shared},
    together::{Accesses, Together, together},
    together_all::{TogetherAll, together_all},
    when::{When, when},
};
