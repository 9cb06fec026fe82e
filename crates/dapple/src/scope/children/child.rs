//! One child in memory: its header, and behind that its future, then its output.
//!
//! # Invariants
//!
//! * **CHILD-STAGE**: a child has a future until that is done, then its output until somebody takes it, or nobody
//!   wants it, and then nothing. It is in the list until there is nothing.

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

/// The part of a child that does not depend on its future. Behind it comes the stage.
#[repr(C)]
pub(in crate::scope) struct ChildHeader {
    pub(super) strand: ChildWaker,
    pub(super) vtable: Cell<&'static ChildVTable>,
    pub(super) next: Cell<*mut ChildHeader>,
    pub(super) previous: Cell<*mut ChildHeader>,
    /// The next in the same [`ChildQueue`], if it is in one.
    pub(super) behind: Cell<*mut ChildHeader>,
    pub(super) is_put_off: Cell<bool>,
    /// It counts among those that are staying.
    pub(super) stays: Cell<bool>,
    pub(super) stage: Cell<ChildStage>,
    /// There is somebody who may ask for its output.
    pub(super) is_wanted: AtomicBool,
    /// Whom to wake when it is done.
    pub(super) joiner: Cell<Option<Joiner>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ChildStage {
    Future,
    Output,
    /// It panicked, and was wanted.
    Panicked,
    Nothing,
}

pub(super) enum Joiner {
    /// The scope's body, or what was polled with the waker of that.
    Body,
    Waker(GuardedWaker),
    /// It was woken, and has not taken the value. ON-ITS-WAY
    Woken,
}

pub(super) struct ChildVTable {
    /// `true`: it is done, and its output is in place of the future. An error: it panicked, and both are
    /// gone.
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
        // SAFETY: the child is one of `F`, and the caller may touch its stage. CHILD-STAGE
        unsafe { &mut *UnsafeCell::raw_get(stage) }
    }

    unsafe fn poll(child: NonNull<ChildHeader>, cx: &mut Context<'_>) -> Result<bool, ChildPanic> {
        // SAFETY: handed on from the caller.
        let polled = unsafe { Self::poll_inline(child, cx) };
        polled.map(|polled| match polled {
            Poll::Pending => false,
            Poll::Ready(output) => {
                // SAFETY: there is nothing in the stage any more.
                unsafe { Self::stage(child) }.output = ManuallyDrop::new(output);
                true
            }
        })
    }

    /// If it is done, or panicked, the future is gone.
    #[inline(always)]
    pub(super) unsafe fn poll_inline(
        child: NonNull<ChildHeader>,
        cx: &mut Context<'_>,
    ) -> Result<Poll<F::Output>, ChildPanic> {
        // SAFETY: handed on from the caller.
        let stage = unsafe { Self::stage(child) };
        let mut future_is_there = true;
        let polled = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: there is a future (CHILD-STAGE), which is pinned: it stays where it is until it is dropped.
            let future = unsafe { Pin::new_unchecked(&mut *stage.future) };
            let polled = future.poll(cx);
            if polled.is_ready() {
                future_is_there = false;
                // SAFETY: it is not touched again.
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
        // SAFETY: handed on from the caller.
        let stage = unsafe { Self::stage(child) };
        // SAFETY: there is a future (CHILD-STAGE), which is not touched again.
        unsafe { ManuallyDrop::drop(&mut stage.future) };
    }

    unsafe fn drop_output(child: NonNull<ChildHeader>) {
        // SAFETY: handed on from the caller.
        let stage = unsafe { Self::stage(child) };
        // SAFETY: there is an output (CHILD-STAGE), which is not touched again.
        unsafe { ManuallyDrop::drop(&mut stage.output) };
    }

    unsafe fn take_output(child: NonNull<ChildHeader>, to: *mut ()) {
        // SAFETY: handed on from the caller.
        let stage = unsafe { Self::stage(child) };
        // SAFETY: there is an output (CHILD-STAGE), which is not touched again.
        let output = unsafe { ManuallyDrop::take(&mut stage.output) };
        // SAFETY: the caller says that there is room for it.
        unsafe { to.cast::<F::Output>().write(output) };
    }
}

/// The payload of a child that was dropped by [`drop_started`]: no panic.
pub(super) struct Dropped;

/// Drops a started child when it is polled next, for a simulation. `Some(false)`: its value may be asked for, so that
/// it cannot be dropped. `None`: it has ended.
///
/// # Safety
///
/// The strand is that of a child, in memory, whose scope is not being polled by another thread.
pub(crate) unsafe fn drop_started(strand: *const ChildWaker) -> Option<bool> {
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
    // SAFETY: handed on from the caller: the strand is the first field of the child.
    let child = unsafe { &*strand.cast::<ChildHeader>() };
    if child.stage.get() != ChildStage::Future {
        return None;
    }
    if child.is_wanted.load(Ordering::Acquire) {
        return Some(false);
    }
    // Leaked: a child has a vtable for ever, and this is for tests.
    child.vtable.set(Box::leak(Box::new(ChildVTable { poll, ..*child.vtable.get() })));
    Some(true)
}

/// Frees the memory of a child that is nobody else's.
pub(super) fn free_memory(child: NonNull<ChildHeader>) {
    // SAFETY: what is spare still has its layout, and nothing in it that has a destructor.
    let layout = unsafe { child.as_ref() }.strand.layout();
    // SAFETY: it was allocated with this layout.
    unsafe { dealloc(child.as_ptr().cast(), layout) };
}
