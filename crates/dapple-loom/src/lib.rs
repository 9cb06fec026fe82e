//! Models of the runtime's protocols, checked in every interleaving by loom: see `models`, and `ci/loom`.
//!
//! The protocols are the runtime's own files, compiled here once more with the atomics, locks and fences of this crate's
//! `prim`. So this tree has the module names of the runtime, and leaves out, or replaces, the modules that a model has no
//! use for. A replacement says less than the original: what a model proves, it proves of the files that are included.
//!
//! ```text
//! prim          loom's atomics and locks; parking
//! waker         task::waker: a task is its state word and the place where its thread sleeps
//! child_memory  the memory of children of scopes, which loom watches over
//! replaced      the rest: waits without cancellation and budget, no clock, no timers, no simulation
//! models        the models
//! ```
//!
//! Without `--cfg loom` the crate is empty, so that a build of the workspace does not build loom.

#![cfg(loom)]
#![allow(dead_code, unused_imports, reason = "the models do not use all of the included files")]
#![allow(missing_docs, unreachable_pub, reason = "nothing is public here")]
#![allow(unsafe_code, reason = "as in the included files; the models hand out rights to memory")]

mod child_memory;
#[cfg(test)]
mod models;
mod prim;
mod replaced;
mod waker;

pub(crate) use replaced::world;

#[path = "../../dapple/src/context/mod.rs"]
mod context;

#[path = "."]
mod task {
    pub(crate) use crate::replaced::cell;
    pub(crate) use crate::waker;

    #[path = "../../dapple/src/task/guarded.rs"]
    pub(crate) mod guarded;
    #[path = "../../dapple/src/task/inbox.rs"]
    pub(crate) mod inbox;
    #[path = "../../dapple/src/task/state.rs"]
    pub(crate) mod state;
}

#[path = "."]
mod cancel {
    pub(crate) use crate::replaced::{check, item, points, wait};

    #[path = "../../dapple/src/cancel/child_waker.rs"]
    pub(crate) mod child_waker;
    #[path = "../../dapple/src/cancel/frame.rs"]
    pub(crate) mod frame;
    #[path = "../../dapple/src/cancel/ready_list.rs"]
    pub(crate) mod ready_list;
    #[path = "../../dapple/src/cancel/scope.rs"]
    pub(crate) mod scope;
    #[path = "../../dapple/src/cancel/table.rs"]
    pub(crate) mod table;
}

#[path = "."]
mod driver {
    #[path = "../../dapple/src/driver/clock.rs"]
    pub(crate) mod clock;
    #[path = "../../dapple/src/driver/readiness.rs"]
    pub(crate) mod readiness;
    #[path = "../../dapple/src/driver/timers.rs"]
    pub(crate) mod timers;
    #[path = "../../dapple/src/driver/wakeup.rs"]
    pub(crate) mod wakeup;
    #[path = "../../dapple/src/driver/wheel.rs"]
    mod wheel;
}

#[path = "."]
mod sched {
    #[path = "../../dapple/src/sched/idle.rs"]
    pub(crate) mod idle;
    #[path = "../../dapple/src/sched/run_queue.rs"]
    pub(crate) mod run_queue;
    #[path = "../../dapple/src/sched/slot_owner.rs"]
    pub(crate) mod slot_owner;
}

#[path = "."]
mod waitlist {
    #[path = "../../dapple/src/waitlist/exchange.rs"]
    pub(crate) mod exchange;
    #[path = "../../dapple/src/waitlist/permits.rs"]
    pub(crate) mod permits;
    #[path = "../../dapple/src/waitlist/threads.rs"]
    mod threads;
    #[path = "../../dapple/src/waitlist/wait.rs"]
    pub(crate) mod wait;
    #[path = "../../dapple/src/waitlist/wait_queue.rs"]
    pub(crate) mod wait_queue;
}

#[path = "."]
mod channel {
    #[path = "."]
    pub(crate) mod oneshot {
        #[path = "../../dapple/src/channel/oneshot/word.rs"]
        pub(crate) mod word;
    }
}

#[path = "."]
mod shared {
    pub(crate) use crate::replaced::retry_timer;

    #[path = "../../dapple/src/shared/access_lock.rs"]
    pub(crate) mod access_lock;
    #[path = "../../dapple/src/shared/reader_slots.rs"]
    pub(crate) mod reader_slots;
    #[path = "../../dapple/src/shared/watch_list.rs"]
    pub(crate) mod watch_list;
}

#[path = "."]
mod stm {
    #[path = "../../dapple/src/stm/cell.rs"]
    pub(crate) mod cell;
    #[path = "../../dapple/src/stm/log.rs"]
    pub(crate) mod log;
    #[path = "../../dapple/src/stm/parking.rs"]
    pub(crate) mod parking;
    #[path = "../../dapple/src/stm/realm.rs"]
    pub(crate) mod realm;
    #[path = "../../dapple/src/stm/run_alone.rs"]
    pub(crate) mod run_alone;

    /// In a model each cell is kept by the model.
    fn retire_cells(cells: Vec<cell::CellRef>) {
        assert!(cells.is_empty());
    }
}
