//! What all waits of channels and locks have in common: how they begin, how they wait, how they
//! wake others, and how a thread waits in place of a task.
//!
//! # Invariants
//!
//! * **EXACT**: a wait that is polled for the first time in a cancelled task returns `Cancelled`
//!   and has had no effect. A wait that is polled again takes what it waits for if that can be had,
//!   and only otherwise returns `Cancelled`.
//! * **NO-FOREIGN-CODE**: no waker is cloned, used or dropped, and no value is dropped, while a lock
//!   of ours is held.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::Cancelled;
use crate::prim::Parker;
use crate::task::cancel::{self, Item};
use crate::task::cell::discard;
use crate::task::here::here;

/// What every wait keeps: whether it has begun, and how it learns that its task was cancelled.
#[derive(Default)]
pub(crate) struct Wait {
    begun: bool,
    /// Not to be cancelled.
    shielded: bool,
    on_cancel: Item,
}

impl Wait {
    /// A wait that is not to be cancelled.
    pub(crate) fn shielded() -> Wait {
        Wait { shielded: true, ..Wait::default() }
    }

    /// At the head of every poll: whether the operation may be tried now. EXACT
    ///
    /// This is the one place through which all waits of channels and locks go.
    #[inline]
    pub(crate) fn begin(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), Cancelled>> {
        if !self.begun {
            if self.is_cancelled() {
                return Poll::Ready(Err(Cancelled));
            }
            self.begun = true;
        }
        Poll::Ready(Ok(()))
    }

    /// After what it waits for could not be had: whether the wait is over all the same. EXACT
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        !self.shielded && cancel::is_current_cancelled()
    }

    /// At the end of a poll that returns `Pending`.
    #[inline]
    pub(crate) fn rest(&mut self, cx: &mut Context<'_>) {
        if !self.shielded {
            self.on_cancel.link(cx.waker());
        }
    }

    /// At the end of a poll that returns a result. The next poll begins a new wait.
    #[inline]
    pub(crate) fn end(&mut self) {
        self.begun = false;
        self.on_cancel.unlink();
    }
}

/// Wakes somebody, whatever his waker does: it may be foreign code, and must not keep the others
/// from being woken, or the one who wakes from going on.
#[inline]
pub(crate) fn wake(waker: Waker) {
    discard(catch_unwind(AssertUnwindSafe(|| waker.wake())));
}

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
