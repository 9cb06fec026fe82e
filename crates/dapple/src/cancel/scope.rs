//! The counted part of a scope: its flag, its ready list, and how its poller is woken.
//!
//! # Invariants
//!
//! * **BY-TASK**: nearly always a scope is polled by one task, with the task's own waker. The scope then keeps a reference to
//!   that task from the first poll on, before other threads know of the scope. A thread with news for the poller wakes that
//!   task, which by NO-LOST-WAKE in `state` is polled after that. As soon as the scope is polled with another waker, it goes
//!   **by waker**, for good. The word of the ready list says which, so that a push knows it.
//! * **STORE-OR-SEE**: a poller by waker stores its waker and then looks at the flag, the count and the ready list once more.
//!   A thread with news publishes the news and then looks for the waker. Both use the waker's lock: so the second of them
//!   sees what the first did before, and no cancel is missed. A waker of this crate stays stored, and need not be stored
//!   again: to use it makes the poller be polled once more. A poller that changes to "by waker" stores that, and then looks for
//!   news; a thread with news publishes it, and then looks which of the two holds. Both have a fence between, so one sees the other.
//! * **RUN-FIRST**: a thread that pushes a child gives the child's reference away, and with it what keeps the scope. So with
//!   BY-TASK the thread takes the right to run the task first, and enqueues the task after the push. While the right is
//!   its own, the task exists, whatever becomes of the scope; and the task is polled after the child was pushed. If the thread
//!   does not get the right, because the task is running or enqueued, it keeps the scope instead, and wakes the task once
//!   more after the push: the task may have looked too early.

use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::task::Waker;

use super::child_waker;
use super::frame::is_inside;
use super::ready_list::{ReadyList, ReadyWord};
use crate::context::ThreadContext;
use crate::prim::{AtomicBool, AtomicPtr, AtomicUsize, IS_MODEL, Ordering, SpinLock, fence_seq_cst};
use crate::task::guarded::GuardedWaker;
use crate::task::waker::{self, Behind, borrowed_waker, is_ours, task_behind};

/// The part of a scope that its cancellers, the wakers of its children and its spawned tasks share.
pub(crate) struct CancelScope {
    cancelled: AtomicBool,
    /// The scope is polled with more than one waker, or with one that is not a task's. BY-TASK
    by_waker: AtomicBool,
    /// The task that polls the scope, with a reference; null before the first poll, and if no task ever polls it. The poller
    /// sets it once.
    task: AtomicPtr<Behind>,
    /// Wakes the poller, if the scope goes by waker. A thread with news takes it, or a clone if it is a waker of this crate.
    waker: SpinLock<Option<GuardedWaker>>,
    /// Children that are to be polled.
    pub(crate) ready: ReadyList,
    /// Tasks spawned in the scope that have not ended.
    pub(crate) spawned: AtomicUsize,
}

impl CancelScope {
    pub(crate) fn new() -> Arc<CancelScope> {
        child_waker::register_vtable();
        Arc::new(CancelScope {
            cancelled: AtomicBool::new(false),
            by_waker: AtomicBool::new(false),
            task: AtomicPtr::new(null_mut()),
            waker: SpinLock::default(),
            ready: ReadyList::new(),
            spawned: AtomicUsize::new(0),
        })
    }

    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Cancels all code inside, and wakes it. `false`: it was cancelled already.
    pub(crate) fn cancel(self: &Arc<CancelScope>) -> bool {
        let is_first = self.mark();
        super::item::cancel_registered(Arc::as_ptr(self).addr(), is_first);
        if is_first {
            self.wake_poller(); // STORE-OR-SEE
        }
        is_first
    }

    /// Sets the flag. `true`: the caller was the first, and has to wake the poller and all registered waits.
    pub(super) fn mark(&self) -> bool {
        !self.is_cancelled() && !self.cancelled.swap(true, Ordering::AcqRel)
    }

