//! Memory with the alignment that direct disk access needs.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use super::buffer::{Buffer, BufferMut, place_of};

/// The alignment that disks need: a page, which is also the larger of the sector sizes in use.
const ALIGNMENT: usize = 4096;

/// A byte buffer with an aligned address, for files that were opened for
/// [direct access](super::OpenOptions::direct).
///
/// Its length is fixed. For direct access the length must be a multiple of the disk's block size, and so must
/// the position in the file: 4096 always works, 512 often.
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
    /// Allocated with `layout`, and initialised.
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: it owns its memory, which is plain bytes.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above; a shared reference only reads.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Makes a buffer of `len` zeros, aligned to 4096 bytes.
    #[must_use]
    pub fn new(len: usize) -> AlignedBuf {
        AlignedBuf::with_alignment(len, ALIGNMENT)
    }

    /// Makes a buffer of `len` zeros, aligned to `alignment` bytes.
    ///
    /// # Panics
    ///
    /// If the alignment is not a power of two, or the length overflows `isize` when it is rounded up to the alignment.
    #[must_use]
    pub fn with_alignment(len: usize, alignment: usize) -> AlignedBuf {
        let layout = Layout::from_size_align(len, alignment)
            .expect("alignment not a power of two, or length too large");
        if len == 0 {
            return AlignedBuf { start: layout.dangling_ptr(), layout };
        }
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        AlignedBuf { start, layout }
    }

    /// The alignment of the address.
    #[must_use]
    pub fn alignment(&self) -> usize {
        self.layout.align()
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        if self.layout.size() > 0 {
            // SAFETY: it was allocated with this layout, and is not used after this.
            unsafe { dealloc(self.start.as_ptr(), self.layout) };
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `size` bytes are initialised there, and this value owns them.
        unsafe { NonNull::slice_from_raw_parts(self.start, self.layout.size()).as_ref() }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` excludes other uses.
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

// SAFETY: the bytes are behind a pointer that it owns.
unsafe impl Buffer for AlignedBuf {
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: as above, and all of the bytes are initialised.
unsafe impl BufferMut for AlignedBuf {
    fn room(&mut self) -> (NonNull<u8>, usize) {
        place_of(self)
    }

    unsafe fn filled(&mut self, _len: usize) {}
}
