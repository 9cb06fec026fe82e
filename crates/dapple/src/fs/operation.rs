//! One operation as a future: its route, its cancellation and its end.
//!
//! # Invariants
//!
//! * **OWN-END**: once an operation has begun, its own end decides: a result, or `Cancelled` if the kernel cancelled
//!   it before it had an effect. An operation that has not begun is withdrawn. (EXACT in `cancel::wait`.)

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;

use super::error::nowhere;
use crate::cancel::wait::Wait;
use crate::context::no_runtime;
use crate::driver::uring::Uring;
use crate::driver::uring::backend::Files;
pub(super) use crate::driver::uring::node::Request;
use crate::driver::uring::node::{Op, OpResult};
use crate::runtime::Core;
use crate::sched::Sched;
use crate::{Cancelled, blocking, world};

/// The place where an operation is done.
enum FsRoute {
    Ring(Arc<Uring>),
    Pool,
}

/// The route for an operation. `code` is its io_uring number, if a ring could do it.
fn place(code: Option<u8>) -> io::Result<FsRoute> {
    if world::is_simulated() {
        return Err(nowhere(
            io::ErrorKind::Unsupported,
            "there are no files in a simulation: run it on a real runtime",
        ));
    }
    let place = Core::current(|core| {
        let driver = core.sched.driver_here();
        match (code, core.files.in_use(driver)) {
            (Some(code), Files::Ring) => match driver.files(&core.files.failures) {
                Ok(ring) if ring.can(code) => FsRoute::Ring(ring.clone()),
                _ => FsRoute::Pool,
            },
            _ => FsRoute::Pool,
        }
    });
    place.ok_or_else(|| nowhere(io::ErrorKind::Other, no_runtime("use files in")))
}

/// Whether files can be used here: that needs a runtime, outside of a simulation.
pub(super) fn check_place() -> io::Result<()> {
    place(None).map(drop)
}

/// Whether the file operations of this runtime go through rings.
pub(super) fn has_ring() -> bool {
    matches!(place(Some(io_uring::opcode::OpenAt::CODE)), Ok(FsRoute::Ring(..)))
}

/// Sends an operation on its route.
pub(super) fn send<R: Request>(op: &mut Op<R>) -> io::Result<()> {
    let code = R::CODE.filter(|_| op.get_mut().by_ring());
    match place(code)? {
        FsRoute::Ring(ring) => op.send_to_ring(&ring, Sched::owns_slot_here),
        FsRoute::Pool => {
            let call = Core::current(|core| op.for_pool(&core.files.failures));
            blocking(call.expect("`place` found a runtime")).detach();
        }
    }
    Ok(())
}

/// The result of an outcome. `None` if the operation was interrupted without effect, and must be sent
/// again.
pub(super) fn end_of(outcome: OpResult) -> Option<io::Result<u32>> {
    match outcome {
        OpResult::Did(result) => Some(Ok(result)),
        // The kernel cancels the operations of a thread when that thread ends.
        OpResult::Failed(Errno::INTR | Errno::CANCELED) => None,
        OpResult::Failed(errno) => Some(Err(errno.into())),
        OpResult::Gone => Some(Err(nowhere(
            io::ErrorKind::Other,
            "the operation was not done: the runtime has ended, or could not start a thread",
        ))),
    }
}

/// An operation as a future. It is done when it is awaited, and returns its request with the result.
pub(super) struct Operation<R: Request> {
    op: Op<R>,
    sent: bool,
    /// The future that waited for it was dropped, so it is to end soon.
    given_up: bool,
    /// It was sent to a runtime that has ended.
    was_gone: bool,
    wait: Wait,
}

impl<R: Request> Operation<R> {
    pub(super) fn new(request: R) -> Operation<R> {
        Operation {
            op: Op::new(request),
            sent: false,
            given_up: false,
            was_gone: false,
            wait: Wait::default(),
        }
    }

    /// From now on the operation counts as cancelled.
    pub(super) fn give_up(&mut self) {
        self.given_up = true;
    }

    fn is_cancelled(&self) -> bool {
        self.given_up || self.wait.is_cancelled()
    }

    fn end(&mut self, result: io::Result<u32>) -> Poll<(io::Result<u32>, R)> {
        self.wait.end();
        Poll::Ready((result, self.op.take()))
    }
}

impl<R: Request> Unpin for Operation<R> {}

impl<R: Request> Future for Operation<R> {
    type Output = (io::Result<u32>, R);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        if !this.wait.has_begun()
            && let Err(cancelled) = ready!(this.wait.begin(cx))
        {
            return this.end(Err(cancelled.into()));
        }
        loop {
            if !this.sent {
                if let Err(error) = send(&mut this.op) {
                    return this.end(Err(error));
                }
                this.sent = true;
            }
            let Some(outcome) = this.op.outcome(cx.waker()) else {
                if this.is_cancelled() {
                    if this.op.withdraw() {
                        return this.end(Err(Cancelled.into()));
                    }
                    this.op.cancel(); // OWN-END
                    this.wait.stays();
                }
                this.wait.rest_to_its_end(cx, &"a file");
                return Poll::Pending;
            };
            if outcome == OpResult::Gone && !std::mem::replace(&mut this.was_gone, true) {
                this.sent = false; // it was sent to a runtime that has ended, so it is done in this one
                continue;
            }
            match end_of(outcome) {
                Some(result) => return this.end(result),
                None if this.is_cancelled() => return this.end(Err(Cancelled.into())),
                None => this.sent = false,
            }
        }
    }
}

/// Runs a closure that may block on a thread of the pool, and waits for its result.
pub(super) async fn on_pool<T, F>(call: F) -> io::Result<T>
where
    F: FnOnce() -> io::Result<T> + Send + 'static,
    T: Send + 'static,
{
    let (done, call) = Operation::new(PoolCall { call: Some(call), result: None }).await;
    done?;
    call.result.expect("the pool has called the closure")
}

/// A closure that may block.
struct PoolCall<F, T> {
    call: Option<F>,
    result: Option<io::Result<T>>,
}

// SAFETY: no ring does it, so the kernel gets no pointer.
unsafe impl<F, T> Request for PoolCall<F, T>
where
    F: FnOnce() -> io::Result<T> + Send + 'static,
    T: Send + 'static,
{
    const CODE: Option<u8> = None;

    fn perform(&mut self) -> Result<u32, Errno> {
        if let Some(call) = self.call.take() {
            self.result = Some(call());
        }
        Ok(0)
    }
}

/// The check before an operation that is done at once: whether the task was cancelled, and whether files can be used
/// here. It counts as a result, so that a loop of such operations yields.
pub(super) async fn begin() -> io::Result<()> {
    let mut wait = Wait::default();
    std::future::poll_fn(|cx| wait.begin(cx)).await?;
    wait.end();
    check_place()
}
