//! Zeroed memory straight from the system: what is not touched takes none.

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;

/// A piece of zeroed memory, given back when dropped.
pub(super) struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

impl Memory {
    /// At least `size` bytes, aligned to `align`, a power of two. Ends the process if there is none,
    /// as an allocator would.
    pub(super) fn map(size: usize, align: usize) -> Memory {
        let layout = Layout::from_size_align(size, align).expect("a future that fits into memory");
        let start = system::map(layout).unwrap_or_else(|| handle_alloc_error(layout));
        Memory { start, layout }
    }

    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) fn size(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it came from `map`, with this layout, and its user is done with it.
        unsafe { system::unmap(self.start, self.layout) };
    }
}

#[cfg(not(miri))]
mod system {
    use std::alloc::Layout;
    use std::ptr::{NonNull, null_mut};

    /// Maps more than is wanted, and gives back what lies before and behind the aligned part.
    pub(super) fn map(layout: Layout) -> Option<NonNull<u8>> {
        let whole = layout.size().checked_add(layout.align())?;
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, wherever the system likes.
        let mapped = unsafe { libc::mmap(null_mut(), whole, access, kind, -1, 0) };
        if mapped == libc::MAP_FAILED {
            return None;
        }
        let mapped = mapped.cast::<u8>();
        let before = mapped.align_offset(layout.align());
        // SAFETY: `before` is less than `align`, so it lies within the mapping.
        let start = unsafe { mapped.add(before) };
        let size = layout.size().next_multiple_of(page_size());
        // SAFETY: it lies within the mapping: its size and `before` add up to less than `whole`,
        // but for the last page, and mappings are whole pages.
        let end = unsafe { start.add(size) };
        let behind = whole.next_multiple_of(page_size()) - before - size;
        for (part, size) in [(mapped, before), (end, behind)] {
            if size > 0 {
                // SAFETY: a part of our mapping, of whole pages, that is not in use.
                unsafe { libc::munmap(part.cast(), size) };
            }
        }
        NonNull::new(start)
    }

    /// # Safety
    ///
    /// It came from `map` with the same layout, and is not used any more.
    pub(super) unsafe fn unmap(start: NonNull<u8>, layout: Layout) {
        let size = layout.size().next_multiple_of(page_size());
        // SAFETY: handed on from the caller.
        let unmapped = unsafe { libc::munmap(start.as_ptr().cast(), size) };
        debug_assert_eq!(unmapped, 0);
    }

    fn page_size() -> usize {
        // SAFETY: asks for a constant of the system.
        let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        usize::try_from(size).unwrap_or(4096)
    }
}

/// Miri knows no mappings to cut up.
#[cfg(miri)]
mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::ptr::NonNull;

    pub(super) fn map(layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: the layout is not empty.
        NonNull::new(unsafe { alloc_zeroed(layout) })
    }

    pub(super) unsafe fn unmap(start: NonNull<u8>, layout: Layout) {
        // SAFETY: it came from `map` with the same layout.
        unsafe { dealloc(start.as_ptr(), layout) };
    }
}
