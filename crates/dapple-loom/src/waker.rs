//! Replaces `task::waker` in models: a task is its state word, and the place where the thread that runs it
//! sleeps.

use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::task::{RawWaker, RawWakerVTable, Waker};

use loom::cell::UnsafeCell;

use crate::context::ThreadContext;
use crate::prim::Parker;
use crate::task::state::{Finished, RestOutcome, Snapshot, StateWord};

/// A task. `there` stands for its memory: each user reads it, and the code that frees the task writes it. The
/// real memory stays until the end of the model.
pub(crate) struct Behind {
    state: StateWord,
    runner: Parker,
    there: UnsafeCell<bool>,
}

// SAFETY: loom ends the model before an access that races with another one is made.
unsafe impl Sync for Behind {}

pub(crate) type TaskPtr = NonNull<Behind>;

impl Behind {
    /// A task that this thread runs, without a handle.
    pub(crate) fn new() -> Arc<Behind> {
        let task =
            Behind { state: StateWord::new(false), runner: Parker::default(), there: UnsafeCell::new(true) };
        assert!(task.state.detach());
        Arc::new(task)
    }

    fn touch(&self) {
        // SAFETY: loom has checked that no thread writes meanwhile.
        assert!(self.there.with(|there| unsafe { *there }), "used after it was freed");
    }

    fn free(&self) {
        // SAFETY: loom has checked that no other thread reads or writes meanwhile.
        let was_there = self.there.with_mut(|there| unsafe { std::mem::replace(&mut *there, false) });
        assert!(was_there, "freed twice");
    }

    pub(crate) fn is_freed(&self) -> bool {
        // SAFETY: as above.
        !self.there.with(|there| unsafe { *there })
    }

    /// Waker that the task is polled with.
    pub(crate) fn waker(&self) -> ManuallyDrop<Waker> {
        borrowed_waker(NonNull::from(self))
    }

    pub(crate) fn before_poll(&self) -> Snapshot {
        self.state.before_poll()
    }

    /// `true` if the task waits, and no thread runs it.
    pub(crate) fn rest(&self, before: Snapshot) -> bool {
        self.state.rest(before, 0) == RestOutcome::Idle
    }

    /// Sleeps until the task is to be run again.
    pub(crate) fn sleep(&self) {
        self.runner.park(None);
    }

    /// Ends the task after all other threads are done with it; a thread that got the right to run it has
    /// passed that right on.
    pub(crate) fn end_anyway(&self) {
        if self.state.load().is_idle() {
            assert!(self.state.wake());
        }
        self.end();
        assert!(self.is_freed());
    }

    /// Ends the task, which this thread runs.
    pub(crate) fn end(&self) {
        match self.state.finish(0, 0, false) {
            Finished::Last => self.free(),
            Finished::Shared => {}
            other => panic!("it has no handle: {other:?}"),
        }
    }
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

fn behind<'a>(data: *const ()) -> &'a Behind {
    // SAFETY: tasks live until the end of the model.
    let task = unsafe { &*data.cast::<Behind>() };
    task.touch();
    task
}

fn clone(data: *const ()) -> RawWaker {
    behind(data).state.add_ref();
    RawWaker::new(data, &VTABLE)
}

fn wake(data: *const ()) {
    wake_by_ref(data);
    drop_waker(data);
}

fn wake_by_ref(data: *const ()) {
    let task = behind(data);
    if task.state.wake() {
        task.runner.unpark();
    }
}

fn drop_waker(data: *const ()) {
    let task = behind(data);
    if task.state.drop_ref() {
        task.free();
    }
}

pub(crate) fn borrowed_waker(task: TaskPtr) -> ManuallyDrop<Waker> {
    // SAFETY: the functions keep the contract of `RawWaker`.
    ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(task.as_ptr().cast(), &VTABLE)) })
}

pub(crate) fn task_behind(waker: &Waker) -> Option<TaskPtr> {
    std::ptr::eq(waker.vtable(), &raw const VTABLE)
        .then(|| TaskPtr::new(waker.data().cast_mut().cast()))
        .flatten()
}

static CHILD_VTABLE: AtomicPtr<RawWakerVTable> = AtomicPtr::new(null_mut());

/// As the runtime's. No part of a protocol: not one of loom's atomics.
pub(crate) fn register_child_vtable(vtable: &'static RawWakerVTable) {
    CHILD_VTABLE.store(std::ptr::from_ref(vtable).cast_mut(), Ordering::Relaxed);
}

pub(crate) fn is_ours(waker: &Waker) -> bool {
    task_behind(waker).is_some()
        || std::ptr::eq(waker.vtable(), CHILD_VTABLE.load(Ordering::Relaxed).cast_const())
}

pub(crate) unsafe fn wake_task(task: TaskPtr) {
    wake_by_ref(task.as_ptr().cast());
}

/// In a model, all threads are workers of the task's runtime.
pub(crate) unsafe fn claim(task: TaskPtr, _context: &ThreadContext) -> bool {
    behind(task.as_ptr().cast()).state.wake()
}

pub(crate) unsafe fn run(task: TaskPtr) {
    behind(task.as_ptr().cast()).runner.unpark();
}
