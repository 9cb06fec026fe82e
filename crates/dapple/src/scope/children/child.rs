//! One child in memory: a header, followed by its future and later its output.
//!
//! # Invariants
//!
//! * **CHILD-STAGE**: a child has a future until that is done; then its output, until the joiner takes it or
//!   gives it up; then nothing. The child is in the list until it has nothing.

use std::alloc::dealloc;
use std::any::Any;
use std::cell::{Cell, UnsafeCell};
use std::mem::{ManuallyDrop, offset_of};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

use crate::cancel::child_waker::ChildWaker;
use crate::prim::{AtomicBool, Ordering};
use crate::task::cell::discard;
use crate::task::guarded::GuardedWaker;

pub(in crate::scope) type ChildPanic = Box<dyn Any + Send>;

/// Part of a child that does not depend on the type of its future. The stage follows it.
#[repr(C)]
pub(in crate::scope) struct ChildHeader {
    pub(super) child_waker: ChildWaker,
    pub(super) vtable: Cell<&'static ChildVTable>,
    pub(super) next: Cell<*mut ChildHeader>,
    pub(super) previous: Cell<*mut ChildHeader>,
    /// Next child of the same [`ChildQueue`], if the child is in one.
    pub(super) behind: Cell<*mut ChildHeader>,
    pub(super) is_put_off: Cell<bool>,
    /// It counts in `staying`.
    pub(super) stays: Cell<bool>,
    pub(super) stage: Cell<ChildStage>,
    /// A `Started` exists that may ask for the output.
    pub(super) is_wanted: AtomicBool,
    /// Waiter to be woken when the child is done.
    pub(super) joiner: Cell<Option<Joiner>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildStage {
    Future,
    Output,
    /// It panicked while its output was wanted.
    Panicked,
    Nothing,
}

pub(super) enum Joiner {
    /// The scope's body, or code polled with the body's waker.
    Body,
    Waker(GuardedWaker),
    /// A waiter that was woken, and has not taken the value. ON-ITS-WAY
    Woken,
}

pub(super) struct ChildVTable {
    /// `true`: it is done, and its output has replaced the future. An error: it panicked, and has neither.
    pub(super) poll: unsafe fn(NonNull<ChildHeader>, &mut Context<'_>) -> Result<bool, ChildPanic>,
    pub(super) drop_future: unsafe fn(NonNull<ChildHeader>),
    pub(super) drop_output: unsafe fn(NonNull<ChildHeader>),
    pub(super) take_output: unsafe fn(NonNull<ChildHeader>, *mut ()),
}

/// A child in memory.
#[repr(C)]
pub(super) struct Whole<F: Future> {
    pub(super) child: ChildHeader,
    pub(super) stage: UnsafeCell<Union<F>>,
}

pub(super) union Union<F: Future> {
    pub(super) future: ManuallyDrop<F>,
    pub(super) output: ManuallyDrop<F::Output>,
}

impl<F: Future> Whole<F> {
    pub(super) const VTABLE: &'static ChildVTable = &ChildVTable {
        poll: Self::poll,
        drop_future: Self::drop_future,
        drop_output: Self::drop_output,
        take_output: Self::take_output,
    };

    unsafe fn stage<'a>(child: NonNull<ChildHeader>) -> &'a mut Union<F> {
        let stage = child.as_ptr().wrapping_byte_add(offset_of!(Self, stage)).cast::<UnsafeCell<Union<F>>>();
        // SAFETY: the child's future is an `F`, and the caller may touch its stage. CHILD-STAGE
        unsafe { &mut *UnsafeCell::raw_get(stage) }
    }

    unsafe fn poll(child: NonNull<ChildHeader>, cx: &mut Context<'_>) -> Result<bool, ChildPanic> {
        // SAFETY: the caller's promise.
        let polled = unsafe { Self::poll_inline(child, cx) };
        polled.map(|polled| match polled {
            Poll::Pending => false,
            Poll::Ready(output) => {
                // SAFETY: the stage is empty now.
                unsafe { Self::stage(child) }.output = ManuallyDrop::new(output);
                true
            }
        })
    }

