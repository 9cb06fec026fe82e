//! Everything that owns memory, in small tests: `ci/miri` runs this binary under Miri.

#[path = "../common/mod.rs"]
mod common;
#[expect(unsafe_code, reason = "makes wakers by hand")]
#[path = "../common/hostile.rs"]
mod hostile_common;
#[path = "../common/shared.rs"]
mod shared_common;
#[path = "../common/shared_map.rs"]
mod shared_map_common;

mod conditions;
mod event;
mod sched;
mod scope;
mod scope_ends;
mod shared;
mod shared_map;
mod stm;
mod stm_structures;
mod tasks;
mod timers;
mod wakers;
