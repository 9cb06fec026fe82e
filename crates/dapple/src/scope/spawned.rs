//! Tasks spawned in a scope: they run by themselves, and are cancelled with the scope.
//!
//! Each is polled inside of a cancel frame of its scope, so the first wait that begins after a cancel is
//! cancelled, wherever the task runs. SPAWNED-SEE in `cancel/item.rs`

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::children::Children;
use crate::JoinHandle;
use crate::cancel::frame::CancelFrame;
use crate::cancel::scope::CancelScope;
use crate::context::with_context;
use crate::prim::Ordering;

/// Spawns a task in the scope that has these children.
#[track_caller]
pub(super) fn spawn<F>(children: &Children, future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    with_context(|context| {
        children.assert_inside(context, "Scope::spawn called");
        children.begin_to_spawn(context);
    });
    children.cancel_scope.spawned.fetch_add(1, Ordering::Relaxed);
    let handle = crate::spawn(Spawned { future, scope: InScope(children.cancel_scope.clone()) });
    if let Some(task) = handle.task() {
        children.add_task(task.clone());
    }
    handle
}

/// Future of a task spawned in a scope. Fields are dropped in this order: the task counts while its future
/// exists.
struct Spawned<F> {
    future: F,
    scope: InScope,
}

/// Counts a spawned task in its scope, until its future is dropped.
struct InScope(Arc<CancelScope>);

impl<F: Future> Future for Spawned<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let frame = CancelFrame::of_spawned(Arc::as_ptr(&self.scope.0));
        // SAFETY: structurally pinned.
        let future = unsafe { self.map_unchecked_mut(|this| &mut this.future) };
        with_context(|context| frame.around(context, || future.poll(cx)))
    }
}

impl Drop for InScope {
    fn drop(&mut self) {
        self.0.task_ended();
    }
}
