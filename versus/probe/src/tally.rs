//! mimalloc, with a count of what it is asked for.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use mimalloc::MiMalloc;

/// See the head of this file.
pub(crate) struct Tally(MiMalloc);

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

/// How often memory was asked for, by any thread.
pub(crate) fn allocations() -> usize {
    ALLOCATIONS.load(Relaxed)
}

impl Tally {
    pub(crate) const fn new() -> Self {
        Self(MiMalloc)
    }
}

// SAFETY: what mimalloc promises.
unsafe impl GlobalAlloc for Tally {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: handed on from the caller.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: handed on from the caller.
        unsafe { self.0.dealloc(memory, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: handed on from the caller.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: handed on from the caller.
        unsafe { self.0.realloc(memory, layout, size) }
    }
}
