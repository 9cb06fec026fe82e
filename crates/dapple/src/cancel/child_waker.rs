//! A strand: what was started in a scope, as its waker sees it.
//!
//! Only who polls the scope polls a strand, and touches its future or what that left. All that others can
//! do is to put it in line, once, by its waker, and to keep its memory.
//!
//! # Invariants
//!
//! * **IN-LINE-ONCE**: whoever changes `queued` to true puts the strand into the scope's line. It is
//!   changed back before the strand is polled, by a step that sees all that those did who found it true.
//! * **BIASED**: while a strand belongs to its scope, its count of references is too large by BIAS, so
//!   that references which the polling thread has counted on the side cannot be missed. What is in line
//!   has a reference.
//! * **REACH-LIVES**: while a strand belongs to its scope, that keeps the reach. One that leaves it while
//!   somebody has references keeps the reach itself.

use std::alloc::Layout;
#[cfg(not(loom))]
use std::alloc::dealloc;
use std::cell::UnsafeCell;
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::task::{Context, RawWaker, RawWakerVTable, Waker};

use super::cancel_scope::{CancelScope, Nudge};
#[cfg(loom)]
use super::context::dealloc;
use super::context::{ThreadContext, with_context};
#[cfg(not(loom))]
use super::guarded::GuardedWaker;
use crate::prim::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

const BIAS: u64 = 1 << 40;

/// See the head of this file. The scope's own part, the future included, comes behind it in memory.
#[repr(C)]
pub(crate) struct ChildWaker {
    refs: AtomicU64,
    queued: AtomicBool,
    link: AtomicPtr<ChildWaker>,
    /// REACH-LIVES
    reach: *const CancelScope,
    kept: UnsafeCell<Option<Arc<CancelScope>>>,
    /// Of the memory that it lies in.
    layout: Layout,
}

pub(crate) type ChildPtr = NonNull<ChildWaker>;

/// How a poll of a strand went, as far as its waker is concerned.
pub(crate) struct ChildPolled {
    /// It has woken itself.
    pub(crate) woken: bool,
}

impl ChildWaker {
    /// One that is not in line, has no references, and lies in memory of this layout.
    #[inline]
    pub(crate) fn new(reach: &Arc<CancelScope>, layout: Layout) -> ChildWaker {
        ChildWaker {
            refs: AtomicU64::new(BIAS),
            queued: AtomicBool::new(false),
            link: AtomicPtr::new(null_mut()),
            reach: Arc::as_ptr(reach),
            kept: UnsafeCell::new(None),
            layout,
        }
    }

