//! Buffers that are given to the kernel and come back: what they must promise.

use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory that can be written to a file.
///
/// # Safety
///
/// What [`bytes`](Self::bytes) returns stays where it is, and as it is, for as long as the value is neither
/// moved nor used through a `&mut`. Dropping the value on any thread is fine.
pub unsafe trait Buffer: Send + 'static {
    /// What is written.
    fn bytes(&self) -> &[u8];

    /// A part of it, in its place: to be written, or read into, without the rest.
    ///
    /// # Panics
    ///
    /// If the range is not inside of [`bytes`](Self::bytes).
    ///
    /// # Examples
    ///
    /// ```
    /// use dapple::fs::Buffer;
    ///
    /// let part = vec![1, 2, 3, 4].slice(1..3);
    /// assert_eq!(part.bytes(), [2, 3]);
    /// assert_eq!(part.into_inner(), [1, 2, 3, 4]);
    /// ```
    fn slice(self, range: impl RangeBounds<usize>) -> Slice<Self>
    where
        Self: Sized,
    {
        Slice::new(self, range)
    }
}

/// Memory that can be read into from a file.
///
/// A `Vec` that is empty is filled up to its capacity, and its length is set to what was read; any other is
/// overwritten from its beginning, up to its length, as a slice would be.
///
/// # Safety
///
/// The memory that [`room`](Self::room) tells of may be written to by anybody, from when it was called until the
/// value is next used, and stays where it is for as long as the value is not moved. If the value is also a
/// [`Buffer`] and is not empty, it is the memory of [`Buffer::bytes`]. Dropping the value on any thread is fine.
pub unsafe trait BufferMut: Send + 'static {
    /// Where it can be written to, and how much.
    fn room(&mut self) -> (NonNull<u8>, usize);

    /// The first `len` bytes of the room have been written.
    ///
    /// # Safety
    ///
    /// They have, and `len` is not more than there was room for.
    unsafe fn filled(&mut self, len: usize);
}

/// Where a slice lies, and its length.
pub(super) fn place_of(bytes: &mut [u8]) -> (NonNull<u8>, usize) {
    (NonNull::from(&mut *bytes).cast(), bytes.len())
}

/// What is a slice that stays where it is.
macro_rules! plain {
    ($($type:ty $(, const $n:ident)?;)*) => {$(
        // SAFETY: the bytes lie in it or behind a pointer that it owns.
        unsafe impl $(<const $n: usize>)? Buffer for $type {
            fn bytes(&self) -> &[u8] {
                &self[..]
            }
        }

        // SAFETY: as above, and all of them are initialised.
        unsafe impl $(<const $n: usize>)? BufferMut for $type {
            fn room(&mut self) -> (NonNull<u8>, usize) {
                place_of(&mut self[..])
            }

            unsafe fn filled(&mut self, _len: usize) {}
        }
    )*};
}

plain! {
    Box<[u8]>;
    [u8; N], const N;
    &'static mut [u8];
}

// SAFETY: the bytes lie behind a pointer that it owns.
unsafe impl Buffer for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: as above; what is beyond the length is told by a pointer to all of it.
unsafe impl BufferMut for Vec<u8> {
    fn room(&mut self) -> (NonNull<u8>, usize) {
        let len = if self.is_empty() { self.capacity() } else { self.len() };
        (NonNull::new(self.as_mut_ptr()).expect("a vector's pointer"), len)
    }

    unsafe fn filled(&mut self, len: usize) {
        if len > self.len() {
            // SAFETY: the caller promises that they are initialised, and there was room for them.
            unsafe { self.set_len(len) };
        }
    }
}

/// What can only be written from.
macro_rules! read_only {
    ($($type:ty, $bytes:ident;)*) => {$(
        // SAFETY: the bytes lie behind a pointer that it owns or shares, and nobody changes them.
        unsafe impl Buffer for $type {
            fn bytes(&self) -> &[u8] {
                self.$bytes()
            }
        }
    )*};
}

read_only! {
    &'static [u8], as_ref;
    &'static str, as_bytes;
    String, as_bytes;
    Arc<[u8]>, as_ref;
    Box<str>, as_bytes;
}

// SAFETY: as for `Vec`; it is shared, and nobody changes what is.
unsafe impl Buffer for Arc<Vec<u8>> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

/// A part of a buffer; see [`Buffer::slice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice<B> {
    buffer: B,
    start: usize,
    end: usize,
}

impl<B: Buffer> Slice<B> {
    #[track_caller]
    fn new(buffer: B, range: impl RangeBounds<usize>) -> Slice<B> {
        let len = buffer.bytes().len();
        let start = match range.start_bound() {
            Bound::Included(&start) => Some(start),
            Bound::Excluded(&start) => start.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let end = match range.end_bound() {
            Bound::Included(&end) => end.checked_add(1),
            Bound::Excluded(&end) => Some(end),
            Bound::Unbounded => Some(len),
        };
        match (start, end) {
            (Some(start), Some(end)) if start <= end && end <= len => Slice { buffer, start, end },
            _ => panic!("a part that is not inside of a buffer of {len} bytes"),
        }
    }

    /// The whole buffer.
    pub fn into_inner(self) -> B {
        self.buffer
    }

    /// The whole buffer.
    pub fn get_ref(&self) -> &B {
        &self.buffer
    }
}

// SAFETY: it is a part of the buffer's bytes, which stay where they are.
unsafe impl<B: Buffer> Buffer for Slice<B> {
    fn bytes(&self) -> &[u8] {
        &self.buffer.bytes()[self.start..self.end]
    }
}

// SAFETY: it is a part of the buffer's bytes, all of which are initialised, and which are its room.
unsafe impl<B: Buffer + BufferMut> BufferMut for Slice<B> {
    fn room(&mut self) -> (NonNull<u8>, usize) {
        let (start, len) = self.buffer.room();
        assert!(self.end <= len, "a buffer that has not as much room as bytes");
        // SAFETY: it is inside of the room.
        (unsafe { start.add(self.start) }, self.end - self.start)
    }

    unsafe fn filled(&mut self, _len: usize) {}
}
