//! Tasks: a future with a header in front, that is polled, woken, joined, cancelled and freed.
//!
//! [`spawn`](crate::spawn()) makes one; [`Builder`] makes one with a name or a color. Inside a task,
//! [`yield_now`] and [`yield_to`] give way to others, [`current`] says who one is, and a [`Local`]
//! is a value that all it calls can reach.
//!
//! # Inside
//!
//! A task knows nothing of who runs it. It is woken through its state word; whoever so comes to own
//! it hands a runnable to its home (the runtime as seen from here), and a worker sooner or later
//! steps it.
//!
//! ```text
//! state   who owns a task, who refers to it; every atomic step of its life
//! header  the 24 bytes in front of everything that runs, and the table of what differs
//! cell    header, join slot and future, as they lie in memory
//! slab    their memory: cells in chunks, free lists per worker; memory: from the system
//! poll    one step: poll, then rest, again, or the end; queue: runnables in line
//! inbox   the word of a queue that anybody pushes to, and who has its turn: of a lane, and of the shared line
//! waker   wake-ups; guarded: how wakers are stored; join: the handle; wait: what all waits share
//! cancel        how waits learn of a cancel; cancel_table: which of them wait where
//! cancel_scope  how a scope is woken and cancelled; child_waker: the waker of its children; ready_list: those to be polled
//! local   task-locals; context: what this thread is doing; runtime_shared: the runtime as tasks see it
//! closure   what must not wait: the closures of states; or_else: what is called for who never began; priority: how urgent
//! runtime_here  the runtime of this thread, for code that needs one
//! panics    what is counted and reported of those that panicked
//! traced    tasks of a simulation; cancel_points: its waits, one of which is cancelled, dropped or held back
//! ```

#[cfg(not(loom))]
pub(crate) mod cell;
pub(crate) mod guarded;
#[cfg(not(loom))]
pub(crate) mod header;
#[cfg(not(loom))]
mod in_context;
pub(crate) mod inbox;
#[cfg(not(loom))]
pub(crate) mod join_slot;
#[cfg(not(loom))]
mod local;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
pub(crate) mod or_else;
#[cfg(not(loom))]
pub(crate) mod panics;
#[cfg(not(loom))]
pub(crate) mod poll;
#[cfg(not(loom))]
pub(crate) mod priority;
#[cfg(not(loom))]
pub(crate) mod queue;
#[cfg(not(loom))]
pub(crate) mod runtime_shared;
#[cfg(not(loom))]
pub(crate) mod slab;
pub(crate) mod state;
#[cfg(not(loom))]
mod task_ref;
#[cfg(not(loom))]
pub(crate) mod traced;
#[cfg(not(loom))]
mod type_name;
#[cfg_attr(loom, path = "../loom/waker.rs")]
pub(crate) mod waker;
#[cfg(not(loom))]
mod yielding;

#[cfg(not(loom))]
pub(crate) use header::{QueuePosition, Runnable};
#[cfg(not(loom))]
pub(crate) use local::drop_unspawned;
#[cfg(not(loom))]
pub(crate) use priority::Priority;
#[cfg(not(loom))]
pub(crate) use runtime_shared::RuntimeShared;
#[cfg(not(loom))]
pub(crate) use task_ref::ColorName;
#[cfg(not(loom))]
pub(crate) use yielding::sealed;

#[cfg(not(loom))]
pub use {
    local::{Local, Scoped},
    task_ref::{Task, current, try_current},
    yielding::{Target, YieldNow, YieldTo, yield_now, yield_to},
};

// Facade: how tasks are joined, for users of the crate.
#[cfg(not(loom))]
pub use crate::cancel::{JoinError, JoinHandle};
// Facade: how tasks are spawned, for users of the crate.
#[cfg(not(loom))]
pub use crate::spawn::{Builder, DropClosure, NoDropClosure};
