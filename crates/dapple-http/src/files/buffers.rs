//! Buffers for pieces of files, used again: memory that the allocator gives back to the system and takes again for
//! each piece costs a fault for each page of it.

use std::cell::RefCell;
use std::thread::LocalKey;

use bytes::Bytes;

/// How large a buffer is: as much of a file as is read at a time. Two of them are in the processor's cache while one
/// is filled and the other is sent.
pub(super) const SIZE: usize = 64 << 10;

/// The same, for a client that takes it as fast as it is read: fewer system calls and wake-ups for as many bytes.
pub(super) const LARGE: usize = 256 << 10;

/// Where what is read begins in a buffer, and in the memory of a large file that is kept: in the middle of a page.
///
/// What is sent encrypted is copied before, to right behind the head of a record, which begins where an allocation
/// does, and often that is where a page does. If what is read began with a page as well, each byte would have the place
/// of one that was written a moment ago, as far as the processor compares them (by the lower 12 bits of the address),
/// and would wait for it: that copy then takes ten times as long (360 ms a GB instead of 38), as long as the
/// encryption.
pub(super) const BEGIN: usize = 2 << 10;

/// How many a thread keeps of each.
const MOST: usize = 32;
const MOST_LARGE: usize = 8;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static FREE_LARGE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Where buffers of a size are kept, and how many.
fn shelf(size: usize) -> (&'static LocalKey<RefCell<Vec<Vec<u8>>>>, usize) {
    if size < LARGE { (&FREE, MOST) } else { (&FREE_LARGE, MOST_LARGE) }
}

/// A buffer with room for so many bytes, [`SIZE`] or [`LARGE`], from [`BEGIN`] on.
pub(super) fn take(size: usize) -> Vec<u8> {
    let free = shelf(size).0.try_with(|free| free.borrow_mut().pop());
    free.ok().flatten().unwrap_or_else(|| vec![0; BEGIN + size])
}

/// What was read, as bytes to be sent; the buffer is for others after that.
pub(super) fn lend(buffer: Vec<u8>) -> Bytes {
    Bytes::from_owner(Lent(buffer))
}

struct Lent(Vec<u8>);

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.0[BEGIN..]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.0);
        let (shelf, most) = shelf(buffer.len() - BEGIN);
        let _ = shelf.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < most {
                free.push(buffer);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_used_again_when_the_last_who_has_its_bytes_is_done() {
        for size in [SIZE, LARGE] {
            let mut buffer = take(size);
            buffer[BEGIN..][..10].copy_from_slice(b"some bytes");
            let address = buffer.as_ptr();
            let bytes = lend(buffer);
            assert_eq!(bytes.len(), size);
            let part = bytes.slice(5..10);
            drop(bytes);
            let other = take(size);
            assert_ne!(other.as_ptr(), address, "it is in use");
            assert_eq!(part, "bytes");
            drop(part);
            let again = take(size);
            assert_eq!((again.as_ptr(), again.len()), (address, BEGIN + size));
        }
    }

    #[test]
    fn a_thread_keeps_only_some() {
        for size in [SIZE, LARGE] {
            let (shelf, most) = shelf(size);
            let lent: Vec<_> = (0..most + 10).map(|_| lend(take(size))).collect();
            drop(lent);
            assert_eq!(shelf.with(|free| free.borrow().len()), most);
        }
    }
}
