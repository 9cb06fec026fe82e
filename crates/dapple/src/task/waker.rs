//! The waker of a task: a counted reference whose use puts the task in line.
//!
//! A task that clones, drops or uses its own waker while it is being polled touches no atomic:
//! the worker notes it and settles it after the poll (EXISTS in `state`).

use std::mem::ManuallyDrop;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::cell::TaskKind;
use super::header::{Header, Kind, Place, Ptr};
use super::here::{Here, here};
use super::home::Home;
use super::run::Own;
use super::state::MAX_UNSETTLED;

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop);

/// The waker of a task, for the length of a poll: it has no reference of its own.
#[inline]
pub(crate) fn borrowed_waker(task: Ptr) -> ManuallyDrop<Waker> {
    // SAFETY: the functions keep the contract of `RawWaker`: each call is one atomic step on the
    // task's word (or on the owner's own count), and the task lives while there are references.
    ManuallyDrop::new(unsafe { Waker::from_raw(RawWaker::new(task.as_ptr().cast(), &VTABLE)) })
}

/// The task behind a waker of ours, which keeps its reference.
pub(crate) fn task_behind(waker: &Waker) -> Option<Ptr> {
    (waker.vtable() == &VTABLE).then(|| Ptr::new(waker.data().cast_mut().cast())).flatten()
}

const IS_TASK: usize = 1;

/// Makes a waker one word: a tagged reference to a task of ours, or a box.
pub(crate) fn pack(waker: Waker) -> *mut () {
    match task_behind(&waker) {
        Some(task) => {
            std::mem::forget(waker); // the word has its reference now
            task.as_ptr().map_addr(|address| address | IS_TASK).cast()
        }
        None => Box::into_raw(Box::new(waker)).cast(),
    }
}

/// Makes a word a waker again.
///
/// # Safety
///
/// It is from [`pack`], and was not unpacked before.
pub(crate) unsafe fn unpack(packed: *mut ()) -> Waker {
    if packed.addr() & IS_TASK == 0 {
        // SAFETY: without the tag it is a box that `pack` made.
        return *unsafe { Box::from_raw(packed.cast::<Waker>()) };
    }
    let task = ptr(packed.map_addr(|address| address & !IS_TASK));
    ManuallyDrop::into_inner(borrowed_waker(task)) // with the reference that `pack` left
}

/// Whether the packed waker wakes the same task. `false` if that is not cheap to say.
pub(crate) fn wakes_same(packed: *mut (), waker: &Waker) -> bool {
    task_behind(waker).is_some_and(|task| packed.addr() == task.addr().get() | IS_TASK)
}

#[inline]
fn is_current(here: &Here, data: *const ()) -> bool {
    here.current.get() == data.cast::<Header>()
}

#[inline]
fn header<'a>(data: *const ()) -> &'a Header {
    // SAFETY: the data of our wakers is a task that is alive while they are.
    unsafe { &*data.cast::<Header>() }
}

#[inline]
fn ptr(data: *const ()) -> Ptr {
    Ptr::new(data.cast_mut().cast()).expect("a waker of ours has a task")
}

#[inline]
fn clone(data: *const ()) -> RawWaker {
    here(|here| {
        if is_current(here, data) {
            let unsettled = here.unsettled.get() + 1;
            here.unsettled.set(unsettled);
            if unsettled >= MAX_UNSETTLED {
                here.unsettled.set(0);
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
    here(|here| {
        if is_current(here, data) {
            here.woken.set(true);
        } else if header(data).state.wake() {
            enqueue(data);
        }
    });
}

#[inline]
fn wake(data: *const ()) {
    here(|here| {
        if is_current(here, data) {
            here.woken.set(true);
            return drop_current(here, data);
        }
        // Enqueuing uses the runtime, which the task keeps alive. On a worker of it the reference
        // may go first; elsewhere the task could be done, and the runtime gone, before we return.
        if here.worker.get().is_null() || here.home.get() != Home::of(ptr(data)) {
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
    here(|here| {
        if is_current(here, data) {
            drop_current(here, data);
        } else if header(data).state.drop_ref() {
            free(data);
        }
    });
}

#[inline]
fn drop_current(here: &Here, data: *const ()) {
    let unsettled = here.unsettled.get() - 1;
    here.unsettled.set(unsettled);
    if unsettled <= -MAX_UNSETTLED {
        here.unsettled.set(0);
        header(data).state.settle(unsettled);
    }
}

#[inline]
fn enqueue(data: *const ()) {
    let vtable = header(data).vtable();
    // A call that is known saves one that is looked up, for the kind that is most common.
    let enqueue = if vtable.kind == Kind::Own { Own::enqueue } else { vtable.enqueue };
    // SAFETY: the wake-up that we counted was the first, so the right to run is ours. ONE-OWNER
    unsafe { enqueue(ptr(data), Place::Next) };
}

#[cold]
fn free(data: *const ()) {
    let free = header(data).vtable().free;
    // SAFETY: we gave up the last reference.
    unsafe { free(ptr(data)) };
}
