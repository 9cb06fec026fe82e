//! The contract of buffers that are passed to the kernel and returned.

use std::ops::{Bound, RangeBounds};
use std::ptr::NonNull;
use std::sync::Arc;

/// Memory that can be written to a file: `Vec<u8>`, `Box<[u8]>`, `&'static [u8]`, and others.
///
/// # Safety
///
/// The slice that [`bytes`](Self::bytes) returns stays at its address, with the same contents, as long as the value is
/// neither moved nor used through a `&mut`. The value may be dropped on any thread.
pub unsafe trait Buffer: Send + 'static {
    /// The bytes to write.
    fn bytes(&self) -> &[u8];

    /// Restricts the buffer to a range, to write or read only that part.
    ///
    /// # Panics
    ///
    /// If the range is not inside [`bytes`](Self::bytes).
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
/// An empty `Vec` is filled up to its capacity, and its length is set to the number of bytes that were read. Any other
/// buffer is overwritten from its beginning, up to its length, as a slice would be.
///
/// # Safety
///
/// The memory that [`room`](Self::room) returns may be written to from when `room` was called until the
/// value is next used, and stays at its address as long as the value is not moved. If the value is also a
/// [`Buffer`] and is not empty, it is the memory of [`Buffer::bytes`]. The value may be dropped on any thread.
///
/// # Examples
///
/// ```
/// use dapple::fs::{Buffer, BufferMut, File};
///
/// /// Reads into any buffer that can be filled, and hands it back.
/// async fn head<B: BufferMut>(file: &File, buffer: B) -> std::io::Result<B> {
///     let (read, buffer) = file.read_at(buffer, 0).await;
///     read?;
///     Ok(buffer)
/// }
///
/// # dapple::run(async {
/// let file = File::open("/proc/self/status").await?;
/// let bytes = head(&file, vec![0; 4]).await?; // a `Vec` is one
/// assert_eq!(bytes.bytes(), b"Name");
/// # std::io::Result::Ok(()) }).unwrap();
/// ```
pub unsafe trait BufferMut: Send + 'static {
    /// The address and the length of the memory that can be written to.
    fn room(&mut self) -> (NonNull<u8>, usize);

    /// Records that the first `len` bytes of the room have been written.
    ///
    /// # Safety
    ///
    /// The first `len` bytes of the room are initialised, and `len` is at most the length of the room.
    unsafe fn filled(&mut self, len: usize);
}

/// The address of a slice, and its length.
pub(super) fn place_of(bytes: &mut [u8]) -> (NonNull<u8>, usize) {
    (NonNull::from(&mut *bytes).cast(), bytes.len())
}

/// Types that contain, or own, a slice at a fixed address.
macro_rules! plain {
    ($($type:ty $(, const $n:ident)?;)*) => {$(
        // SAFETY: the bytes are in the value, or behind a pointer that it owns.
        unsafe impl $(<const $n: usize>)? Buffer for $type {
            fn bytes(&self) -> &[u8] {
                &self[..]
            }
        }

        // SAFETY: as above, and all of the bytes are initialised.
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

// SAFETY: the bytes are behind a pointer that the vector owns.
unsafe impl Buffer for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }
}

// SAFETY: as above; the pointer is valid for the whole capacity, beyond the length, too.
unsafe impl BufferMut for Vec<u8> {
    fn room(&mut self) -> (NonNull<u8>, usize) {
        let len = if self.is_empty() { self.capacity() } else { self.len() };
        (NonNull::new(self.as_mut_ptr()).expect("the pointer of a vector is not null"), len)
    }

    unsafe fn filled(&mut self, len: usize) {
        if len > self.len() {
            // SAFETY: the caller promises that the bytes are initialised and within the capacity.
            unsafe { self.set_len(len) };
        }
    }
}

/// Types that can only be written from.
macro_rules! read_only {
    ($($type:ty, $bytes:ident;)*) => {$(
        // SAFETY: the bytes are behind a pointer that the value owns or shares, and are immutable.
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

// SAFETY: as for `Vec`; it is shared, and so immutable.
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
            _ => panic!("the range is not inside the buffer of {len} bytes"),
        }
    }

    /// Returns the whole buffer.
    pub fn into_inner(self) -> B {
        self.buffer
    }

    /// The whole buffer.
    pub fn get_ref(&self) -> &B {
        &self.buffer
    }
}

// SAFETY: it is a part of the buffer's bytes, which stay at their address.
unsafe impl<B: Buffer> Buffer for Slice<B> {
    fn bytes(&self) -> &[u8] {
        &self.buffer.bytes()[self.start..self.end]
    }
}

// SAFETY: it is a part of the buffer's bytes, all of which are initialised, and which are its room.
unsafe impl<B: Buffer + BufferMut> BufferMut for Slice<B> {
    fn room(&mut self) -> (NonNull<u8>, usize) {
        let (start, len) = self.buffer.room();
        assert!(self.end <= len, "the room of a buffer is smaller than its bytes");
        // SAFETY: `start` is at most `end`, which is within the room.
        (unsafe { start.add(self.start) }, self.end - self.start)
    }

    unsafe fn filled(&mut self, _len: usize) {}
}
