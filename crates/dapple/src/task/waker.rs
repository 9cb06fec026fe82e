//! The waker of a task: a counted reference whose use enqueues the task.
//!
//! A task that clones, drops or uses its own waker while it is being polled touches no atomic:
//! the worker counts it in its context and settles it after the poll (EXISTS in `state`).

use std::mem::ManuallyDrop;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::guarded::GuardedWaker;
pub(crate) use super::header::TaskPtr;
use super::header::{Header, QueuePosition};
use super::runtime_shared::RuntimeShared;
use super::state::MAX_UNSETTLED;
use crate::context::{ThreadContext, with_context};
use crate::prim::Published;

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop);

/// The waker of a task, for the length of a poll: it has no reference of its own.
#[inline]
pub(crate) fn borrowed_waker(task: TaskPtr) -> ManuallyDrop<Waker> {
    // SAFETY: the functions keep the contract of `RawWaker`: each call is one atomic step on the
    // task's word (or on the owner's own count), and the task lives while there are references.
    ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(task.as_ptr().cast(), &VTABLE)) })
}

/// The type behind a waker of a task. Models have another one.
pub(crate) type Behind = Header;

/// The task behind a waker of ours, which keeps its reference.
#[inline]
pub(crate) fn task_behind(waker: &Waker) -> Option<TaskPtr> {
    std::ptr::eq(waker.vtable(), &raw const VTABLE)
        .then(|| TaskPtr::new(waker.data().cast_mut().cast()))
        .flatten()
}

/// Whether it is the waker of a task or of a child of a scope. To clone such a waker runs no foreign code, and to use it
/// makes the task or child be polled once more, even if it is being polled now.
#[inline]
pub(crate) fn is_ours(waker: &Waker) -> bool {
    task_behind(waker).is_some() || is_child(waker)
}

/// The vtable of the wakers of children of scopes, which are a matter of `cancel`; null before the first scope.
static CHILD_VTABLE: Published<RawWakerVTable> = Published::null();

/// Makes the wakers with this vtable known as wakers of this crate. There is one such vtable, and its data are pointers that
/// are aligned to more than [`TAGS`]. A thread that has such a waker got it from a thread that has called this.
#[inline]
pub(crate) fn register_child_vtable(vtable: &'static RawWakerVTable) {
    // Read first: scopes are made by all threads, and a write would take the cache line from the others.
    if !std::ptr::eq(CHILD_VTABLE.get(), vtable) {
        CHILD_VTABLE.set(vtable);
    }
}

/// Whether it is the waker of a child of a scope.
#[inline]
fn is_child(waker: &Waker) -> bool {
    std::ptr::eq(waker.vtable(), CHILD_VTABLE.get())
}

/// Wakes a task, as a waker would.
///
/// # Safety
///
/// The task has a reference for as long as this takes.
pub(crate) unsafe fn wake_task(task: TaskPtr) {
    wake_by_ref(task.as_ptr().cast());
}

/// Wakes a task without enqueueing it. `true`: the right to run it is the caller's, which has to [`run`] it.
/// `false`: it was awake, or runs on this thread, or cannot be enqueued here without a reference.
///
/// # Safety
///
/// As for [`wake_task`].
#[inline]
pub(crate) unsafe fn claim(task: TaskPtr, context: &ThreadContext) -> bool {
    let data = task.as_ptr().cast::<()>();
    may_enqueue(context, task) && !is_current(context, data) && header(data).state.wake()
}

/// Enqueues a task.
///
/// # Safety
///
/// The caller has the right to run it, by [`claim`], and gives it away.
#[inline]
pub(crate) unsafe fn run(task: TaskPtr) {
    enqueue(task.as_ptr().cast());
}

/// Whether a task can be enqueued on this thread without a reference to it. Enqueueing uses the runtime, which the task
/// keeps alive. On a worker of that runtime the reference may go first. On other threads the task could be done, and the
/// runtime gone, before the call returns.
#[inline]
fn may_enqueue(context: &ThreadContext, task: TaskPtr) -> bool {
    context.has_worker() && context.runtime() == RuntimeShared::of(task)
}

const IS_TASK: usize = 1;
const IS_CHILD: usize = 2;
const TAGS: usize = IS_TASK | IS_CHILD;

