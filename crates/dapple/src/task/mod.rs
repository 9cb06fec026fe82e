//! Tasks: futures that the runtime polls, each in a color.
//!
//! [`spawn`](crate::spawn()) makes a task; [`Builder`] makes one with a name, a color, a priority or a limit. Inside a
//! task, [`yield_now`] and [`yield_to`] give way to others, [`current`] returns the task itself, and a [`Local`] is a
//! value that is passed along with a future to all code that it calls.
//!
//! # Inside
//!
//! A task is a future with a header in front. It does not know its scheduler. A wake-up goes through the state word of the
//! task; the thread that comes to own the task by it hands a runnable to the runtime, and a worker polls the task later.
//!
//! ```text
//! state      owner, references and wake-ups of a task: every atomic step of its life
//! header     the 24 bytes in front of everything that runs, and the table of what differs by kind
//! cell       header, join slot and future in memory;  join_slot: the waker of the handle
//! slab       memory of tasks: cells in chunks, free lists per worker;  memory: from the system
//! poll       one step: poll, then rest, again, or the end;  queue: runnables in order
//! inbox      the word of a queue that any thread pushes to, and its turn: of a lane, and of the shared queue
//! waker      wake-ups;  guarded: how wakers are stored
//! task_ref   `Task`;  yielding: `yield_now`;  local: task-locals;  or_else: drop closures;  priority
//! runtime_shared  the runtime as its tasks see it;  in_context: what the context points to
//! panics     counting and reporting of tasks that panicked;  type_name: names of tasks
//! traced     tasks of a simulation, and the observer of their polls
//! ```

pub(crate) mod cell;
pub(crate) mod guarded;
pub(crate) mod header;
mod in_context;
pub(crate) mod inbox;
pub(crate) mod join_slot;
mod local;
mod memory;
pub(crate) mod or_else;
pub(crate) mod panics;
pub(crate) mod poll;
pub(crate) mod priority;
pub(crate) mod queue;
pub(crate) mod runtime_shared;
pub(crate) mod slab;
pub(crate) mod state;
mod task_ref;
pub(crate) mod traced;
mod type_name;
pub(crate) mod waker;
mod yielding;

pub(crate) use header::{QueuePosition, Runnable};
pub(crate) use local::drop_unspawned;
pub(crate) use priority::Priority;
pub(crate) use runtime_shared::RuntimeShared;
pub(crate) use task_ref::ColorName;
pub(crate) use yielding::sealed;

pub use {
    local::{Local, Scoped},
    task_ref::{Task, current, try_current},
    yielding::{Target, YieldNow, YieldTo, yield_now, yield_to},
};

// Facade: how tasks are joined, for users of the crate.
pub use crate::cancel::{JoinError, JoinHandle};
// Facade: how tasks are spawned, for users of the crate.
pub use crate::spawn::{Builder, DropClosure, NoDropClosure};
