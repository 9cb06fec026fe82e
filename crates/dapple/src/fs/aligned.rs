//! Memory that is aligned as direct access to a disk wants it.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::buffer::{Buffer, BufferMut, place_of};

/// What disks want: a page, and the size of the larger of the sectors in use.
const ALIGNMENT: usize = 4096;

/// Bytes whose address is a multiple of the alignment: what a file that was opened for
/// [direct access](super::OpenOptions::direct) is read into and written from.
///
/// Its length does not change. For direct access it must be a multiple of the disk's block size, and so must
/// the position in the file: 4096 is always right, 512 often.
///
/// # Examples
///
/// ```
/// use dapple::fs::AlignedBuf;
///
/// let mut buffer = AlignedBuf::new(8192);
/// assert_eq!(buffer.as_ptr().addr() % 4096, 0);
/// buffer[..5].copy_from_slice(b"hello");
/// assert_eq!(buffer.len(), 8192);
/// ```
pub struct AlignedBuf {
    /// Of `layout`, and initialised.
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; through a `&` it is only read.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// So many zeros, aligned to 4096 bytes.
    #[must_use]
    pub fn new(len: usize) -> AlignedBuf {
        AlignedBuf::with_alignment(len, ALIGNMENT)
    }

    /// So many zeros, aligned to `alignment` bytes.
    ///
    /// # Panics
    ///
    /// If the alignment is not a power of two, or the length is more than an address can tell.
    #[must_use]
    pub fn with_alignment(len: usize, alignment: usize) -> AlignedBuf {
        let layout = Layout::from_size_align(len, alignment).expect("a power of two, and not too much");
        if len == 0 {
            return AlignedBuf { start: layout.dangling_ptr(), layout };
        }
        // SAFETY: it is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        AlignedBuf { start, layout }
    }

    /// What its address is a multiple of.
    #[must_use]
    pub fn alignment(&self) -> usize {
        self.layout.align()
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: it is of this layout, and goes now.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: so much is initialised there, and ours.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.layout.size()).as_ref() }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else uses it.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.layout.size()).as_mut() }
    }
}

impl Clone for AlignedBuf {
    fn clone(&self) -> AlignedBuf {
        let mut clone = AlignedBuf::with_alignment(self.len(), self.alignment());
        clone.copy_from_slice(self);
        clone
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuf")
            .field("len", &self.len())
            .field("alignment", &self.alignment())
            .finish_non_exhaustive()
    }
}

// SAFETY: the bytes lie behind a pointer that it owns.
unsafe impl Buffer for AlignedBuf {
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: as above, and all of them are initialised.
unsafe impl BufferMut for AlignedBuf {
    fn room(&mut self) -> (NonNull<u8>, usize) {
        place_of(self)
    }

    unsafe fn filled(&mut self, _len: usize) {}
}