    /// The next in line. For who has it in its line.
    #[inline]
    pub(crate) fn next_link(&self) -> *mut ChildWaker {
        self.link.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn set_link(&self, next: *mut ChildWaker) {
        self.link.store(next, Ordering::Relaxed);
    }

    pub(crate) fn layout(&self) -> Layout {
        self.layout
    }

    /// It was taken out of the line and is about to be polled. IN-LINE-ONCE
    #[inline]
    pub(crate) fn leave_line(&self) {
        self.queued.swap(false, Ordering::AcqRel);
    }

    /// Puts it in line, as a waker would. `true`: the caller has to, with a reference of its own.
    pub(crate) fn enter_line(&self) -> bool {
        let first = !self.queued.swap(true, Ordering::AcqRel);
        if first {
            self.refs.fetch_add(1, Ordering::Relaxed);
        }
        first
    }

    /// Adds a reference. For who polls the scope.
    pub(crate) fn add_ref(&self) {
        self.refs.fetch_add(1, Ordering::Relaxed);
    }

    /// Calls `poll` with the strand's waker. `in_line`: it was in line, whose reference is given back.
    ///
    /// # Safety
    ///
    /// The strand belongs to its scope, which is being polled on this thread.
    #[inline]
    pub(crate) unsafe fn poll<R>(
        strand: ChildPtr,
        here: &ThreadContext,
        in_line: bool,
        poll: impl FnOnce(&mut Context<'_>) -> R,
    ) -> (R, ChildPolled) {
        // Not dropped: the strand lives through this poll without a reference. BIASED
        // SAFETY: as above.
        let waker = ManuallyDrop::new(unsafe { waker(strand.as_ptr().cast()) });
        let around = here.enter_child(strand.as_ptr(), &raw const *waker);
        let result = poll(&mut Context::from_waker(&waker)); // does not unwind
        let (refs, woken) = here.leave_child(around);
        let change = refs - i64::from(in_line);
        if change != 0 {
            // SAFETY: it lives. BIASED
            unsafe { strand.as_ref() }.refs.fetch_add(change.cast_unsigned(), Ordering::AcqRel);
        }
        (result, ChildPolled { woken })
    }

    /// The scope is done with it: there is neither a future nor an output. `true`: nobody else knows of
    /// it, and its memory is the caller's.
    ///
    /// # Safety
    ///
    /// It belongs to the scope of this reach, which is the caller's business, and does not from now on.
    #[inline]
    pub(crate) unsafe fn leave(strand: ChildPtr, reach: &Arc<CancelScope>) -> bool {
        // SAFETY: it lives. BIASED
        if unsafe { strand.as_ref() }.refs.load(Ordering::Acquire) == BIAS {
            return true;
        }
        // SAFETY: handed on from the caller.
        unsafe { ChildWaker::leave_to_others(strand, reach) }
    }

    #[cold]
    unsafe fn leave_to_others(strand: ChildPtr, reach: &Arc<CancelScope>) -> bool {
        // SAFETY: it lives. BIASED
        let this = unsafe { strand.as_ref() };
        this.queued.store(true, Ordering::Relaxed); // nobody need put it in line any more
        // SAFETY: nobody else looks at it before the last reference is gone. REACH-LIVES
        unsafe { *this.kept.get() = Some(reach.clone()) };
        if this.refs.fetch_sub(BIAS, Ordering::AcqRel) == BIAS {
            // SAFETY: nobody has a reference, nor will.
            unsafe { *this.kept.get() = None };
            return true;
        }
        false
    }

    /// Gives up a reference.
    ///
    /// # Safety
    ///
    /// The caller has it.
    pub(crate) unsafe fn drop_ref(strand: ChildPtr) {
        // SAFETY: handed on from the caller.
        if unsafe { strand.as_ref() }.refs.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: it was the last, and the strand has left its scope. BIASED
            unsafe { free(strand) };
        }
    }
}

/// Frees a strand that has left its scope.
///
/// # Safety
///
/// There is no reference to it any more.
unsafe fn free(strand: ChildPtr) {
    // SAFETY: it is the caller's.
    let layout = unsafe { strand.as_ref() }.layout;
    // SAFETY: as above; behind it there is nothing any more that has a destructor.
    unsafe { strand.drop_in_place() };
    // SAFETY: it was allocated with this layout.
    unsafe { dealloc(strand.as_ptr().cast(), layout) };
}

static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

fn ptr(data: *const ()) -> ChildPtr {
    ChildPtr::new(data.cast_mut().cast()).expect("a waker of ours has a strand")
}

#[inline]
fn child_waker<'a>(data: *const ()) -> &'a ChildWaker {
    // SAFETY: the data of our wakers is a strand that is alive while they are.
    unsafe { &*data.cast::<ChildWaker>() }
}

#[inline]
fn is_own(here: &ThreadContext, data: *const ()) -> bool {
    here.strand.get() == data.cast::<ChildWaker>()
}

#[inline]
fn clone(data: *const ()) -> RawWaker {
    with_context(|here| {
        if is_own(here, data) {
            here.strand_refs.set(here.strand_refs.get() + 1);
        } else {
            child_waker(data).refs.fetch_add(1, Ordering::Relaxed);
        }
    });
    RawWaker::new(data, &VTABLE)
}

#[inline]
fn wake_by_ref(data: *const ()) {
    with_context(|here| {
        if is_own(here, data) {
            here.strand_woken.set(true);
        } else if child_waker(data).enter_line() {
            push(here, ptr(data));
        }
    });
}

#[inline]
fn wake(data: *const ()) {
    with_context(|here| {
        if is_own(here, data) {
            here.strand_woken.set(true);
            here.strand_refs.set(here.strand_refs.get() - 1);
        } else if child_waker(data).queued.swap(true, Ordering::AcqRel) {
            // SAFETY: the waker has a reference, which it gives up.
            unsafe { ChildWaker::drop_ref(ptr(data)) };
        } else {
            push(here, ptr(data)); // with the waker's reference. IN-LINE-ONCE
        }
    });
}

#[inline]
fn drop_waker(data: *const ()) {
    with_context(|here| {
        if is_own(here, data) {
            here.strand_refs.set(here.strand_refs.get() - 1);
        } else {
            // SAFETY: the waker has a reference, which it gives up.
            unsafe { ChildWaker::drop_ref(ptr(data)) };
        }
    });
}

/// Puts a strand in line, with a reference, and sees to it that its scope is polled.
fn push(here: &ThreadContext, strand: ChildPtr) {
    // SAFETY: the reference keeps it alive, until it is in line.
    let reach = unsafe { strand.as_ref() }.reach;
    // SAFETY: the strand is not in line yet, so it lives, and with it the reach. REACH-LIVES
    let woken = unsafe { &(*reach).woken };
    let mut nudge = Nudge::None;
    let mut seen = woken.look();
    loop {
        if seen.is_closed() {
            // SAFETY: it is not in line, so the reference is still ours.
            unsafe { ChildWaker::drop_ref(strand) };
            break;
        }
        // SAFETY: as above.
        unsafe { nudge.prepare(reach, seen, here) };
        // SAFETY: its reference keeps it alive while it is in line, and its link is ours. IN-LINE-ONCE
        match unsafe { woken.push(seen, strand) } {
            Ok(()) => break,
            Err(now) => seen = now,
        }
    }
    nudge.give(); // by now strand and reach may be gone
}

/// The waker of a strand, by the data of one.
///
/// # Safety
///
/// The caller has a reference to the strand, and gives it away.
#[inline]
pub(super) unsafe fn waker(data: *const ()) -> Waker {
    // SAFETY: the functions keep the contract of `RawWaker`; the strand lives while it has references.
    unsafe { Waker::from_raw(RawWaker::new(data, &VTABLE)) }
}

/// The waker of the strand that is polled here, if one is.
#[cfg(not(loom))]
pub(super) fn current_waker(here: &ThreadContext) -> Option<GuardedWaker> {
    let strand = NonNull::new(here.strand.get().cast_mut())?;
    // SAFETY: it is being polled, so it lives; the waker is not dropped, so that it needs no reference. BIASED
    let waker = ManuallyDrop::new(unsafe { waker(strand.as_ptr().cast()) });
    Some(GuardedWaker::of(&waker))
}

/// Whether it is the waker of a strand.
#[inline]
pub(super) fn is_behind(waker: &Waker) -> bool {
    std::ptr::eq(waker.vtable(), &raw const VTABLE)
}