    /// Wakes the poller of the scope.
    pub(crate) fn wake_poller(&self) {
        if !self.goes_by_waker() {
            if let Some(task) = self.task() {
                // SAFETY: the scope has a reference to it. BY-TASK
                unsafe { waker::wake_task(task) };
            }
            return;
        }
        let mut stored = self.waker.lock();
        let waker = stored.as_ref().and_then(GuardedWaker::clone_ours).or_else(|| stored.take());
        drop(stored);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the scope goes by waker, for a thread that has published its news.
    fn goes_by_waker(&self) -> bool {
        self.by_waker.load(Ordering::Relaxed) || {
            fence_seq_cst(); // STORE-OR-SEE
            self.by_waker.load(Ordering::Relaxed)
        }
    }

    fn task(&self) -> Option<waker::TaskPtr> {
        NonNull::new(self.task.load(Ordering::Acquire))
    }

    /// Records the poller's waker, in its first poll or when the waker has changed. `true`: the waker need not be stored
    /// again while it stays the same. `false`: it must be stored before each rest.
    #[cold]
    pub(crate) fn polled_with(&self, waker: &Waker) -> bool {
        if !self.by_waker.load(Ordering::Relaxed) {
            if let Some(task) = task_behind(waker)
                && self.task().is_none()
            {
                std::mem::forget(GuardedWaker::of(waker)); // the scope has its reference
                self.task.store(task.as_ptr(), Ordering::Release); // BY-TASK
                return true;
            }
            self.by_waker.store(true, Ordering::Relaxed);
            fence_seq_cst(); // STORE-OR-SEE
            self.ready.go_by_waker();
        }
        self.store_waker(waker);
        is_ours(waker)
    }

    /// Whether the scope goes by waker, for its poller. BY-TASK
    #[inline]
    pub(crate) fn is_by_waker(&self) -> bool {
        self.by_waker.load(Ordering::Relaxed)
    }

    /// Stores the waker of the poller, which looks at the flag, the count and the ready list after this. STORE-OR-SEE
    pub(crate) fn store_waker(&self, waker: &Waker) {
        if self.waker.lock().as_ref().is_some_and(|old| old.will_wake(waker)) {
            return;
        }
        let new = GuardedWaker::of(waker); // foreign code: not under the lock
        let old = self.waker.lock().replace(new);
        drop(old);
    }

    /// The scope has ended. A wait that is still registered with it (it was polled inside, and lives on) is woken, so that
    /// its next poll registers it with the scopes around it then.
    pub(crate) fn end(self: &Arc<CancelScope>) {
        super::item::end_registered(Arc::as_ptr(self).addr());
    }

    /// Gives up the poller's waker, at the end of the scope. A canceller or a late waker of a child may keep this value for
    /// long, and must not keep foreign code with it: such a waker is dropped like one that runs none.
    #[cold]
    pub(crate) fn release_waker(&self) {
        let waker = self.waker.lock().take();
        drop(waker);
    }

    /// A task that was spawned in the scope has ended.
    pub(crate) fn task_ended(&self) {
        if self.spawned.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake_poller(); // STORE-OR-SEE
        }
    }
}

impl Drop for CancelScope {
    fn drop(&mut self) {
        if let Some(task) = self.task() {
            drop(std::mem::ManuallyDrop::into_inner(borrowed_waker(task))); // with the scope's reference
        }
        // In a model, a use after this waits for the lock for ever, which loom notices.
        if IS_MODEL {
            std::mem::forget(self.waker.lock());
        }
    }
}

/// The wake-up of a scope's poller that belongs to a push. RUN-FIRST
pub(super) enum PollerWake {
    None,
    /// The right to run the task that polls the scope.
    Run(waker::TaskPtr),
    Keep(Arc<CancelScope>),
}

impl PollerWake {
    /// Before a child is pushed to the ready list of `scope`, whose word was `seen`.
    ///
    /// # Safety
    ///
    /// The scope, a pointer into its `Arc`, exists.
    #[inline]
    pub(super) unsafe fn prepare(
        &mut self,
        scope: *const CancelScope,
        seen: ReadyWord,
        context: &ThreadContext,
    ) {
        if !seen.is_by_task() && !seen.is_by_waker() {
            return; // the first pusher wakes the poller
        }
        match self {
            PollerWake::Keep(_) => return,
            PollerWake::Run(_) if seen.is_by_task() => return,
            _ => std::mem::replace(self, PollerWake::None).give(), // for a task that does not poll the scope any more
        }
        if is_inside(context, scope) {
            return; // INSIDE-LOOKS
        }
        // SAFETY: handed on from the caller.
        let task = if seen.is_by_task() { unsafe { &*scope }.task() } else { None };
        if let Some(task) = task
            // SAFETY: the scope has a reference to it, and the scope exists.
            && unsafe { waker::claim(task, context) }
        {
            *self = PollerWake::Run(task);
            return;
        }
        // SAFETY: handed on from the caller.
        unsafe { Arc::increment_strong_count(scope) };
        // SAFETY: the reference was just counted.
        *self = PollerWake::Keep(unsafe { Arc::from_raw(scope) });
    }

    /// After the push.
    #[inline]
    pub(super) fn give(self) {
        match self {
            PollerWake::None => {}
            // SAFETY: the right to run it is ours.
            PollerWake::Run(task) => unsafe { waker::run(task) },
            PollerWake::Keep(scope) => scope.wake_poller(),
        }
    }
}
