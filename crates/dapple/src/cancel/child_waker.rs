//! The waker of a child of a scope, and the part of the child that its wakers share.
//!
//! Only the poller of the scope polls a child, and touches its future or output. All that others can do is to push the child
//! to the scope's ready list, once, by its waker, and to keep its memory.
//!
//! # Invariants
//!
//! * **IN-LINE-ONCE**: the thread that changes `queued` to true pushes the child to the scope's ready list. `queued` is
//!   changed back before the child is polled, by a step that sees all that the threads did which found it true.
//! * **BIASED**: while a child belongs to its scope, its count of references is too large by BIAS. So the references that the
//!   polling thread counts in its context cannot make the count reach zero. A child in the ready list has a reference.
//! * **SCOPE-LIVES**: while a child belongs to its scope, the poller of the scope keeps the [`CancelScope`]. A child that
//!   leaves its scope while there are references keeps the `CancelScope` itself.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::task::{Context, RawWaker, RawWakerVTable, Waker};

use super::scope::{CancelScope, PollerWake};
use crate::context::{Fills, OfChild, ThreadContext, with_context};
use crate::prim::{AtomicBool, AtomicPtr, AtomicU64, Ordering, dealloc};
use crate::task::guarded::GuardedWaker;
use crate::task::waker::register_child_vtable;

const BIAS: u64 = 1 << 40;

/// The part of a child that its wakers share. The scope's own part, with the future, follows it in memory.
#[repr(C)]
pub(crate) struct ChildWaker {
    refs: AtomicU64,
    queued: AtomicBool,
    /// The next one in the ready list.
    next: AtomicPtr<ChildWaker>,
    /// SCOPE-LIVES
    scope: *const CancelScope,
    kept: UnsafeCell<Option<Arc<CancelScope>>>,
    /// The layout of the child's memory.
    layout: Layout,
}

pub(crate) type ChildPtr = NonNull<ChildWaker>;

// SAFETY: no other type fills it. ONE-TYPE
unsafe impl Fills<OfChild> for ChildWaker {}

/// The result of a poll, as far as the child's waker is concerned.
pub(crate) struct ChildPolled {
    /// The child has woken itself.
    pub(crate) woken: bool,
}

impl ChildWaker {
    /// A child that is not in the ready list and has no references, for memory of this layout.
    #[inline]
    pub(crate) fn new(scope: &Arc<CancelScope>, layout: Layout) -> ChildWaker {
        ChildWaker {
            refs: AtomicU64::new(BIAS),
            queued: AtomicBool::new(false),
            next: AtomicPtr::new(null_mut()),
            scope: Arc::as_ptr(scope),
            kept: UnsafeCell::new(None),
            layout,
        }
    }

