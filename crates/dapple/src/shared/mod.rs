//! State shared between tasks: [`Shared`], several states at once ([`together`]), and a map ([`SharedMap`]).
//!
//! Callers pass closures to the state; no guard lives across an await. So the holder of a state is always
//! running and leaves soon, and a waiter holds nothing. Waits cannot form a cycle, so there is no deadlock,
//! and there is no poisoning.
//!
//! # Inside
//!
//! ```text
//! reader_slots  where readers register, each in a cache line of its thread; own_slots: those of this thread
//! access_lock   admits readers and writers: permits and reader slots in one protocol
//! retry_timer   makes waiters re-check
//! shared        Shared: an access lock, a value, a name
//! access        Reading and Writing: requests for access to a state
//! futures       futures of read and write
//! together      several states at once, as a tuple; together_all: as a slice
//! when          together, once a condition holds; watch_list: the waiters for a write
//! map           SharedMap
//! ```

mod access;
pub(crate) mod access_lock;
mod futures;
mod map;
mod own_slots;
pub(crate) mod reader_slots;
pub(crate) mod retry_timer;
#[expect(clippy::module_inception, reason = "the file is about `Shared` itself")]
mod shared;
mod together;
mod together_all;
pub(crate) mod watch_list;
mod when;

pub use {
    access::{Access, Reading, Writing},
    futures::{ReadFuture, WriteFuture},
    map::{GetOrInsert, GetOrTryInsert, KeyHasher, MapHasher, SharedMap},
    shared::{Busy, Shared},
    together::{Accesses, Together, together},
    together_all::{TogetherAll, together_all},
    when::{When, when},
};
