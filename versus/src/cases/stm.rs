//! `stm`: transactions, against fast-stm on threads and async-stm on tokio.
//!
//! The transactions are written once, generic over the memory ([`crate::stms`]). Where no transaction waits, Dapple and tokio
//! share the work among 64 tasks on two workers, fast-stm among two threads. Each case checks what must hold in the end, on all
//! sides: a transaction that saw or left something wrong ends the run. `ghc` is GHC's own STM, in a program of its own
//! (`versus/ghc`), a reference; its columns are empty where there is no compiler.

mod bank;
mod ghc;
mod hot;
mod list;
pub(super) mod parked;
mod queue;

use crate::contest::{Contest, Entry, Role};
use crate::sides::{Dapple, Threads, Tokio};
use crate::work::{self, Work};

pub(crate) fn contests() -> Vec<Contest> {
    vec![bank::contest(), list::contest(), queue::contest(), hot::contest(), parked::contest()]
}

/// The contest of a case, given its work on each memory.
fn contest<D: Work, F: Work, A: Work>(name: &'static str, about: &'static str) -> Contest {
    let entries: Vec<Entry> = vec![
        work::contended_entry::<Dapple, D>("dapple", Role::Ours),
        work::contended_entry::<Threads, F>("fast-stm", Role::Rival),
        work::contended_entry::<Tokio, A>("async-stm", Role::Rival),
        ghc::entry(name, A::BATCHES * A::OPERATIONS),
    ];
    work::contended(name, about, entries)
}