    /// Polls the future. If it is done, or panicked, the future has been dropped.
    #[inline(always)]
    pub(super) unsafe fn poll_inline(
        child: NonNull<ChildHeader>,
        cx: &mut Context<'_>,
    ) -> Result<Poll<F::Output>, ChildPanic> {
        // SAFETY: the caller's promise.
        let stage = unsafe { Self::stage(child) };
        let mut future_is_there = true;
        let polled = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: there is a future (CHILD-STAGE). It is pinned: it stays in place until it is dropped.
            let future = unsafe { Pin::new_unchecked(&mut *stage.future) };
            let polled = future.poll(cx);
            if polled.is_ready() {
                future_is_there = false;
                // SAFETY: the future is not touched again.
                unsafe { ManuallyDrop::drop(&mut stage.future) };
            }
            polled
        }));
        if polled.is_err() && future_is_there {
            // SAFETY: as above.
            discard(catch_unwind(AssertUnwindSafe(|| unsafe { ManuallyDrop::drop(&mut stage.future) })));
        }
        polled
    }

    unsafe fn drop_future(child: NonNull<ChildHeader>) {
        // SAFETY: the caller's promise.
        let stage = unsafe { Self::stage(child) };
        // SAFETY: there is a future (CHILD-STAGE), which is not touched again.
        unsafe { ManuallyDrop::drop(&mut stage.future) };
    }

    unsafe fn drop_output(child: NonNull<ChildHeader>) {
        // SAFETY: the caller's promise.
        let stage = unsafe { Self::stage(child) };
        // SAFETY: there is an output (CHILD-STAGE), which is not touched again.
        unsafe { ManuallyDrop::drop(&mut stage.output) };
    }

    unsafe fn take_output(child: NonNull<ChildHeader>, to: *mut ()) {
        // SAFETY: the caller's promise.
        let stage = unsafe { Self::stage(child) };
        // SAFETY: there is an output (CHILD-STAGE), which is not touched again.
        let output = unsafe { ManuallyDrop::take(&mut stage.output) };
        // SAFETY: the caller promises room for it.
        unsafe { to.cast::<F::Output>().write(output) };
    }
}

/// Payload for a child dropped by [`drop_started`]: not a panic.
pub(super) struct Dropped;

/// Makes a started child drop its future at its next poll, for simulations. `Some(false)`: its output may be
/// asked for, so it cannot be dropped. `None`: it has ended.
///
/// # Safety
///
/// `child_waker` belongs to a child, in memory, whose scope no other thread is polling.
pub(crate) unsafe fn drop_started(child_waker: *const ChildWaker) -> Option<bool> {
    /// # Safety
    ///
    /// As for [`ChildVTable::poll`].
    unsafe fn poll(child: NonNull<ChildHeader>, _: &mut Context<'_>) -> Result<bool, ChildPanic> {
        // SAFETY: the scope polls it, so it is in memory.
        let drop_future = unsafe { child.as_ref() }.vtable.get().drop_future;
        // SAFETY: it has a future (CHILD-STAGE), which is not touched again.
        let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { drop_future(child) }));
        Err(dropped.err().unwrap_or_else(|| Box::new(Dropped)))
    }
    // SAFETY: the caller's promise; the `ChildWaker` is the first field of the child.
    let child = unsafe { &*child_waker.cast::<ChildHeader>() };
    if child.stage.get() != ChildStage::Future {
        return None;
    }
    if child.is_wanted.load(Ordering::Acquire) {
        return Some(false);
    }
    // Leaked, since a child's vtable must be `'static`. Only tests get here.
    child.vtable.set(Box::leak(Box::new(ChildVTable { poll, ..*child.vtable.get() })));
    Some(true)
}

/// Frees the memory of a child that has no other reference.
pub(super) fn free_memory(child: NonNull<ChildHeader>) {
    // SAFETY: spare memory still has its layout, and holds nothing with a destructor.
    let layout = unsafe { child.as_ref() }.child_waker.layout();
    // SAFETY: it was allocated with this layout.
    unsafe { dealloc(child.as_ptr().cast(), layout) };
}
