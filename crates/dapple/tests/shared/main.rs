//! `Shared`, `together` and `SharedMap`.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/scope.rs"]
mod scope_common;
#[path = "../common/shared.rs"]
mod shared_common;
#[path = "../common/shared_map.rs"]
mod shared_map_common;

mod basics;
mod exact;
mod fair;
mod faults;
mod forgotten;
mod map;
mod map_changes;
mod map_misuse;
mod map_stress;
mod misuse;
mod on_the_spot;
mod stress;
mod when;
mod when_fair;
mod when_random;
