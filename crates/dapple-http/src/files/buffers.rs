//! Buffers for pieces of files, used again: memory that the allocator gives back to the system and takes again for
//! each piece costs a fault for each page of it.
//!
//! # Invariants
//!
//! * **FREED-WHEN-UNUSED**: a buffer that was not needed between two sweeps is given back to the allocator by the second.
//!   So the memory that many slow clients have used is free soon after they are gone. The shards belong to no thread: the
//!   thread of a spare, which rests once its stalled worker is back, would keep its buffers for ever.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

/// Size of a buffer, and of the pieces in which a file is read. Two of them fit into the cache of the processor while one
/// is filled and the other is sent.
pub(super) const SIZE: usize = 64 << 10;

/// Size of a large buffer, for a client that receives as fast as the file is read: fewer system calls and wake-ups.
pub(super) const LARGE: usize = 256 << 10;

/// Offset of the bytes in a buffer, and in the memory of a large cached file: the middle of a page.
///
/// Bytes that are sent encrypted are copied before, to behind the head of a record, which is often at the beginning of a
/// page. If the source began with a page as well, each byte would have the address of one that was written a moment ago,
/// as far as the processor compares them (the lower 12 bits), and reading it would wait for that write. The copy then
/// takes ten times as long (360 ms a GB instead of 38), as long as the encryption.
pub(super) const BEGIN: usize = 2 << 10;

/// Number of buffers of each size that a shard keeps.
const MOST: usize = 16;
const MOST_LARGE: usize = 4;

/// Number of shards. Threads are assigned to them in turn.
const SHARDS: usize = 8;

/// Free buffers of one size, the one used last on top.
struct FreeBuffers {
    free: Vec<Vec<u8>>,
    most: usize,
    /// The least number of free buffers since the last sweep: this many were not needed. FREED-WHEN-UNUSED
    least: usize,
}

impl FreeBuffers {
    const fn new(most: usize) -> FreeBuffers {
        FreeBuffers { free: Vec::new(), most, least: 0 }
    }

    fn take(&mut self) -> Option<Vec<u8>> {
        let buffer = self.free.pop();
        self.least = self.least.min(self.free.len());
        buffer
    }

    /// Takes a buffer back; returns it if there is no room.
    fn put(&mut self, buffer: Vec<u8>) -> Option<Vec<u8>> {
        if self.free.len() >= self.most {
            return Some(buffer);
        }
        self.free.push(buffer);
        None
    }

    /// Takes away the buffers that were not needed since the last time.
    fn sweep(&mut self) -> Vec<Vec<u8>> {
        let unused = self.free.drain(..self.least).collect();
        self.least = self.free.len();
        if self.free.is_empty() {
            self.free = Vec::new();
        }
        unused
    }
}

/// The shards that some threads share, on cache lines of their own.
#[repr(align(128))]
struct BufferShard {
    /// The lists for buffers of [`SIZE`] and of [`LARGE`].
    shards: Mutex<[FreeBuffers; 2]>,
    /// Number of buffers that are lent, and will come back.
    lent: AtomicUsize,
}

impl BufferShard {
    const fn new() -> BufferShard {
        let shards = Mutex::new([FreeBuffers::new(MOST), FreeBuffers::new(MOST_LARGE)]);
        BufferShard { shards, lent: AtomicUsize::new(0) }
    }

    fn lock(&self) -> MutexGuard<'_, [FreeBuffers; 2]> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, size: usize) -> Vec<u8> {
        let free = self.lock()[index(size)].take();
        free.unwrap_or_else(|| vec![0; BEGIN + size])
    }

    fn lend(&'static self, buffer: Vec<u8>) -> Bytes {
        self.lent.fetch_add(1, Ordering::SeqCst);
        Bytes::from_owner(Lent { buffer, shards: self })
    }

    /// Returns whether a buffer is left, free or lent. FREED-WHEN-UNUSED
    fn sweep(&self) -> bool {
        let is_lent = self.lent.load(Ordering::SeqCst) > 0; // read first: a buffer that comes back meanwhile is counted as free
        let mut shards = self.lock();
        let unused = shards.each_mut().map(FreeBuffers::sweep);
        let is_left = is_lent || shards.iter().any(|shard| !shard.free.is_empty());
        drop(shards);
        drop(unused);
        is_left
    }
}

