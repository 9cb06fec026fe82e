//! Replaces `task::context` in models: the part of a thread's context that child wakers use.
//!
//! `enter_child` and `leave_child` do the same as those of `task::context`.

use std::alloc::Layout;
use std::cell::Cell;
use std::ptr::null;
use std::sync::Arc;
use std::task::Waker;

use loom::cell::UnsafeCell;

use super::cancel_scope::{CancelFrame, CancelScope};
use super::child_waker::{ChildPtr, ChildWaker};

pub(crate) struct ThreadContext {
    pub(crate) link: Cell<*const CancelFrame>,
    pub(crate) own: Cell<*const Waker>,
    pub(crate) strand: Cell<*const ChildWaker>,
    pub(crate) strand_refs: Cell<i64>,
    pub(crate) strand_woken: Cell<bool>,
    pub(crate) gave_way: Cell<usize>,
    /// A model has no tasks.
    pub(crate) current: Cell<*const ()>,
}

loom::thread_local! {
    static HERE: ThreadContext = ThreadContext {
        link: Cell::new(null()),
        own: Cell::new(null()),
        strand: Cell::new(null()),
        strand_refs: Cell::new(0),
        strand_woken: Cell::new(false),
        gave_way: Cell::new(0),
        current: Cell::new(null()),
    };
}

pub(crate) fn with_context<R>(f: impl FnOnce(&ThreadContext) -> R) -> R {
    HERE.with(f)
}

pub(crate) struct OuterChild {
    strand: *const ChildWaker,
    own: *const Waker,
    refs: i64,
    woken: bool,
}

impl ThreadContext {
    pub(crate) fn enter_child(&self, strand: *const ChildWaker, waker: *const Waker) -> OuterChild {
        OuterChild {
            strand: self.strand.replace(strand),
            own: self.own.replace(waker),
            refs: self.strand_refs.replace(0),
            woken: self.strand_woken.replace(false),
        }
    }

    pub(crate) fn leave_child(&self, outer: OuterChild) -> (i64, bool) {
        self.strand.set(outer.strand);
        self.own.set(outer.own);
        (self.strand_refs.replace(outer.refs), self.strand_woken.replace(outer.woken))
    }
}

/// A `ChildWaker` in memory that loom checks: each user reads `memory`, and the code that frees it writes
/// `memory`.
#[repr(C)]
pub(crate) struct Watched {
    strand: ChildWaker,
    memory: UnsafeCell<()>,
}

impl Watched {
    pub(crate) fn new_strand(reach: &Arc<CancelScope>) -> ChildPtr {
        let layout = Layout::new::<Watched>();
        // SAFETY: it is not of size zero.
        let memory = unsafe { loom::alloc::alloc(layout) }.cast::<Watched>();
        // SAFETY: the memory is large enough.
        unsafe {
            memory.write(Watched { strand: ChildWaker::new(reach, layout), memory: UnsafeCell::new(()) })
        };
        ChildPtr::new(memory.cast()).expect("there is memory for a model")
    }

    /// Records a use.
    ///
    /// # Safety
    ///
    /// It was made by `new_strand`, and the caller has a reference.
    pub(crate) unsafe fn touch(strand: ChildPtr) {
        // SAFETY: the caller's promise.
        unsafe { strand.cast::<Watched>().as_ref() }.memory.with(|_| ());
    }
}

/// Replaces `std::alloc::dealloc` for `ChildWaker`s: there must be no user of the memory any more.
pub(crate) unsafe fn dealloc(memory: *mut u8, layout: Layout) {
    // SAFETY: in models, all `ChildWaker`s are in checked memory.
    unsafe { &*memory.cast::<Watched>() }.memory.with_mut(|_| ());
    // SAFETY: the caller's promise.
    unsafe { loom::alloc::dealloc(memory, layout) };
}
