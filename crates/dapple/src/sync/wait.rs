//! What the waits of channels and locks have in common: how they wake others, and how a thread
//! waits in place of a task. How they begin and end is in `task::wait`.
//!
//! # Invariants
//!
//! * **NO-FOREIGN-CODE**: no waker is cloned, used or dropped, and no value is dropped, while a lock
//!   of ours is held.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::prim::Parker;
use crate::task::here::here;
pub(crate) use crate::task::wait::{Wait, wake};

const BATCH: usize = 16;

/// Wakers on their way out of a lock. NO-FOREIGN-CODE
#[derive(Default)]
pub(crate) struct Wakers {
    wakers: [Option<Waker>; BATCH],
    len: usize,
}

impl Wakers {
    pub(crate) fn is_full(&self) -> bool {
        self.len == BATCH
    }

    /// Puts one more; there must be room.
    pub(crate) fn put(&mut self, waker: Option<Waker>) {
        if waker.is_some() {
            self.wakers[self.len] = waker;
            self.len += 1;
        }
    }

    /// Wakes them all, in order.
    pub(crate) fn wake_all(&mut self) {
        let len = std::mem::take(&mut self.len);
        self.wakers[..len].iter_mut().filter_map(Option::take).for_each(wake);
    }
}

impl Drop for Wakers {
    fn drop(&mut self) {
        self.wake_all();
    }
}

struct Unpark(Parker);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits on this thread, which must not be one that runs tasks.
#[track_caller]
pub(crate) fn block_on<F: Future>(what: &str, future: F) -> F::Output {
    let runs_tasks = here(|here| !here.worker.get().is_null() || !here.main.get().is_null());
    assert!(
        !runs_tasks,
        "{what} called on a thread that runs tasks: it would hold them up. Await the form that \
         does not block, or move the call into dapple::blocking"
    );
    let mut future = pin!(future);
    let unpark = Arc::new(Unpark(Parker::default()));
    let waker = Waker::from(unpark.clone());
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => drop(unpark.0.park(None)),
        }
    }
}
