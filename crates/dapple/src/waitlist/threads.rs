//! Blocking waits, for threads that run no tasks.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use crate::context::closure::assert_outside;
use crate::context::with_context;
use crate::prim::Parker;

struct UnparkWake(Parker);

impl Wake for UnparkWake {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// Polls `future` to completion on this thread, and parks in between. Panics on a thread that runs tasks.
#[track_caller]
pub(crate) fn block_on<F: Future>(what: impl fmt::Display, future: F) -> F::Output {
    block_on_again(what, None, future)
}

/// As `block_on`, but also polls again after each `again`, woken or not.
#[track_caller]
pub(crate) fn block_on_again<F: Future>(
    what: impl fmt::Display,
    again: Option<Duration>,
    future: F,
) -> F::Output {
    assert_outside(&what);
    let runs_tasks = with_context(|context| context.has_worker() || context.has_main_lane());
    assert!(
        !runs_tasks,
        "{what} called on a thread that runs tasks: it would hold them up. Await the form that \
         does not block, or move the call into dapple::blocking"
    );
    let mut future = pin!(future);
    let unpark = Arc::new(UnparkWake(Parker::default()));
    let waker = Waker::from(unpark.clone());
    let mut cx = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => drop(unpark.0.park(again)),
        }
    }
}
