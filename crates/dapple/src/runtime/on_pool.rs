//! Spawning on the pool for blocking calls.

use super::core::Core;
use crate::blocking::Blocking;
use crate::cancel::JoinHandle;
use crate::spawn::submit::{Placement, put};
use crate::task::header::{Meta, Runnable, TaskPtr};

/// The pool for blocking calls of a runtime. The future must be done at its first poll.
pub(crate) struct OnPool<'a>(pub(crate) &'a Core);

impl Placement for OnPool<'_> {
    unsafe fn put_task<F: Future>(self, future: F, meta: Meta) -> JoinHandle<F::Output> {
        let OnPool(core) = self;
        let enqueue = |task: TaskPtr| {
            // SAFETY: `put` gives the right to run away.
            let call = unsafe { Runnable::new(task) };
            core.pool.submit(call, || core.start_pool_thread());
        };
        // SAFETY: handed on from the caller.
        unsafe { put(core.runtime_shared(), Blocking::default(), future, meta, enqueue) }
    }
}
