//! The only way of a new task to its queue: a [`Placement`] decides where the task goes, and thereby of which
//! kind it is.
//!
//! Two functions are safe: [`submit`] for a future that may run on any thread, and [`submit_local`] for one
//! that stays on this thread. Both end in [`put`], the only function that makes a task and queues it. A
//! placement is a type, not a value: a future that is spawned in one way only is compiled as a task of one
//! kind (docs/design/tasks.md).

use crate::Color;
use crate::cancel::JoinHandle;
use crate::lane::in_lane::{InLane, LaneExtra, LaneOwner};
use crate::lane::limited::Limited;
use crate::lane::main::MainTask;
use crate::sched::Sched;
use crate::sched::clocked::Clocked;
use crate::sched::own_color::OwnColor;
use crate::task::cell::{TaskCell, TaskKind};
use crate::task::header::{Meta, QueuePosition, Runnable, TaskPtr};
use crate::task::runtime_shared::WholeRuntime;
use crate::task::{Priority, RuntimeShared, drop_unspawned};

/// Destination of a new task.
pub(crate) trait Placement {
    /// Makes the task and queues it. If the runtime has ended, the future is dropped, and the handle returns
    /// `is_gone`.
    ///
    /// # Safety
    ///
    /// As for [`TaskCell::make`].
    unsafe fn put_task<F: Future>(self, future: F, meta: Meta) -> JoinHandle<F::Output>;
}

/// Spawns a future that may run on any thread.
#[inline]
pub(crate) fn submit<F>(placement: impl Placement, future: F, meta: Meta) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // SAFETY: both are `Send` and `'static`: they may be used on any thread, at any time.
    unsafe { placement.put_task(future, meta) }
}

/// Spawns a future that stays on this thread: in the main color that is running on it.
#[track_caller]
pub(crate) fn submit_local<F: Future + 'static>(future: F, meta: Meta) -> JoinHandle<F::Output> {
    let Some(color) = Color::try_main() else {
        panic!(
            "spawn_local called outside of a main color: use it in the future of dapple::run or \
             block_on, or in a task spawned there with spawn_local; elsewhere use dapple::spawn"
        );
    };
    // SAFETY: tasks of a main color are run and dropped only on its thread, which is this one (HOME-THREAD).
    // The output leaves the thread only with a handle that is `Send`, that is, only if the output is `Send`.
    unsafe { InColor::new(&color).put_task(future, meta) }
}

/// A new color.
pub(crate) struct FreshColor<'a>(pub(crate) &'a RuntimeShared);

impl Placement for FreshColor<'_> {
    #[inline]
    unsafe fn put_task<F: Future>(self, future: F, meta: Meta) -> JoinHandle<F::Output> {
        let enqueue = |task| {
            // SAFETY: `put` passes on the right to run the task.
            let runnable = unsafe { Runnable::new(task) };
            Sched::of(self.0).enqueue(runnable, QueuePosition::New);
        };
        // SAFETY: the caller's promise.
        unsafe { put(self.0, OwnColor, future, meta, enqueue) }
    }
}

/// A new color, for a task that records since when it has been queued.
pub(crate) struct FreshClocked<'a>(pub(crate) &'a RuntimeShared);

impl Placement for FreshClocked<'_> {
    unsafe fn put_task<F: Future>(self, future: F, meta: Meta) -> JoinHandle<F::Output> {
        // SAFETY: the caller's promise.
        unsafe { put(self.0, Clocked::default(), future, meta, enqueue::<Clocked>) }
    }
}

/// The queue of a color, which may be a main color or have a limit. `color` is a [`Color`] to give away or a
/// reference to one, `rank` the task's own priority or `()`. In a main color a task has no priority.
pub(crate) struct InColor<C, R> {
    color: C,
    rank: R,
}

impl<C: LaneOwner> InColor<C, ()> {
    #[inline]
    pub(crate) fn new(color: C) -> InColor<C, ()> {
        InColor { color, rank: () }
    }
}

impl<C: LaneOwner> InColor<C, Priority> {
    pub(crate) fn at(color: C, priority: Priority) -> InColor<C, Priority> {
        InColor { color, rank: priority }
    }
}

impl<C: LaneOwner, R: LaneExtra> Placement for InColor<C, R> {
    #[inline]
    unsafe fn put_task<F: Future>(self, future: F, meta: Meta) -> JoinHandle<F::Output> {
        let InColor { color, rank } = self;
        if color.lane().main.is_some() {
            // SAFETY: the caller's promise.
            return unsafe { put_in_lane(color, MainTask::default(), future, meta) };
        }
        if let Some(limited) = Limited::arrive(color.lane(), rank.priority()) {
            // SAFETY: as above.
            return unsafe { put_in_lane(color, limited, future, meta) };
        }
        // SAFETY: as above.
        unsafe { put_in_lane(color, rank, future, meta) }
    }
}

/// # Safety
///
/// As for [`TaskCell::make`]; `extra` fits the lane.
#[inline]
unsafe fn put_in_lane<X: LaneExtra, F: Future>(
    color: impl LaneOwner,
    extra: X,
    future: F,
    meta: Meta,
) -> JoinHandle<F::Output> {
    let shared: *const RuntimeShared = color.lane().runtime_shared();
    // SAFETY: handed on from the caller; a lane's runtime outlives it.
    unsafe { put(shared, InLane::new(color, extra), future, meta, enqueue::<InLane<X>>) }
}

/// Makes a task and queues it by `enqueue`, which has the right to run it. If the runtime has ended, the future is
/// dropped here, and the kind after it.
///
/// # Safety
///
/// As for [`TaskCell::make`]. `shared` exists until `kind` has been dropped.
#[inline]
pub(crate) unsafe fn put<K: TaskKind, F: Future>(
    shared: *const RuntimeShared,
    kind: K,
    future: F,
    meta: Meta,
    enqueue: impl FnOnce(TaskPtr),
) -> JoinHandle<F::Output> {
    // SAFETY: handed on from the caller. Not a parameter: the kind may be the last that keeps it.
    let shared = unsafe { &*shared };
    // SAFETY: handed on from the caller.
    match unsafe { TaskCell::make(shared, kind, future, meta) } {
        Ok(task) => {
            enqueue(task.ptr());
            // SAFETY: it is a task of `F`, and this is its only handle.
            unsafe { JoinHandle::new(task) }
        }
        Err((_kind, future)) => gone(future),
    }
}

/// Drops a future that could not be spawned, and returns the handle of a task that is gone.
#[cold]
pub(crate) fn gone<F: Future>(future: F) -> JoinHandle<F::Output> {
    drop_unspawned(future);
    JoinHandle::gone()
}

/// Queues a new task of a kind.
#[inline]
fn enqueue<K: TaskKind>(task: TaskPtr) {
    // SAFETY: a new task is owned by its maker, which is `put`. ONE-OWNER
    unsafe { K::enqueue(task, QueuePosition::New) };
}
