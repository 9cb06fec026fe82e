//! The memory of children of scopes, in models: loom watches over its use.

use std::alloc::Layout;
use std::sync::Arc;

use loom::cell::UnsafeCell;

use crate::cancel::child_waker::{ChildPtr, ChildWaker};
use crate::cancel::scope::CancelScope;

/// A child in memory that loom watches over: a use reads `memory`, and the end of its memory writes it.
#[repr(C)]
pub(crate) struct Watched {
    child: ChildWaker,
    memory: UnsafeCell<()>,
}

impl Watched {
    pub(crate) fn new_child(scope: &Arc<CancelScope>) -> ChildPtr {
        let layout = Layout::new::<Watched>();
        // SAFETY: the layout is not of size zero.
        let memory = unsafe { loom::alloc::alloc(layout) }.cast::<Watched>();
        // SAFETY: there is room for it.
        unsafe {
            memory.write(Watched { child: ChildWaker::new(scope, layout), memory: UnsafeCell::new(()) })
        };
        ChildPtr::new(memory.cast()).expect("there is memory for a model")
    }

    /// Uses the child.
    ///
    /// # Safety
    ///
    /// It was made by `new_child`, and the caller has a reference.
    pub(crate) unsafe fn touch(child: ChildPtr) {
        // SAFETY: handed on from the caller.
        unsafe { child.cast::<Watched>().as_ref() }.memory.with(|_| ());
    }
}

/// In place of `std::alloc::dealloc`, for children: a use of the memory after this is a failure of the model.
pub(crate) unsafe fn dealloc(memory: *mut u8, layout: Layout) {
    // SAFETY: in models, all children are made by `Watched::new_child`.
    unsafe { &*memory.cast::<Watched>() }.memory.with_mut(|_| ());
    // SAFETY: handed on from the caller.
    unsafe { loom::alloc::dealloc(memory, layout) };
}
