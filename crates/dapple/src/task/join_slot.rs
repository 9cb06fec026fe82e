//! The place in a task for the waker of its handle.

use std::ptr::null_mut;
use std::task::Waker;

use super::guarded::GuardedWaker;
use super::header::{TaskPtr, field};
use super::waker::{pack, unpack, wakes_same};
use crate::prim::{AtomicPtr, Ordering};

/// The waker of the handle that waits for a task, in one word. SLOT in `state` says which side may use it.
#[derive(Default)]
pub(crate) struct JoinSlot(AtomicPtr<()>);

impl JoinSlot {
    /// # Safety
    ///
    /// The caller has a reference to the task, or owns it, for as long as the slot is used.
    pub(crate) unsafe fn of<'a>(task: TaskPtr) -> &'a JoinSlot {
        // SAFETY: handed on from the caller.
        let offset = unsafe { task.as_ref() }.vtable().join_offset;
        // SAFETY: the slot lies there.
        unsafe { &*field::<JoinSlot>(task, offset) }
    }

    pub(crate) fn put(&self, waker: GuardedWaker) {
        self.0.store(pack(waker), Ordering::Relaxed);
    }

    pub(crate) fn wakes_same(&self, waker: &Waker) -> bool {
        wakes_same(self.0.load(Ordering::Relaxed), waker)
    }

    /// Takes the waker out.
    ///
    /// # Safety
    ///
    /// There is one, and the slot belongs to the caller. SLOT
    pub(crate) unsafe fn take(&self) -> GuardedWaker {
        // SAFETY: the word is from `put`, and was not taken before.
        unsafe { unpack(self.0.swap(null_mut(), Ordering::Relaxed)) }
    }
}