    /// The next one in the list. For the owner of the list.
    #[inline]
    pub(crate) fn next_child(&self) -> *mut ChildWaker {
        self.next.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_next_child(&self, next: *mut ChildWaker) {
        self.next.store(next, Ordering::Relaxed);
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// The child was taken out of the ready list and is about to be polled. IN-LINE-ONCE
    #[inline]
    pub(crate) fn note_dequeued(&self) {
        self.queued.swap(false, Ordering::AcqRel);
    }

    /// As a wake-up: `true` if the caller has to push the child to the ready list, with the reference that this adds.
    pub(crate) fn try_enqueue(&self) -> bool {
        let first = !self.queued.swap(true, Ordering::AcqRel);
        if first {
            self.refs.fetch_add(1, Ordering::Relaxed);
        }
        first
    }

    /// Adds a reference. For the poller of the scope.
    pub(crate) fn add_ref(&self) {
        self.refs.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `poll` with the child's waker. `was_queued`: the child comes from the ready list, whose reference is dropped.
    ///
    /// # Safety
    ///
    /// The child belongs to its scope, which is being polled on this thread.
    #[inline]
    pub(crate) unsafe fn poll<R>(
        child: ChildPtr,
        context: &ThreadContext,
        was_queued: bool,
        poll: impl FnOnce(&mut Context<'_>) -> R,
    ) -> (R, ChildPolled) {
        // SAFETY: the waker is not dropped, so it needs no reference: the child exists throughout this poll. BIASED
        let waker = ManuallyDrop::new(unsafe { waker(child.as_ptr().cast()) });
        let outer = context.enter_child(child.as_ptr(), &raw const *waker);
        let result = poll(&mut Context::from_waker(&waker)); // does not unwind
        let (refs, woken) = context.leave_child(outer);
        let change = refs - i64::from(was_queued);
        if change != 0 {
            // SAFETY: it exists. BIASED
            unsafe { child.as_ref() }.refs.fetch_add(change.cast_unsigned(), Ordering::AcqRel);
        }
        (result, ChildPolled { woken })
    }

    /// The child leaves its scope, without a future or an output. `true`: there is no reference to it, and its memory is the
    /// caller's.
    ///
    /// # Safety
    ///
    /// The child belongs to `scope` until now, and the caller is the poller of `scope`.
    #[inline]
    pub(crate) unsafe fn leave(child: ChildPtr, scope: &Arc<CancelScope>) -> bool {
        // SAFETY: it exists. BIASED
        if unsafe { child.as_ref() }.refs.load(Ordering::Acquire) == BIAS {
            return true;
        }
        // SAFETY: handed on from the caller.
        unsafe { ChildWaker::leave_to_others(child, scope) }
    }

    #[cold]
    unsafe fn leave_to_others(child: ChildPtr, scope: &Arc<CancelScope>) -> bool {
        // SAFETY: it exists. BIASED
        let this = unsafe { child.as_ref() };
        this.queued.store(true, Ordering::Relaxed); // so that no waker pushes it any more
        // SAFETY: no other thread accesses `kept` before the last reference is gone. SCOPE-LIVES
        unsafe { *this.kept.get() = Some(scope.clone()) };
        if this.refs.fetch_sub(BIAS, Ordering::AcqRel) == BIAS {
            // SAFETY: there is no reference, nor will there be.
            unsafe { *this.kept.get() = None };
            return true;
        }
        false
    }

    /// Drops a reference.
    ///
    /// # Safety
    ///
    /// The caller has it.
    pub(crate) unsafe fn drop_ref(child: ChildPtr) {
        // SAFETY: handed on from the caller.
        if unsafe { child.as_ref() }.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: it was the last, and the child has left its scope. BIASED
            unsafe { free(child) };
        }
    }
}

/// Frees a child that has left its scope.
///
/// # Safety
///
/// There is no reference to it any more.
unsafe fn free(child: ChildPtr) {
    // SAFETY: there is no reference, so it is the caller's.
    let layout = unsafe { child.as_ref() }.layout;
    // SAFETY: as above; the part behind it has been dropped.
    unsafe { child.drop_in_place() };
    // SAFETY: it was allocated with this layout.
    unsafe { dealloc(child.as_ptr().cast(), layout) };
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

fn ptr(data: *const ()) -> ChildPtr {
    ChildPtr::new(data.cast_mut().cast()).expect("a waker of a child has a child")
}

#[inline]
fn child_waker<'a>(data: *const ()) -> &'a ChildWaker {
    // SAFETY: the data of these wakers is a child that exists while they do.
    unsafe { &*data.cast::<ChildWaker>() }
}

#[inline]
fn is_own(context: &ThreadContext, data: *const ()) -> bool {
    context.child() == data.cast::<ChildWaker>()
}

#[inline]
fn clone(data: *const ()) -> RawWaker {
    with_context(|context| {
        if is_own(context, data) {
            context.count_child_refs(1);
        } else {
            child_waker(data).refs.fetch_add(1, Ordering::Relaxed);
        }
    });
    RawWaker::new(data, &VTABLE)
}

#[inline]
fn wake_by_ref(data: *const ()) {
    with_context(|context| {
        if is_own(context, data) {
            context.note_child_woken();
        } else if child_waker(data).try_enqueue() {
            push(context, ptr(data));
        }
    });
}

#[inline]
fn wake(data: *const ()) {
    with_context(|context| {
        if is_own(context, data) {
            context.note_child_woken();
            context.count_child_refs(-1);
        } else if child_waker(data).queued.swap(true, Ordering::AcqRel) {
            // SAFETY: the waker has a reference, which is dropped here.
            unsafe { ChildWaker::drop_ref(ptr(data)) };
        } else {
            push(context, ptr(data)); // with the waker's reference. IN-LINE-ONCE
        }
    });
}

#[inline]
fn drop_waker(data: *const ()) {
    with_context(|context| {
        if is_own(context, data) {
            context.count_child_refs(-1);
        } else {
            // SAFETY: the waker has a reference, which is dropped here.
            unsafe { ChildWaker::drop_ref(ptr(data)) };
        }
    });
}

/// Pushes a child to the ready list of its scope, with a reference, and wakes the poller of the scope.
fn push(context: &ThreadContext, child: ChildPtr) {
    // SAFETY: the reference keeps it in memory until it is in the list.
    let scope = unsafe { child.as_ref() }.scope;
    // SAFETY: the child is not in the list yet, so it exists, and with it the scope. SCOPE-LIVES
    let ready = unsafe { &(*scope).ready };
    let mut wake = PollerWake::None;
    let mut seen = ready.look();
    loop {
        if seen.is_closed() {
            // SAFETY: it is not in the list, so the reference is still ours.
            unsafe { ChildWaker::drop_ref(child) };
            break;
        }
        // SAFETY: as above.
        unsafe { wake.prepare(scope, seen, context) };
        // SAFETY: its reference keeps it in memory while it is in the list, and its `next` is ours. IN-LINE-ONCE
        match unsafe { ready.push(seen, child) } {
            Ok(()) => break,
            Err(now) => seen = now,
        }
    }
    wake.give(); // by now child and scope may be gone
}

/// A waker of the child behind `data`.
///
/// # Safety
///
/// The caller has a reference to the child, which becomes the waker's.
#[inline]
unsafe fn waker(data: *const ()) -> Waker {
    // SAFETY: the functions keep the contract of `RawWaker`; the child exists while it has references.
    unsafe { Waker::from_raw(RawWaker::new(data, &VTABLE)) }
}

/// The waker of the child that is polled here, if there is one.
pub(super) fn current_waker(context: &ThreadContext) -> Option<GuardedWaker> {
    let child = NonNull::new(context.child::<ChildWaker>().cast_mut())?;
    // SAFETY: it is being polled, so it exists; the waker is not dropped, so it needs no reference. BIASED
    let waker = ManuallyDrop::new(unsafe { waker(child.as_ptr().cast()) });
    Some(GuardedWaker::of(&waker))
}

/// Makes `task::waker` recognize these wakers. Every scope calls this before it can have a child.
#[inline]
pub(super) fn register_vtable() {
    register_child_vtable(&VTABLE);
}