/// The list of a shard for buffers of a size.
fn index(size: usize) -> usize {
    usize::from(size >= LARGE)
}

static ALL: [BufferShard; SHARDS] = [const { BufferShard::new() }; SHARDS];

thread_local! {
    static MINE: &'static BufferShard = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        &ALL[NEXT.fetch_add(1, Ordering::Relaxed) % SHARDS]
    };
}

/// A buffer with room for `size` bytes, [`SIZE`] or [`LARGE`], from [`BEGIN`] on.
pub(super) fn take(size: usize) -> Vec<u8> {
    MINE.with(|mine| mine.take(size))
}

/// The bytes that were read, to be sent. When they are dropped, the buffer can be used again.
pub(super) fn lend(buffer: Vec<u8>) -> Bytes {
    MINE.with(|mine| mine.lend(buffer))
}

/// Gives the buffers back to the allocator that were not needed since the last sweep. Returns whether a buffer is left, free
/// or lent. FREED-WHEN-UNUSED
pub(super) fn sweep() -> bool {
    let mut is_left = false;
    for shards in &ALL {
        is_left |= shards.sweep();
    }
    is_left
}

/// A buffer whose bytes are being sent.
struct Lent {
    buffer: Vec<u8>,
    shards: &'static BufferShard,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[BEGIN..]
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        let size = buffer.len() - BEGIN;
        let rest = self.shards.lock()[index(size)].put(buffer);
        drop(rest); // not under the lock
        self.shards.lent.fetch_sub(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shards() -> &'static BufferShard {
        Box::leak(Box::new(BufferShard::new()))
    }

    fn free(shards: &BufferShard, size: usize) -> usize {
        shards.lock()[index(size)].free.len()
    }

    #[test]
    fn a_buffer_is_used_again_when_its_last_holder_is_done() {
        let shards = shards();
        for size in [SIZE, LARGE] {
            let mut buffer = shards.take(size);
            buffer[BEGIN..][..10].copy_from_slice(b"some bytes");
            let address = buffer.as_ptr();
            let bytes = shards.lend(buffer);
            assert_eq!(bytes.len(), size);
            let part = bytes.slice(5..10);
            drop(bytes);
            let other = shards.take(size);
            assert_ne!(other.as_ptr(), address, "it is in use");
            assert_eq!(part, "bytes");
            drop(part);
            let again = shards.take(size);
            assert_eq!((again.as_ptr(), again.len()), (address, BEGIN + size));
        }
    }

    #[test]
    fn a_shard_keeps_only_some() {
        let shards = shards();
        for (size, most) in [(SIZE, MOST), (LARGE, MOST_LARGE)] {
            let lent: Vec<_> = (0..most + 10).map(|_| shards.lend(shards.take(size))).collect();
            drop(lent);
            assert_eq!(free(shards, size), most);
        }
    }

    #[test]
    fn buffers_that_are_not_needed_between_two_sweeps_are_freed() {
        let shards = shards();
        let lent: Vec<_> = (0..MOST).map(|_| shards.lend(shards.take(SIZE))).collect();
        assert!(shards.sweep(), "they are lent");
        drop(lent);
        assert!(shards.sweep(), "they were needed");
        assert_eq!(free(shards, SIZE), MOST);
        for _ in 0..10 {
            let needed: Vec<_> = (0..3).map(|_| shards.lend(shards.take(SIZE))).collect();
            drop(needed);
            assert!(shards.sweep());
            assert_eq!(free(shards, SIZE), 3);
        }
        assert!(!shards.sweep());
        assert_eq!(free(shards, SIZE), 0);
    }
}
