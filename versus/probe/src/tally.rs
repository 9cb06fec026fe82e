//! mimalloc, with a count of the allocations requested from it.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;

use mimalloc::MiMalloc;

/// See the head of this file.
pub(crate) struct Tally(MiMalloc);

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// How often this thread has asked for memory.
pub(crate) fn allocations() -> usize {
    ALLOCATIONS.get()
}

fn note() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

impl Tally {
    pub(crate) const fn new() -> Self {
        Self(MiMalloc)
    }
}

// SAFETY: what mimalloc promises. The count is a plain word of the thread, without a destructor, and asks for no memory.
unsafe impl GlobalAlloc for Tally {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: handed on from the caller.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: handed on from the caller.
        unsafe { self.0.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note();
        // SAFETY: handed on from the caller.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note();
        // SAFETY: handed on from the caller.
        unsafe { self.0.realloc(memory, layout, size) }
    }
}