/// The word for a waker of this crate; `None` for others.
#[inline]
fn tagged(waker: &Waker) -> Option<*mut ()> {
    let tag = if task_behind(waker).is_some() {
        IS_TASK
    } else if is_child(waker) {
        IS_CHILD
    } else {
        return None;
    };
    Some(waker.data().cast_mut().map_addr(|address| address | tag))
}

/// Makes a waker one word: a tagged reference to a task or a child, or a box.
#[inline]
pub(crate) fn pack(waker: GuardedWaker) -> *mut () {
    match tagged(waker.as_waker()) {
        Some(word) => {
            std::mem::forget(waker); // the word has its reference now
            word
        }
        None => Box::into_raw(Box::new(waker)).cast(),
    }
}

/// Makes a word a waker again.
///
/// # Safety
///
/// It is from [`pack`], and was not unpacked before.
#[inline]
pub(crate) unsafe fn unpack(packed: *mut ()) -> GuardedWaker {
    let data = packed.map_addr(|address| address & !TAGS);
    match packed.addr() & TAGS {
        // SAFETY: without a tag it is a box that `pack` made.
        0 => *unsafe { Box::from_raw(packed.cast::<GuardedWaker>()) },
        // With the reference that `pack` left.
        IS_TASK => ManuallyDrop::into_inner(borrowed_waker(ptr(data))).into(),
        _ => {
            // SAFETY: `pack` has seen a waker with this vtable, which is a static.
            let vtable = unsafe { &*CHILD_VTABLE.get() };
            // SAFETY: the vtable and the data are those of the waker that `pack` was given, with its reference.
            unsafe { Waker::from_raw(RawWaker::new(data, vtable)) }.into()
        }
    }
}

/// Whether the packed waker wakes the same task or child. `false` if that is not cheap to say.
#[inline]
pub(crate) fn wakes_same(packed: *mut (), waker: &Waker) -> bool {
    tagged(waker) == Some(packed)
}

#[inline]
fn is_current(context: &ThreadContext, data: *const ()) -> bool {
    context.current() == data.cast::<Header>()
}

#[inline]
fn header<'a>(data: *const ()) -> &'a Header {
    // SAFETY: the data of our wakers is a task that is alive while they are.
    unsafe { &*data.cast::<Header>() }
}

#[inline]
fn ptr(data: *const ()) -> TaskPtr {
    TaskPtr::new(data.cast_mut().cast()).expect("a waker of ours has a task")
}

#[inline]
fn clone(data: *const ()) -> RawWaker {
    with_context(|context| {
        if is_current(context, data) {
            let unsettled = context.count_unsettled(1);
            if unsettled >= MAX_UNSETTLED {
                context.clear_unsettled();
                header(data).state.settle(unsettled);
            }
        } else {
            header(data).state.add_ref();
        }
    });
    RawWaker::new(data, &VTABLE)
}

#[inline]
fn wake_by_ref(data: *const ()) {
    with_context(|context| {
        if is_current(context, data) {
            context.note_woken();
        } else if header(data).state.wake() {
            enqueue(data);
        }
    });
}

#[inline]
fn wake(data: *const ()) {
    with_context(|context| {
        if is_current(context, data) {
            context.note_woken();
            return drop_current(context, data);
        }
        if !may_enqueue(context, ptr(data)) {
            wake_by_ref(data);
            return drop(data);
        }
        let (owned, last) = header(data).state.wake_and_drop_ref();
        if owned {
            enqueue(data);
        } else if last {
            free(data);
        }
    });
}

#[inline]
fn drop(data: *const ()) {
    with_context(|context| {
        if is_current(context, data) {
            drop_current(context, data);
        } else if header(data).state.drop_ref() {
            free(data);
        }
    });
}

#[inline]
fn drop_current(context: &ThreadContext, data: *const ()) {
    let unsettled = context.count_unsettled(-1);
    if unsettled <= -MAX_UNSETTLED {
        context.clear_unsettled();
        header(data).state.settle(unsettled);
    }
}

#[inline]
fn enqueue(data: *const ()) {
    let enqueue = header(data).vtable().enqueue;
    // SAFETY: the wake-up that we counted was the first, so the right to run is ours. ONE-OWNER
    unsafe { enqueue(ptr(data), QueuePosition::Next) };
}

#[cold]
fn free(data: *const ()) {
    let free = header(data).vtable().free;
    // SAFETY: we gave up the last reference.
    unsafe { free(ptr(data)) };
}
